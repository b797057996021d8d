package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/access"
)

// The token goes to the program that wrote it, and to nobody who happens to listen
// elsewhere.
func TestTokenGoesToItsOwnAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	held, err := writeToken(path, "", []string{"127.0.0.1:9870", ":9871", "192.0.2.1:9872"})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for address, want := range map[string]bool{
		"http://127.0.0.1:9870/x": true, "http://localhost:9870": true, "http://[::1]:9870": true,
		"http://localhost:9871": true, "http://127.0.0.1:9871": true, "https://192.0.2.1:9872": true,
		"http://127.0.0.1:9872": false, "http://127.0.0.1:9873": false, "http://127.0.0.1": false,
		"http://192.0.2.1:9870": false, "http://192.0.2.1:9871": false, "http://gpu-2:9871": false, "http://localhost.evil.example:9870": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if token, ok := (tokenSource{}).tokenIn(path, u, true); ok != want || ok && len(token) != 64 {
			t.Errorf("%s: %v", address, ok)
		}
	}
	if _, ok := (tokenSource{}).tokenIn(filepath.Join(t.TempDir(), "none"), &url.URL{Host: "127.0.0.1:9870"}, true); ok {
		t.Error("a token out of nothing")
	}
}

// The token of a package names no address: it goes to what the command asks, and not where an answer
// sends the command on to.
func TestTokenWithoutAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "webhook-token")
	if err := access.WriteToken(file, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	sees := func(name string) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { got[name] = r.Header.Get("Authorization") }
	}
	other := httptest.NewServer(sees("other"))
	defer other.Close()
	mux := http.NewServeMux()
	mux.Handle("/", sees("asked"))
	mux.Handle("/away", http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	asked := httptest.NewServer(mux)
	defer asked.Close()
	client, err := httpClient("", tokenSource{[]string{file}, true})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/away"} {
		resp, err := client.Get(asked.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if got["asked"] != "Bearer "+tokens[0] {
		t.Errorf("what was asked got %q", got["asked"])
	}
	if other, ok := got["other"]; !ok || other != "" {
		t.Errorf("where it was sent on to: %q, %v", other, ok)
	}
}

func TestEveryStartHasAnotherToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "token")
	seen := map[string]bool{}
	for range 3 {
		held, err := writeToken(path, "", []string{"127.0.0.1:9870"})
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		tokens, err := access.ReadTokens(path)
		if err != nil {
			t.Fatal(err)
		}
		seen[tokens[0]] = true
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d tokens of 3", len(seen))
	}
	if _, err := writeToken(path, "no-such-group-here", nil); err == nil {
		t.Error("a group that does not exist was taken")
	}
}

// A file that a person names must be there; a default need not.
func TestTokenFrom(t *testing.T) {
	dir := t.TempDir()
	there, missing := filepath.Join(dir, "token"), filepath.Join(dir, "missing")
	writeFile(t, there, "a\n", 0o600)
	if got, err := tokenFrom(there, []string{missing}); err != nil || !got.named || !slices.Equal(got.paths, []string{there}) {
		t.Errorf("named: %+v, %v", got, err)
	}
	if _, err := tokenFrom(missing, []string{there}); err == nil || !strings.Contains(err.Error(), missing+": no such file") {
		t.Errorf("named and missing: %v", err)
	}
	if got, err := tokenFrom("", []string{missing}); err != nil || got.named {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

// The first default file with a token for the address counts: not that of a laxity up that was killed, or that
// listens elsewhere.
func TestTokenIsForTheAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	dir := t.TempDir()
	missing, mine, roots, packaged := filepath.Join(dir, "missing"), filepath.Join(dir, "mine"), filepath.Join(dir, "root's"), filepath.Join(dir, "webhook-token")
	elsewhere, err := writeToken(mine, "", []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	writeFile(t, packaged, "packaged\n", 0o600)
	up, err := writeToken(roots, "", []string{address})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokens(roots)
	if err != nil {
		t.Fatal(err)
	}
	defaults := []string{missing, mine, roots, packaged}
	if got := sent(t, "", defaults, address); got != "Bearer "+tokens[0] {
		t.Errorf("while laxity up runs: %q", got)
	}
	if err := up.Close(); err != nil { // as the kernel does when it is killed
		t.Fatal(err)
	}
	if got := sent(t, "", defaults, address); got != "Bearer packaged" {
		t.Errorf("after laxity up was killed: %q", got)
	}
	if got := sent(t, roots, defaults, address); got != "Bearer "+tokens[0] { // it may be a copy
		t.Errorf("a file that a person names: %q", got)
	}
}

// sent returns what a request to an address brings as Authorization.
func sent(t *testing.T, named string, defaults []string, address string) (got string) {
	t.Helper()
	from, err := tokenFrom(named, defaults)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	next := roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Get("Authorization")
		return nil, http.ErrServerClosed
	})
	_, _ = withToken{from, next}.RoundTrip(req) //nolint:bodyclose // there is no answer
	return got
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The default token stays on this machine, and goes to programs of its owner: while a service is down, any user
// may take its port.
func TestDefaultTokenGoesToItsOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	own, somebodys := filepath.Join(dir, "webhook-token"), filepath.Join(dir, "somebodys")
	writeFile(t, own, "secret\n", 0o600)
	writeFile(t, somebodys, "secret\n", 0o644)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, free, _ := net.SplitHostPort(silent.Addr().String())
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	type source struct {
		file, host, port string
		named            bool
	}
	sends := map[source]bool{
		{own, "127.0.0.1", port, false}: true, {own, "localhost", port, false}: true,
		{own, "127.0.0.1", free, false}: false, {own, "127.0.0.1", "", false}: false,
		{own, "gpu-2", port, false}: false, {own, "192.0.2.1", port, false}: false,
		{own, "gpu-2", port, true}: true, {own, "127.0.0.1", free, true}: true,
	}
	if os.Chown(somebodys, 65534, -1) == nil { // as root
		sends[source{somebodys, "127.0.0.1", port, false}] = false
	}
	for from, want := range sends {
		named := ""
		if from.named {
			named = from.file
		}
		got := sent(t, named, []string{from.file}, net.JoinHostPort(from.host, from.port))
		if (got == "Bearer secret") != want {
			t.Errorf("%+v: %q, want it: %v", from, got, want)
		}
	}
}
