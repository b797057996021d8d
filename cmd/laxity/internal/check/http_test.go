package check

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/internal/access"
)

// A wrong token is told from none, and neither from a request that passes.
func TestPermitted(t *testing.T) {
	right, wrong := filepath.Join(t.TempDir(), "right"), filepath.Join(t.TempDir(), "wrong")
	for _, file := range []string{right, wrong} {
		if err := access.WriteToken(file, os.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
	}
	gate := access.New(access.Options{Tokens: access.TokensIn(right)})
	mux := http.NewServeMux()
	mux.Handle("/x", gate.Change(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })))
	server := httptest.NewServer(gate.All(mux))
	defer server.Close()
	for what, c := range map[string]struct {
		client *http.Client
		want   permission
	}{
		"right": {&http.Client{Transport: access.Bearer{Path: right}}, mayAct},
		"wrong": {&http.Client{Transport: access.Bearer{Path: wrong}}, wrongToken},
		"none":  {nil, noToken},
	} {
		at := Address{URL: server.URL, Client: c.client}
		for _, method := range []string{http.MethodGet, http.MethodPatch} {
			if got := permitted(t.Context(), at, method, "/x"); got != c.want {
				t.Errorf("%s token, %s: %v, want %v", what, method, got, c.want)
			}
		}
	}
	// What is not there is behind no gate, so its answer says nothing of the token.
	if got := permitted(t.Context(), Address{URL: server.URL}, http.MethodGet, "/elsewhere"); got != unasked {
		t.Errorf("a path that is not there: %v", got)
	}
	if got := permitted(t.Context(), Address{URL: "http://127.0.0.1:1"}, http.MethodGet, "/"); got != unasked {
		t.Errorf("nobody there: %v", got)
	}
}
