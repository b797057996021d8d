package actuator

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/internal/access"
)

// openAccess makes the guard, and where there are tokens the sessions of people.
func (a *Actuator) openAccess() {
	o := a.o.Access
	o.Logger, o.Now = a.log, a.o.Now
	o.Refuse = func(w http.ResponseWriter, r *http.Request, code int, err error) {
		if r.URL.Path == "/api/v1/alerts" {
			a.metrics.Webhooks.WithLabelValues(strconv.Itoa(code)).Inc()
		}
		http.Error(w, err.Error(), code)
	}
	a.access = access.New(o)
	if o.Tokens != nil {
		a.sessions = access.NewSessions(o.Tokens, a.o.Now)
	}
}

// pageAccess says what one who looks at the page may do.
func (a *Actuator) pageAccess(r *http.Request) page.Access {
	err := a.access.Check(r)
	switch {
	case err == nil && a.o.Access.Tokens != nil:
		return page.Access{May: true, Who: "somebody with a token"}
	case err == nil && a.access.Authenticated(r):
		return page.Access{May: true, Who: identity(r)}
	case err == nil:
		return page.Access{May: true, Who: "somebody on this machine"}
	case errors.Is(err, access.ErrDenied):
		return a.session(r)
	case errors.Is(err, access.ErrNotHere):
		return page.Access{Why: "Only a browser on this machine, by the address localhost, may act without authentication."}
	default:
		a.log.Error("nobody is let in", "err", err)
		return page.Access{Login: a.sessions != nil, Why: "Who may act cannot be checked now; see the actuator's log."}
	}
}

// session says what one may do who brings no token.
func (a *Actuator) session(r *http.Request) page.Access {
	err := a.sessions.Check(r)
	if err != nil && !errors.Is(err, access.ErrSignedOut) {
		a.log.Error("cannot check bearer tokens; nobody is let in", "err", err)
	}
	if err != nil {
		return page.Access{Login: true, Why: "To act, sign in with a token."}
	}
	return page.Access{May: true, Session: true, Who: "somebody with a token"}
}

// identity is who the web server has authenticated.
func identity(r *http.Request) string {
	if name, _, ok := r.BasicAuth(); ok {
		return name
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return "somebody who authenticated"
}
