package actuator_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/internal/access"
)

// Whatever the router serves is for reading and on this list, or needs the token.
func TestEveryRouteIsGuarded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *actuator.Options) {
		o.Access.Tokens = access.TokensIn(path)
		o.Mount = append(o.Mount, func(r chi.Router, gate *access.Gate) {
			api.NewServer(api.Options{}).Register(r, gate.Change, gate.Queue)
		})
	})
	open := []string{
		"GET /", "GET /events", "GET /assets/{name}", "GET /metrics", "GET /-/healthy", "GET /-/ready",
		"GET /api/v1/state", "GET /api/v1/decisions", "GET /api/v1/nodes", "GET /api/v1/placements",
	}
	seen := 0
	err := chi.Walk(b.Handler().(chi.Router), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		seen++
		if slices.Contains(open, method+" "+route) {
			return nil
		}
		for _, authorization := range []string{"", "Bearer fedcba9876543210"} {
			r := httptest.NewRequest(method, strings.NewReplacer("{id}", "x", "*", "x").Replace(route), strings.NewReader("{}"))
			r.RemoteAddr, r.Host = "127.0.0.1:5", "localhost:9871"
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			if b.Handler().ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
				t.Errorf("%s %s with %q: %d", method, route, authorization, w.Code)
			}
		}
		return nil
	})
	if err != nil || seen < 20 {
		t.Errorf("%d routes, %v", seen, err)
	}
}
