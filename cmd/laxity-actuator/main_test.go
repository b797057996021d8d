package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"},
		{"--policy=best"},
		{"--arbitrate=sometimes"},
		{"--guardian=angel"},
		{"--max-hold=soon"},
	} {
		if code := command(args); code != 2 {
			t.Errorf("%v: status %d", args, code)
		}
	}
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--exporter=nowhere"},
		{"--max-hold=1ms"},
		{"--config.file=" + filepath.Join(dir, "missing")},
		{"--config.file=" + write(t, "policy: best")},
		{"--config.file=" + write(t, "polizy: fifo")},
		{"--web.config.file=" + filepath.Join(dir, "missing")},
	} {
		if code := command(append(args, "--state-dir="+dir)); code != 1 {
			t.Errorf("%v: status %d", args, code)
		}
	}
}

func TestConfigFile(t *testing.T) {
	base := actuator.Config{Policy: "p3", Arbitrate: actuator.Auto, MaxHold: time.Minute, Lease: time.Minute}
	got, err := loadConfig(write(t, "policy: fifo\nmax_hold: 30s\n"), base)
	if err != nil || got.Policy != "fifo" || got.MaxHold != 30*time.Second || got.Lease != time.Minute {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = loadConfig(write(t, ""), base); err != nil || got != base {
		t.Errorf("%+v %v", got, err)
	}
	if _, err = loadConfig(write(t, "max_hold: soon"), base); err == nil || !strings.Contains(err.Error(), "it may set policy") {
		t.Errorf("error %v", err)
	}
}

func TestAuthenticates(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                  false,
		"basic_auth_users: {}":              false,
		"basic_auth_users: {alice: secret}": true,
		"tls_server_config: {cert_file: c, key_file: k}":                      false,
		"tls_server_config: {client_auth_type: RequestClientCert}":            false,
		"tls_server_config: {client_auth_type: RequireAndVerifyClientCert}":   true,
		"tls_server_config: {client_auth_type: VerifyClientCertIfGiven}":      false,
		"tls_server_config: {cert_file: c}\nbasic_auth_users: {bob: '$2y$x'}": true,
	} {
		if got, err := authenticates(write(t, text)); got != want || err != nil {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	if _, err := authenticates(write(t, "a: [")); err == nil {
		t.Error("bad YAML was taken")
	}
}
