package access_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/internal/access"
)

const first, second = "0123456789abcdef-one", "0123456789abcdef-two"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// basic is the header of a client that knows only passwords.
func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestTokens(t *testing.T) {
	path := write(t, "# for Alertmanager\n\n0123456789abcdef-one\n  0123456789abcdef-two  \n")
	tokens, err := access.OpenTokens(path)
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
		"":                                      false,
		"Bearer":                                false,
		"Bearer ":                               false,
		"Bearer 0123456789abcdef":               false,
		"Bearer 0123456789abcdef-one":           true,
		"bearer 0123456789abcdef-two":           true,
		"Basic 0123456789abcdef-one":            false,
		basic("laxity", "0123456789abcdef-one"): true,
		basic("", "0123456789abcdef-two"):       true,
		basic("0123456789abcdef-one", ""):       false,
		"Bearer # for Alertmanager":             false,
		"Bearer 0123456789abcdef-one extra":     false,
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
		if _, err := access.OpenTokens(path); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
}

func TestBearerReadsItsFileEachTime(t *testing.T) {
	path := write(t, "# comment\n"+first)
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
	defer server.Close()
	client := &http.Client{Transport: access.Bearer{Path: path}}
	for _, token := range []string{first, second} {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(server.URL)
		if err != nil || got != "Bearer "+token {
			t.Fatal(got, err)
		}
		_ = resp.Body.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Get(server.URL); err == nil {
		_ = resp.Body.Close()
		t.Error("asked without a token")
	}
}
