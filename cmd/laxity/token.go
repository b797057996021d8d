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
	"slices"
	"strconv"
	"strings"

	"github.com/laxity/laxity/internal/access"
)

// tokenEnv names the token file where no flag does.
const tokenEnv = "LAXITY_TOKEN_FILE"

const tokenHelp = "File with the token: the one that laxity up writes at its start, or the --web.bearer-token-file of exporter and actuator. Default: the first that can be read of the file token in the default --state-dir, root's, and " + packageToken + " of the packages, which goes to its owner's programs on this machine alone. The token of laxity up is sent to the addresses in the file and nowhere else."

// packageToken is where packages keep the token of exporter and actuator.
const packageToken = "/etc/laxity/webhook-token"

// tokenFile is where laxity up writes the token.
func tokenFile(stateDir string) string { return filepath.Join(stateDir, "token") }

// defaultTokenFiles are those that commands try where none is named. Members of --token.group may
// read root's.
func defaultTokenFiles() []string {
	return slices.Compact([]string{tokenFile(defaultStateDir()), tokenFile(rootStateDir), packageToken})
}

// tokenSource is the file from which a command has its token; none if path is empty.
type tokenSource struct {
	path string
	// named: a person named it, so its token may leave this machine.
	named bool
}

// tokenFrom returns the file that a person named, else the first default that can be read.
func tokenFrom(named string, defaults []string) (tokenSource, error) {
	if named != "" {
		f, err := os.Open(named)
		if err != nil {
			return tokenSource{}, fmt.Errorf("--token.file (%s): %w", tokenEnv, err)
		}
		return tokenSource{named, true}, f.Close()
	}
	for _, path := range defaults {
		if f, err := os.Open(path); err == nil {
			return tokenSource{path: path}, f.Close()
		}
	}
	return tokenSource{}, nil
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
	tokenSource
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Without a token the request goes as it is, and the
// server refuses it if it needs one.
func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	// r.Response: an answer sent us on to there, and not the command.
	anywhere := r.Response == nil && (t.named || isLoopback(r.URL.Hostname()) && listens(t.path, r.URL.Port()))
	if token, ok := tokenOf(t.path, r.URL, anywhere); ok && r.Header.Get("Authorization") == "" {
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
	ip := net.ParseIP(host)
	return isLoopback(asked) && (host == "" || isLoopback(host) || ip != nil && ip.IsUnspecified())
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
