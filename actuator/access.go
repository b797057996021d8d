package actuator

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/laxity/laxity/actuator/auth"
	"github.com/laxity/laxity/actuator/page"
)

// errNotHere means that a client is not on this machine where nobody has to
// authenticate.
var errNotHere = errors.New("only clients on this machine may do this without authentication; " +
	"start laxity-actuator with --web.bearer-token-file, or --web.config.file that sets basic_auth_users or client certificates")

// fromHere says why a request may change nothing where nobody has to
// authenticate; nil if it may. It must come from this machine, not through a
// proxy, and not from a web page whose name somebody made point to this machine
// (DNS rebinding).
func fromHere(r *http.Request) error {
	if !loopback(r.RemoteAddr) {
		return errNotHere
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(header) != "" {
			return errNotHere
		}
	}
	browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	if browser && !ownName(r.Host) {
		return errNotHere
	}
	return nil
}

// ownName reports whether an address (host or host:port) can only mean this
// machine.
func ownName(address string) bool {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.Trim(strings.ToLower(host), "[]")
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	name, err := os.Hostname()
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && host == strings.ToLower(name)
}

// access says what one who looks at the page may do.
func (a *Actuator) access(r *http.Request) page.Access {
	switch {
	case a.o.Tokens != nil:
		if a.o.Tokens.Check(r) == nil {
			return page.Access{May: true, Who: "somebody with a token"}
		}
		err := a.sessions.Check(r)
		if err != nil && !errors.Is(err, auth.ErrSignedOut) {
			a.log.Error("cannot check bearer tokens; nobody is let in", "err", err)
		}
		if err != nil {
			return page.Access{Login: true, Why: "To act, sign in with a token."}
		}
		return page.Access{May: true, Session: true, Who: "somebody with a token"}
	case a.o.AllowRemote:
		return page.Access{May: true, Who: identity(r)}
	}
	// A browser's GET tells less than its POST, which is checked again.
	if fromHere(r) != nil || !ownName(r.Host) {
		return page.Access{Why: "Only a browser on this machine, by the address localhost, may act without authentication."}
	}
	return page.Access{May: true, Who: "somebody on this machine"}
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
