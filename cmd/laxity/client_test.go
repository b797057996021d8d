package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// unauthorized is what a refusal says; a port may have these digits among others.
var unauthorized = regexp.MustCompile(`\b401\b`)

// Every command that asks exporter or actuator brings the credentials, and without
// them says what to do.
func TestCredentials(t *testing.T) {
	const token = "a-token-of-more-than-16"
	var asked sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		asked.Store(r.Method+" "+r.URL.Path, true)
		if r.URL.Path == "/api/v1/placements" && r.Method == http.MethodGet || r.URL.Path == "/api/v1/decisions" {
			_, _ = w.Write([]byte("[]"))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"node": "n"})
	}))
	defer server.Close()
	t.Setenv("LAXITY_EXPORTER_URL", server.URL)
	t.Setenv("LAXITY_ACTUATOR_URL", server.URL)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "token"), token+"\n", 0o600)
	file := filepath.Join(dir, "http.yml")
	writeFile(t, file, "authorization: {credentials_file: token}\n", 0o600)
	commands := [][]string{{"ps"}, {"top", "--once"}, {"deadline", "web", "5s"}, {"share", "web", "30%"}, {"why", "web"}, {"nodes"}, {"place", "--dry-run"}, {"placements"}}
	for _, args := range commands {
		code, _, stderr := laxity(args...)
		if code != exitFailure || !unauthorized.MatchString(stderr) && !strings.Contains(stderr, "authentication") || !strings.Contains(stderr, "--token.file") {
			t.Errorf("%v without credentials: code %d, %q", args, code, stderr)
		}
		_, _, stderr = laxity(append(args, "--http.config.file="+file)...)
		if unauthorized.MatchString(stderr) {
			t.Errorf("%v with credentials: %s", args, stderr)
		}
	}
	tls := filepath.Join(dir, "tls.yml")
	writeFile(t, tls, "tls_config: {insecure_skip_verify: true}\n", 0o600)
	tokenArg := "--token.file=" + filepath.Join(dir, "token")
	if code, _, stderr := laxity("ps", "--http.config.file="+tls, tokenArg); code != exitOK {
		t.Errorf("ps with an http_config that does not authenticate: code %d, %s", code, stderr)
	}
	if _, _, stderr := laxity("run", tokenArg, "IMAGE"); unauthorized.MatchString(stderr) {
		t.Errorf("run with --token.file: %s", stderr)
	}
	missing := filepath.Join(dir, "missing")
	for _, args := range [][]string{{"ps", "--token.file=" + missing}, {"run", "--token.file", missing, "IMAGE"}} {
		if code, _, stderr := laxity(args...); code == exitOK || !strings.Contains(stderr, missing+": no such file") {
			t.Errorf("%v: code %d, %q", args, code, stderr)
		}
	}
	if _, _, stderr := laxity("why", "web"); !strings.Contains(stderr, tokenEnv) || !strings.Contains(stderr, packageToken) ||
		!strings.Contains(stderr, "for another address name the file (--token.file)") {
		t.Errorf("what to do without a token: %q", stderr)
	}
	t.Setenv(httpConfigEnv, file)
	if _, _, stderr := laxity("run", "IMAGE"); unauthorized.MatchString(stderr) {
		t.Errorf("run with credentials: %s", stderr)
	}
	for _, want := range []string{"GET /api/v1/tasks", "PATCH /api/v1/containers/web", "GET /api/v1/state", "GET /api/v1/nodes", "POST /api/v1/placements", "GET /api/v1/placements"} {
		if _, ok := asked.Load(want); !ok {
			t.Errorf("%s did not come with credentials", want)
		}
	}
	if code, _, stderr := laxity("ps", "--http.config.file=/nonexistent"); code != exitFailure || !strings.Contains(stderr, "authorization:") {
		t.Errorf("a missing file: code %d, %q; want an example", code, stderr)
	}
}
