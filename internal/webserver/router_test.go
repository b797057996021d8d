package webserver_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/webserver"
)

func refuse(w http.ResponseWriter, _ *http.Request, code int, err error) {
	http.Error(w, "refused: "+err.Error(), code)
}

// Whatever is not served is refused in one form, and a panic costs one request.
func TestRouter(t *testing.T) {
	var logged bytes.Buffer
	r := webserver.Router(slog.New(slog.NewTextHandler(&logged, nil)), refuse)
	r.Handle("GET /hello/{name}", hello)
	r.Handle("PUT /hello/{name}", hello)
	r.Handle("PATCH /change", hello)
	r.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("oh no") })
	for _, tt := range []struct {
		method, path string
		code         int
		allow, body  string
	}{
		{"GET", "/hello/you", 200, "", "hello"},
		{"HEAD", "/hello/you", 200, "", ""},
		{"GET", "/nowhere", 404, "", "refused: /nowhere is not here"},
		{"POST", "/nowhere", 404, "", "refused: /nowhere is not here"},
		{"POST", "/hello/you", 405, "GET, PUT", "refused: /hello/you does not take POST"},
		{"PUT", "/change", 405, "PATCH", "refused: /change does not take PUT"},
		{"GET", "/panic", 500, "", ""},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if allow := strings.Join(w.Header().Values("Allow"), ", "); w.Code != tt.code || allow != tt.allow || !strings.HasPrefix(w.Body.String(), tt.body) {
			t.Errorf("%s %s: %d, Allow %q, %q; want %+v", tt.method, tt.path, w.Code, allow, w.Body, tt)
		}
	}
	if text := logged.String(); !strings.Contains(text, "oh no") || !strings.Contains(text, "path=/panic") || !strings.Contains(text, "router_test.go") {
		t.Errorf("the log does not tell of the panic: %s", text)
	}
}

// Profiles are for those on this machine that may act.
func TestProfilerIsLocal(t *testing.T) {
	gate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	r := webserver.Router(slog.New(slog.DiscardHandler), refuse)
	webserver.Profiler(r, gate, refuse)
	for _, tt := range []struct {
		path, remote, authorization, site string
		code                              int
	}{
		{"/debug/pprof/", "127.0.0.1:4711", "yes", "", 200},
		{"/debug/pprof/heap", "[::1]:4711", "yes", "", 200},
		{"/debug/pprof/heap", "192.0.2.1:4711", "yes", "", 403},
		{"/debug/pprof/heap", "127.0.0.1:4711", "", "", 401},
		{"/debug/vars", "192.0.2.1:4711", "yes", "", 403},
		{"/debug/pprof/heap", "127.0.0.1:4711", "yes", "none", 200},
		{"/debug/pprof/heap", "127.0.0.1:4711", "yes", "cross-site", 403},
		{"/debug/pprof/heap", "127.0.0.1:4711", "yes", "same-site", 403},
		{"/debug/nowhere", "127.0.0.1:4711", "yes", "", 404},
	} {
		q := httptest.NewRequest(http.MethodGet, tt.path, nil)
		q.RemoteAddr = tt.remote
		q.Header.Set("Authorization", tt.authorization)
		q.Header.Set("Sec-Fetch-Site", tt.site)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		if w.Code != tt.code {
			t.Errorf("%+v: %d %s", tt, w.Code, w.Body)
		}
	}
}
