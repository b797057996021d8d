package access

import (
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Options of a Gate. The zero value lets clients of this machine act.
type Options struct {
	// Tokens, if not nil: every change needs one of them.
	Tokens *Tokens
	// Web has the demands of the web server on clients; nil means none.
	Web *WebConfig
	// Hosts are names of this machine besides localhost and its host name.
	Hosts []string
	// Refuse answers refused requests. The default sends the error as plain text.
	Refuse func(w http.ResponseWriter, r *http.Request, code int, err error)
	Logger *slog.Logger
	// Now is the clock, time.Now by default.
	Now func() time.Time
}

// Gate decides who may read and who may act. Every program that answers by HTTP
// has one: All around its handlers, Change around those that change something.
// It is safe for concurrent use.
type Gate struct {
	o       Options
	origins *http.CrossOriginProtection
	reads   *clients
	changes *clients
	streams chan struct{} // streams of clients that are not authenticated
	queue   chan struct{} // an answer that takes long, to such a client
}

// New makes a Gate.
func New(o Options) *Gate {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Refuse == nil {
		o.Refuse = func(w http.ResponseWriter, _ *http.Request, code int, err error) { http.Error(w, err.Error(), code) }
	}
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.Refuse(w, r, http.StatusForbidden, errOtherSite)
	}))
	return &Gate{
		o: o, origins: origins,
		reads: newClients(requestsPerSecond, requestsBurst), changes: newClients(changesPerSecond, changesBurst),
		streams: make(chan struct{}, maxStreams), queue: make(chan struct{}, 1),
	}
}

// All is around every handler. It refuses every request once the web configuration no longer
// demands what it demanded at the start (503). Of clients that do not authenticate it refuses
// those that use a name that is not this machine's (421), and those that ask too often (429).
// Authenticated clients at the same address are not affected.
func (g *Gate) All(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := g.o.Web.Check(); {
		case err != nil:
			g.o.Logger.Error("nobody is let in", "err", err)
			g.o.Refuse(w, r, http.StatusServiceUnavailable, err)
		case Loopback(r.RemoteAddr) && !ownHost(r.Host, g.o.Hosts) && !g.Authenticated(r):
			g.o.Logger.Debug("refused a name that is not this machine's", "host", r.Host, "path", r.URL.Path)
			g.o.Refuse(w, r, http.StatusMisdirectedRequest, ErrHost)
		case !g.reads.allow(r.RemoteAddr, g.o.Now()) && !g.Authenticated(r):
			w.Header().Set("Retry-After", "1")
			g.o.Refuse(w, r, http.StatusTooManyRequests, errTooOften)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Change is around handlers that change something, within All. Only clients that may act
// pass, and no web page of another site. Beyond the rate the answer is 503, which
// Alertmanager repeats.
func (g *Gate) Change(next http.Handler) http.Handler {
	return g.May(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.changes.allow(r.RemoteAddr, g.o.Now()) {
			w.Header().Set("Retry-After", "1")
			g.o.Refuse(w, r, http.StatusServiceUnavailable, errTooOften)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// May lets the same clients pass as Change, however often they ask.
func (g *Gate) May(next http.Handler) http.Handler {
	next = g.origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := g.Check(r)
		switch {
		case errors.Is(err, ErrNotHere):
			g.o.Logger.Warn("refused a client that is not on this machine", "remote", r.RemoteAddr, "host", r.Host, "path", r.URL.Path)
			g.o.Refuse(w, r, http.StatusForbidden, err)
		case errors.Is(err, ErrDenied):
			challenge := "Bearer"
			if errors.Is(err, ErrWrongToken) {
				challenge += ` error="invalid_token"` // RFC 6750: it tells a wrong one from none
			}
			w.Header().Add("WWW-Authenticate", challenge)
			w.Header().Add("WWW-Authenticate", `Basic realm="laxity", charset="UTF-8"`)
			g.o.Refuse(w, r, http.StatusUnauthorized, err)
		case err != nil:
			g.o.Logger.Error("nobody is let in", "err", err)
			g.o.Refuse(w, r, http.StatusServiceUnavailable, errCannotCheck)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Streams is Stream for handlers that go on for ever with ?watch=1, and end without.
func (g *Gate) Streams(next http.Handler) http.Handler {
	stream := g.Stream(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			next.ServeHTTP(w, r)
			return
		}
		stream.ServeHTTP(w, r)
	})
}

// Stream is around handlers that go on for ever, within All: strangers have some of them,
// of all handlers together (503 beyond), so that they do not take up all connections.
func (g *Gate) Stream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.Authenticated(r) {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case g.streams <- struct{}{}:
			defer func() { <-g.streams }()
			next.ServeHTTP(w, r)
		default:
			g.o.Refuse(w, r, http.StatusServiceUnavailable, errTooMany)
		}
	})
}

// Queue is around handlers whose answers take long, within All: those to strangers are made one after
// another, of all handlers together, so that they leave room for others.
func (g *Gate) Queue(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.Authenticated(r) {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case g.queue <- struct{}{}:
			defer func() { <-g.queue }()
			next.ServeHTTP(w, r)
		case <-r.Context().Done(): // it does not wait any more
		}
	})
}

var errOtherSite = errors.New("a web page of another site asks for this")

var errCannotCheck = errors.New("who may act cannot be checked now; see this program's log")

// Check returns nil for a request that may act. Otherwise it returns ErrDenied, ErrNotHere,
// or why it cannot decide now.
func (g *Gate) Check(r *http.Request) error {
	if err := g.o.Web.Check(); err != nil {
		return err
	}
	switch {
	case g.o.Tokens != nil:
		return g.o.Tokens.Check(r)
	case g.o.Web.Demands().Everybody(): // the web server has asked
		return nil
	case !fromHere(r):
		return ErrNotHere
	default:
		return nil
	}
}

// Authenticated reports whether the client authenticated. Being on this machine is no
// authentication.
func (g *Gate) Authenticated(r *http.Request) bool {
	return (g.o.Tokens != nil || g.o.Web.Demands().Everybody()) && g.Check(r) == nil
}

// Who names the sender of a request that may act, for people.
func (g *Gate) Who(r *http.Request) string {
	switch name, _, ok := r.BasicAuth(); {
	case g.o.Tokens != nil: // what else a client says of itself is not checked
		return "token holder"
	case !g.o.Web.Demands().Everybody():
		return "local user"
	case ok:
		return name
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return "authenticated user"
}
