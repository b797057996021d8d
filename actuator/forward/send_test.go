package forward

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// receiver is the other actuator: it tells whether the message was marked.
type receiver struct {
	got    webhook.Message
	marked bool
	err    error
}

func (r *receiver) Receive(ctx context.Context, m webhook.Message) error {
	r.got, r.marked = m, Marked(ctx)
	return r.err
}

func (r *receiver) handler() http.Handler {
	return Mark(webhook.Handler(r, slog.New(slog.DiscardHandler), nil))
}

func parse(t *testing.T, yaml string) nodes.Node {
	t.Helper()
	l, err := nodes.Parse([]byte(yaml), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return l[0]
}

func firing() webhook.Message {
	return notification(alert("x", "b", webhook.Firing))
}

func TestSend(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r.handler())
	defer server.Close()
	s := newSender(time.Minute)
	to := parse(t, "- {node: b, actuator: "+server.URL+"}")
	if err := s.send(t.Context(), to, firing()); err != nil {
		t.Fatal(err)
	}
	if !r.marked || len(r.got.Alerts) != 1 || r.got.Alerts[0].Fingerprint != "xb" || r.got.Receiver != "laxity" {
		t.Errorf("marked %v, got %+v", r.marked, r.got)
	}
	r.err = webhook.ErrFull
	if err := s.send(t.Context(), to, firing()); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("full: %v", err)
	}
	r.err = webhook.ErrInvalid
	if err := s.send(t.Context(), to, firing()); !errors.Is(err, ErrRefused) {
		t.Errorf("invalid: %v", err)
	}
	server.Close()
	if err := s.send(t.Context(), to, firing()); err == nil || !strings.Contains(err.Error(), "is laxity-actuator running there") {
		t.Errorf("gone: %v", err)
	}
}

// Credentials go to the address in the list and nowhere else.
func TestAuthentication(t *testing.T) {
	var stray int
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stray++ }))
	defer elsewhere.Close()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		switch {
		case req.Header.Get("Authorization") == "Bearer moved":
			http.Redirect(w, req, elsewhere.URL, http.StatusTemporaryRedirect)
		case req.Header.Get("Authorization") == "Bearer s3cret", user == "laxity" && password == "pw":
			r.handler().ServeHTTP(w, req)
		default:
			http.Error(w, "who are you", http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	for name, tc := range map[string]struct{ config, says string }{
		"none":     {"{}", "http_config"},
		"bearer":   {"{authorization: {credentials: s3cret}}", ""},
		"basic":    {"{basic_auth: {username: laxity, password: pw}}", ""},
		"wrong":    {"{basic_auth: {username: laxity, password: no}}", "401"},
		"redirect": {"{authorization: {credentials: moved}}", "307"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(time.Minute)
			err := s.send(t.Context(), parse(t, "- {node: b, actuator: "+server.URL+", http_config: "+tc.config+"}"), firing())
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error = %v", err)
			}
			if errors.Is(err, ErrRefused) {
				t.Error("what a person can put right must be tried again")
			}
		})
	}
	if stray > 0 {
		t.Error("a redirect was followed")
	}
}

// Over TLS, with a client certificate.
func TestClientCertificate(t *testing.T) {
	r := &receiver{}
	server := httptest.NewUnstartedServer(r.handler())
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.pem", "CERTIFICATE", server.Certificate().Raw)
	write("cert.pem", "CERTIFICATE", raw)
	write("key.pem", "PRIVATE KEY", key)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	server.TLS.ClientCAs = pool
	for name, tc := range map[string]struct {
		client string
		ok     bool
	}{"with": {"cert_file: cert.pem, key_file: key.pem,", true}, "without": {"", false}} {
		t.Run(name, func(t *testing.T) {
			l, err := nodes.Parse(fmt.Appendf(nil, "- {node: b, actuator: %s, http_config: {tls_config: {%s ca_file: ca.pem, server_name: example.com}}}", server.URL, tc.client), dir)
			if err != nil {
				t.Fatal(err)
			}
			s := newSender(time.Minute)
			if err := s.send(t.Context(), l[0], firing()); (err == nil) != tc.ok {
				t.Errorf("error = %v", err)
			}
		})
	}
}
