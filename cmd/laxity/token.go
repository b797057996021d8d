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
	"syscall"

	"github.com/laxity/laxity/internal/access"
)

// tokenEnv names the token file where no flag does.
const tokenEnv = "LAXITY_TOKEN_FILE"

const tokenHelp = "File with the token: the one that laxity up writes at its start, or the --web.bearer-token-file of exporter and actuator. Default, by the address that is asked: the file token in the default --state-dir or in root's, of a laxity up that runs, or " + packageToken + " of the packages, which goes to its owner's programs at 127.0.0.1 alone unless this flag names it. The token of laxity up is sent to the addresses in the file and nowhere else."

// packageToken is where packages keep the token of exporter and actuator.
const packageToken = "/etc/laxity/webhook-token"

// tokenFile is where laxity up writes the token.
func tokenFile(stateDir string) string { return filepath.Join(stateDir, "token") }

// defaultTokenFiles are those that commands try where none is named. Members of --token.group may
// read root's.
func defaultTokenFiles() []string {
	return slices.Compact([]string{tokenFile(defaultStateDir()), tokenFile(rootStateDir), packageToken})
}

// tokenSource is where a command looks for a token: the first file with one for the address.
type tokenSource struct {
	paths []string
	// named: a person named the file, so its token may leave this machine.
	named bool
}

// tokenFrom returns the file that a person named, which must be there, else the defaults.
func tokenFrom(named string, defaults []string) (tokenSource, error) {
	if named == "" {
		return tokenSource{paths: defaults}, nil
	}
	f, err := os.Open(named)
	if err != nil {
		return tokenSource{}, fmt.Errorf("--token.file (%s): %w", tokenEnv, err)
	}
	return tokenSource{[]string{named}, true}, f.Close()
}

// tokenFor begins the line of a token file that names the addresses it is for.
const tokenFor = "for "

// writeToken makes a new token for these listen addresses, readable by its owner alone, or by
// a group too. Each start makes a new one: while we were away another program may have taken
// our port and received the old one. The token counts until the file is closed, at the latest by
// the end of the process: it is locked until then.
func writeToken(path, group string, addresses []string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := access.WriteToken(path, 0o600, "The token of a running laxity up.", tokenFor+strings.Join(addresses, " ")); err != nil {
		return nil, fmt.Errorf("write the token: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // before the group may open it, and could keep us waiting
	if err == nil && group != "" {
		err = share(f, group)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the token %s: %w", path, err), f.Close())
	}
	return f, nil
}

// share lets a group read a file.
func share(f *os.File, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("--token.group: %w", err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("--token.group: %w", err)
	}
	return errors.Join(f.Chown(-1, gid), f.Chmod(0o640))
}

// isHeld reports whether the laxity up that wrote the file runs. Where locks cannot be asked for, it may.
func isHeld(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
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
	if r.Header.Get("Authorization") != "" {
		return t.next.RoundTrip(r)
	}
	for _, path := range t.paths {
		// r.Response: an answer sent us on to there, and not the command.
		anywhere := r.Response == nil && (t.named || isLoopback(r.URL.Hostname()) && listens(path, r.URL.Port()))
		if token, ok := t.tokenIn(path, r.URL, anywhere); ok {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
			break
		}
	}
	return t.next.RoundTrip(r)
}

// tokenIn reads the token for an address. anywhere: it may have that of a file that names no address.
// A file that names some is of a laxity up; only where a person named it, it may be a copy.
func (t tokenSource) tokenIn(path string, to *url.URL, anywhere bool) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	may, token := anywhere, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch line := strings.TrimSpace(lines.Text()); {
		case strings.HasPrefix(line, "# "+tokenFor):
			addresses := strings.Fields(strings.TrimPrefix(line, "# "+tokenFor))
			may = (t.named || isHeld(f)) && slices.ContainsFunc(addresses, func(a string) bool { return means(to, a) })
		case line != "" && line[0] != '#':
			token = cmp.Or(token, line)
		}
	}
	return token, may && token != ""
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
