package auth_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/actuator/auth"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	path := write(t, "# for Alertmanager\n\n0123456789abcdef-one\n  0123456789abcdef-two  \n")
	tokens, err := auth.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(header string) bool {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		return tokens.Check(r) == nil
	}
	for header, want := range map[string]bool{
		"":                                  false,
		"Bearer":                            false,
		"Bearer ":                           false,
		"Bearer 0123456789abcdef":           false,
		"Bearer 0123456789abcdef-one":       true,
		"bearer 0123456789abcdef-two":       true,
		"Basic 0123456789abcdef-one":        false,
		"Bearer # for Alertmanager":         false,
		"Bearer 0123456789abcdef-one extra": false,
	} {
		if got := check(header); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
	// Changed without a restart; away, nobody gets in.
	if err := os.WriteFile(path, []byte("0123456789abcdef-new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if check("Bearer 0123456789abcdef-one") || !check("Bearer 0123456789abcdef-new") {
		t.Error("the file was not read again")
	}
	if err := os.Remove(path); err != nil || check("Bearer 0123456789abcdef-new") {
		t.Error("let in without a file", err)
	}
}

func TestBadTokenFiles(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), write(t, ""), write(t, "# none"), write(t, "short")} {
		if _, err := auth.OpenTokens(path); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
}

func TestReadWebConfig(t *testing.T) {
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
		if got, err := auth.ReadWebConfig(write(t, text)); got.Everybody() != want || err != nil {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	if _, err := auth.ReadWebConfig(write(t, "a: [")); err == nil {
		t.Error("bad YAML was taken")
	}
}
