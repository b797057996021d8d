package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/internal/access"
)

// tokenEnv names the token file for commands that have no flag for it.
const tokenEnv = "LAXITY_TOKEN_FILE"

const tokenHelp = "File with the token: the one that laxity up writes at its start, by default the file token in its --state-dir, or the --web.bearer-token-file of exporter and actuator (a package's: /etc/laxity/webhook-token). The token of laxity up is sent to the addresses in the file and nowhere else."

// tokenFile is where laxity up writes the token.
func tokenFile(stateDir string) string { return filepath.Join(stateDir, "token") }

// defaultTokenFile is what commands read.
func defaultTokenFile() string {
	return cmp.Or(os.Getenv(tokenEnv), tokenFile(defaultStateDir()))
}

// tokenFor begins the line of a token file that names the addresses it is for.
const tokenFor = "for "

// writeToken makes a new token for these listen addresses, readable by its owner alone, or by
// a group too. Each start makes a new one: while we were away another program may have taken
// our port and received the old one.
func writeToken(path, group string, addresses []string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := access.WriteToken(path, 0o600, "The token of a running laxity up.", tokenFor+strings.Join(addresses, " ")); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	if group == "" {
		return nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("--token.group: %w", err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("--token.group: %w", err)
	}
	return errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o640))
}

// removeToken removes a token that is no longer valid.
func removeToken(path string, log *slog.Logger) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the token of this run could not be removed", "err", err)
	}
}

// withToken adds the token of a file to requests: to the addresses in that file, or to what the command
// asks if it names none.
type withToken struct {
	path string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Without a token the request goes as it is, and the
// server refuses it if it needs one.
func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	// r.Response: an answer sent us on to there, and not the command.
	if token, ok := tokenOf(t.path, r.URL, r.Response == nil); ok && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return t.next.RoundTrip(r)
}

// tokenOf reads the token for an address. anywhere: it may have that of a file that names no address.
func tokenOf(path string, to *url.URL, anywhere bool) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	meant, token := false, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch line := strings.TrimSpace(lines.Text()); {
		case strings.HasPrefix(line, "# "+tokenFor):
			anywhere = false
			for _, address := range strings.Fields(strings.TrimPrefix(line, "# "+tokenFor)) {
				meant = meant || means(to, address)
			}
		case line != "" && line[0] != '#':
			token = cmp.Or(token, line)
		}
	}
	return token, (meant || anywhere) && token != ""
}

// means reports whether a URL is this listen address of this machine.
func means(to *url.URL, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || to.Port() != port {
		return false
	}
	asked := to.Hostname()
	if asked == host {
		return true
	}
	local := func(name string) bool {
		ip := net.ParseIP(name)
		return name == "localhost" || ip != nil && ip.IsLoopback()
	}
	ip := net.ParseIP(host)
	return local(asked) && (host == "" || local(host) || ip != nil && ip.IsUnspecified())
}
