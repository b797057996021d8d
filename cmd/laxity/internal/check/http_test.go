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
	server := httptest.NewServer(gate.All(gate.Change(http.NotFoundHandler())))
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
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			if got := permitted(t.Context(), at, method, "/x"); got != c.want {
				t.Errorf("%s token, %s: %v, want %v", what, method, got, c.want)
			}
		}
	}
	if got := permitted(t.Context(), Address{URL: "http://127.0.0.1:1"}, http.MethodGet, "/"); got != unasked {
		t.Errorf("nobody there: %v", got)
	}
}
