package webserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/laxity/laxity/internal/access"
)

// Refuse answers a request with a status, and with an error that says why it is not served.
// access.Options has the same type, so that all refusals of a program look alike.
type Refuse = func(w http.ResponseWriter, r *http.Request, code int, err error)

// Router makes the router of a program. If a handler panics, only its request fails, with status
// 500; log gets the panic and its stack. HEAD works wherever GET does. refuse answers an unknown
// path with 404, and a method that the path does not have with 405 and the header Allow.
// Middlewares can be added until the first route is.
func Router(log *slog.Logger, refuse Refuse) chi.Router {
	r := chi.NewRouter()
	r.Use(panicsTo(log), middleware.Recoverer, middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, q *http.Request) {
		refuse(w, q, http.StatusNotFound, fmt.Errorf("%s is not here", q.URL.Path))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, q *http.Request) {
		for _, m := range methods {
			if r.Match(chi.NewRouteContext(), m, q.URL.Path) {
				w.Header().Add("Allow", m)
			}
		}
		refuse(w, q, http.StatusMethodNotAllowed, fmt.Errorf("%s does not take %s", q.URL.Path, q.Method))
	})
	return r
}

// methods are those of a program's routes.
var methods = []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete}

// Profiler mounts net/http/pprof at /debug/pprof/, for clients on this machine that pass gate
// (which decides who may act), and for no page of another site. refuse answers all others with 403.
func Profiler(r chi.Router, gate func(http.Handler) http.Handler, refuse Refuse) {
	r.With(gate, local(refuse)).Mount("/debug", middleware.Profiler())
}

var errNotLocal = errors.New("only clients on this machine may read profiles")

func local(refuse Refuse) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A browser adds its user's password to requests of any site.
			if site := r.Header.Get("Sec-Fetch-Site"); !access.Loopback(r.RemoteAddr) || site != "" && site != "none" && site != "same-origin" {
				refuse(w, r, http.StatusForbidden, errNotLocal)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// panicsTo makes middleware.Recoverer write to log instead of stderr.
func panicsTo(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, middleware.WithLogEntry(r, entry{log, r}))
		})
	}
}

// entry is a middleware.LogEntry of panics only.
type entry struct {
	log     *slog.Logger
	request *http.Request
}

func (e entry) Panic(v any, stack []byte) {
	e.log.Error("a request's handler panicked", "method", e.request.Method, "path", e.request.URL.Path, "panic", v, "stack", string(stack))
}

func (entry) Write(int, int, http.Header, time.Duration, any) {}
