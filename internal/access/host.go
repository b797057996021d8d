package access

import (
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// Errors for refused clients where no client has to authenticate.
var (
	ErrNotHere = errors.New("only clients on this machine, not through a proxy, may do this without authentication; " +
		"start this program with --web.bearer-token-file, or --web.config.file that sets basic_auth_users or client certificates")
	ErrHost = errors.New("this name of the machine is not known here: ask by localhost, an IP address or the host name, or name it by --web.allowed-host")
)

// Loopback reports whether the peer is this machine. A unix socket's is empty
// or @.
func Loopback(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote == "" || remote == "@"
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// proxied reports whether a request has headers of a proxy. Then its peer is the proxy, and
// the client is unknown.
func proxied(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(proxyHeaders, name) {
			return true
		}
	}
	return false
}

// proxyHeaders are those of proxies besides X-Forwarded-…, in canonical form.
var proxyHeaders = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}

// fromHere reports whether a request comes from this machine, not through a proxy.
func fromHere(r *http.Request) bool { return Loopback(r.RemoteAddr) && !proxied(r.Header) }

// ownHost reports whether the address (host or host:port) that a client asked for
// is this machine's: a web page whose name somebody made point here (DNS
// rebinding) asks for its own name. No name but only a number can be rebound.
func ownHost(address string, known []string) bool {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "" || net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	name, err := os.Hostname()
	return err == nil && host == strings.ToLower(name) ||
		slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, host) })
}
