// Package dockerproxy is a proxy between a program and the Docker engine. It passes only the few
// calls that the program makes. The engine's socket is as good as root; behind the proxy a mistake,
// or a stolen connection, can do no more than what is listed.
//
// Proxies that allow whole groups of calls, or all GETs, do not give that: GET reads files of
// containers (archive) and their output (logs), and opens a terminal in them (attach/ws).
//
// It imports the standard library only.
package dockerproxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"time"
)

// Call is one call of the Docker API: its method, and its path without the version prefix. ID in
// the path is a full container id.
type Call struct{ Method, Path string }

// String is the call as the documentation lists it.
func (c Call) String() string { return c.Method + " " + c.Path }

// Clients lists the programs with all the calls that they make.
var Clients = map[string][]Call{
	// List and follow containers.
	"exporter": {
		{http.MethodHead, "/_ping"}, {http.MethodGet, "/_ping"},
		{http.MethodGet, "/info"},
		{http.MethodGet, "/events"},
		{http.MethodGet, "/containers/json"},
		{http.MethodGet, "/containers/ID/json"},
	},
	// Pause and unpause containers; also for the guardian.
	"actuator": {
		{http.MethodHead, "/_ping"}, {http.MethodGet, "/_ping"},
		{http.MethodGet, "/info"},
		{http.MethodGet, "/containers/ID/json"},
		{http.MethodPost, "/containers/ID/pause"},
		{http.MethodPost, "/containers/ID/unpause"},
	},
}

// Options of a proxy. Dial and Allow are required.
type Options struct {
	// Dial connects to the engine.
	Dial func(context.Context) (net.Conn, error)
	// Allow lists the calls that pass.
	Allow []Call
	// Denied, if not nil, gets each call that does not pass.
	Denied func(Call)
	Logger *slog.Logger // nil: nothing is logged
}

// New returns the proxy. It passes neither bodies nor upgrades of the connection: none of the
// listed calls has one.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	allowed := pattern(o.Allow)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "docker", "docker"
			r.Out.Body, r.Out.ContentLength = http.NoBody, 0
		},
		Transport: &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
			IdleConnTimeout: time.Minute,
		},
		FlushInterval: -1, // events must pass at once
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else the client has disconnected, as from a stream of events
				o.Logger.Warn("the engine does not answer", "path", r.URL.Path, "err", err)
			}
			answer(w, http.StatusBadGateway, "docker-proxy: the engine does not answer")
		},
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := Call{r.Method, r.URL.EscapedPath()}
		if !allowed.MatchString(call.String()) || r.Header.Get("Upgrade") != "" {
			o.Logger.Warn("denied", "call", call.String())
			if o.Denied != nil {
				o.Denied(call)
			}
			answer(w, http.StatusForbidden, "docker-proxy: not on the list: "+call.String())
			return
		}
		forward.ServeHTTP(w, r)
	})
}

// answer writes an error in the engine's format.
func answer(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, "{\"message\":%q}\n", message)
}

// pattern matches the calls as String writes them. It matches the path as it was sent, so that no
// other spelling passes for a listed call.
func pattern(calls []Call) *regexp.Regexp {
	var all []string
	for _, c := range calls {
		path := strings.ReplaceAll(regexp.QuoteMeta(c.Path), "ID", "[0-9a-f]{64}")
		all = append(all, c.Method+` (?:/v1\.[0-9]{1,3})?`+path)
	}
	return regexp.MustCompile(`^(?:` + strings.Join(all, "|") + `)$`)
}
