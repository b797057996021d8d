package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca")
	return a
}

// issue writes NAME.crt and NAME.key; the first one signs itself and the others.
func (a *authority) issue(name string) (crt, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA: a.cert == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if a.cert == nil {
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	crt, key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for path, block := range map[string]*pem.Block{crt: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return crt, key
}

// pool has the authority.
func (a *authority) pool() *x509.CertPool {
	a.t.Helper()
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(a.dir, "ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		a.t.Fatal(err)
	}
	return pool
}

// client trusts the authority and shows the certificate of this name, if any.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.pool(), MinVersion: tls.VersionTLS12}
	if name != "" {
		crt, key := a.issue(name)
		pair, err := tls.LoadX509KeyPair(crt, key)
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
}

const emptyMessage = `{"version":"4","alerts":[]}`

func postTo(c *http.Client, address string, change func(*http.Request)) int {
	req, err := http.NewRequest(http.MethodPost, address+"/api/v1/alerts", strings.NewReader(emptyMessage))
	if err != nil {
		return -1
	}
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestPasswords(t *testing.T) {
	n := newNode(t)
	// The hash of "test", as in exporter-toolkit's documentation.
	const users = "basic_auth_users: {alice: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay}"
	file := write(t, users)
	n.launch("--web.config.file=" + file)
	with := func(password string) int {
		return postTo(http.DefaultClient, "http://"+n.address, func(r *http.Request) { r.SetBasicAuth("alice", password) })
	}
	n.await("it lets alice in", func() bool { return with("test") == http.StatusOK })
	if code := with("tset"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d", code)
	}
	if code := postTo(http.DefaultClient, "http://"+n.address, nil); code != http.StatusUnauthorized {
		t.Errorf("without a password: %d", code)
	}
	// Without its users the file opens nothing, to nobody; with them all is as before.
	for _, text := range []string{"", "basic_auth_users: {}"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := postTo(http.DefaultClient, "http://"+n.address, nil); code != http.StatusServiceUnavailable {
			t.Errorf("the web configuration became %q, and an alert without a password gets %d", text, code)
		}
		if code := with("test"); code != http.StatusServiceUnavailable {
			t.Errorf("the web configuration became %q, and alice gets %d", text, code)
		}
	}
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil || with("test") != http.StatusOK {
		t.Errorf("the users are back, and alice is not let in: %v", err)
	}
}

func TestCertificates(t *testing.T) {
	n := newNode(t)
	a := newAuthority(t)
	crt, key := a.issue("server")
	n.launch("--web.config.file=" + write(t, fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s, client_ca_file: %s, client_auth_type: RequireAndVerifyClientCert}",
		crt, key, filepath.Join(a.dir, "ca.crt"))))
	known := a.client("alertmanager")
	n.await("it lets a known client in", func() bool { return postTo(known, "https://"+n.address, nil) == http.StatusOK })
	if code := postTo(a.client(""), "https://"+n.address, nil); code != 0 {
		t.Errorf("without a certificate: %d", code)
	}
}

func TestTokens(t *testing.T) {
	n := newNode(t)
	n.launch("--web.bearer-token-file=" + write(t, "0123456789abcdef"))
	with := func(token string) int {
		return postTo(http.DefaultClient, "http://"+n.address, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
	}
	n.await("it lets the token in", func() bool { return with("0123456789abcdef") == http.StatusOK })
	if code := with("0123456789abcdeF"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", code)
	}
}

// An exporter may ask for a certificate and a password, as any of Prometheus's.
func TestExporterThatAuthenticates(t *testing.T) {
	a := newAuthority(t)
	crt, key := a.issue("exporter")
	pair, err := tls.LoadX509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	exporter := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "actuator" || password != "test" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	exporter.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(), MinVersion: tls.VersionTLS12}
	exporter.StartTLS()
	defer exporter.Close()
	crt, key = a.issue("actuator")
	towards := fmt.Sprintf("tls_config: {ca_file: %s, cert_file: %s, key_file: %s}\n", filepath.Join(a.dir, "ca.crt"), crt, key)
	for text, want := range map[string]int{
		towards + "basic_auth: {username: actuator, password: test}": http.StatusOK,
		towards: http.StatusUnauthorized,
	} {
		client, err := (&serveCommand{exporterConfig: write(t, text)}).exporterClient()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(exporter.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", text, resp.Status, want)
		}
	}
}
