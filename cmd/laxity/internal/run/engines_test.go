package run_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/internal/needtest"
)

const socket = "/var/run/docker.sock"

// Every way to an engine that nodes.yaml can name leads to it, with the real docker
// command; the engine at the other end is the one of this machine.
func TestWaysToAnEngine(t *testing.T) {
	if c, err := net.Dial("unix", socket); err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine at %s: %v", socket, err)
	} else {
		_ = c.Close()
	}
	img := image(t)
	dir := t.TempDir()
	ways := map[string]nodes.Docker{
		"unix":    {Host: "unix://" + socket},
		"TLS":     overTLS(t, dir),
		"ssh":     {Host: "ssh://somebody@gpu-1"},
		"context": {Context: "gpu-1"},
	}
	// The ssh of docker is the one in PATH; this one stays here.
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(dir, "asked")
	script := "#!/bin/sh\necho \"$@\" >> " + asked + "\nunset DOCKER_HOST\nexec docker -H unix://" + socket + " system dial-stdio\n"
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DOCKER_CONFIG", filepath.Join(dir, "config"))
	if out, err := exec.CommandContext(t.Context(), "docker", "context", "create", "gpu-1", "--docker", "host=unix://"+socket).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			a := &actuator{next: []api.Placement{{ID: "p1", Node: "gpu-1", GPU: gpu, Simulated: true, Docker: way}}}
			if r := do(t, a, "--rm", "--network=none", img, "exit", "5"); r.code != 5 || r.err != nil || len(a.bound["p1"]) != 64 || len(a.released) != 1 {
				t.Errorf("%d, %v, bound %v, released %v: %s", r.code, r.err, a.bound, a.released, r)
			}
			// A real GPU is asked for by its UUID alone; an engine without a runtime for
			// GPUs takes that as long as the container is not started.
			container := prefix() + "-gpu-by-" + strings.ToLower(name)
			cleanup(t, container)
			a.next[0].Simulated = false
			_, wait := start(t, a, nil, "create", "--name", container, "--network=none", img, "exit", "0")
			if r := wait(); r.code != 0 || r.err != nil {
				t.Fatalf("%d, %v: %s", r.code, r.err, r)
			}
			var requests []struct {
				Count     int
				DeviceIDs []string
			}
			if err := json.Unmarshal([]byte(inspect(t, container, "{{json .HostConfig.DeviceRequests}}")), &requests); err != nil {
				t.Fatal(err)
			}
			if len(requests) != 1 || requests[0].Count != 0 || !slices.Equal(requests[0].DeviceIDs, []string{gpu}) {
				t.Errorf("GPUs asked for: %+v, want %s alone", requests, gpu)
			}
			if env := inspect(t, container, "{{.Config.Env}}"); !strings.Contains(env, "NVIDIA_VISIBLE_DEVICES="+gpu) {
				t.Errorf("environment %s", env)
			}
		})
	}
	if b, err := os.ReadFile(asked); err != nil || len(b) == 0 {
		t.Errorf("ssh was not asked: %v", err)
	}
}

// overTLS serves the engine's socket over TLS to clients with a certificate.
func overTLS(t *testing.T, dir string) nodes.Docker {
	t.Helper()
	d := certificates(t, dir)
	pair, err := tls.LoadX509KeyPair(d.CertFile, d.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	cert, err := os.ReadFile(d.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c.(*tls.Conn))
		}
	}()
	d.Host = "tcp://" + l.Addr().String()
	return d
}

// certificates makes the files of a way over TLS to 127.0.0.1.
func certificates(t *testing.T, dir string) nodes.Docker {
	t.Helper()
	d := nodes.Docker{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// One certificate is authority, server and client.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "laxity-test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, b := range map[string][]byte{d.CAFile: cert, d.CertFile: cert, d.KeyFile: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// pass joins a connection with the engine's socket, both ways to their ends.
func pass(c *tls.Conn) {
	defer c.Close()
	e, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer e.Close()
	go func() {
		_, _ = io.Copy(e, c)
		_ = e.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(c, e)
}
