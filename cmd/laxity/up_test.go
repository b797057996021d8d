package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/daemon"
)

// free returns two addresses that nobody listens on now.
func free(t *testing.T) (exporter, actuator string) {
	t.Helper()
	all, err := daemon.FreeAddresses(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	return all[0], all[1]
}

// ups is a laxity up that runs, on a simulated GPU and without containers.
type ups struct {
	*testing.T
	exporter, actuator, token string
	printed                   []string // until it is ready
	stop                      func()
}

func startUp(t *testing.T, flags ...string) *ups {
	t.Helper()
	u := &ups{T: t}
	u.exporter, u.actuator = free(t)
	dir := t.TempDir()
	u.token = tokenFile(dir)
	cmd := exec.Command(os.Args[0], append([]string{"up", "--device=sim", "--sensor=device", "--hold=pause", "--memory-guard=off", "--swap=off", "--state-dir=" + dir, "--lock-dir=" + t.TempDir(),
		"--docker.host=unix://" + filepath.Join(dir, "none.sock"), "--web.listen-address=" + u.exporter, "--actuator.listen-address=" + u.actuator}, flags...)...)
	printed, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.stop = func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
	t.Cleanup(u.stop)
	lines := bufio.NewScanner(printed)
	for listening := 0; listening < 2; {
		if !lines.Scan() {
			t.Fatalf("it ended: %s", strings.Join(u.printed, "\n"))
		}
		u.printed = append(u.printed, lines.Text())
		if strings.Contains(lines.Text(), "Listening on") {
			listening++
		}
	}
	go func() {
		for lines.Scan() { // so that it is never kept from writing
		}
	}()
	return u
}

// ask returns the status of a request.
func (u *ups) ask(method, address, path, body, authorization string) int {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		u.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		u.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// Whoever is on this machine may look, and changes nothing without the token, which
// its owner alone can read.
func TestUpIsClosedToOthersOnThisMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("starts laxity up")
	}
	u := startUp(t)
	info, err := os.Stat(u.token)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("token file: %v, %v", info, err)
	}
	file, err := os.Open(u.token)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !isHeld(file) {
		t.Error("the token looks like that of a laxity up that was killed")
	}
	tokens, err := access.ReadTokens(u.token)
	if err != nil || len(tokens) != 1 || len(tokens[0]) < 64 {
		t.Fatal(tokens, err)
	}
	if printed := strings.Join(u.printed, "\n"); !strings.Contains(printed, u.token) || !strings.Contains(printed, "http://"+u.actuator+"/login") || strings.Contains(printed, tokens[0]) {
		t.Errorf("it says %q; want where the token is, and not the token", printed)
	}
	for _, c := range []struct {
		method, address, path, body string
		passed                      int // with the token
	}{
		{"POST", u.actuator, "/api/v1/alerts", `{"version":"4","alerts":[]}`, 200},
		{"POST", u.actuator, "/-/reload", "", 404},
		{"POST", u.actuator, "/actions/pause", "container=web", 409},
		{"GET", u.actuator, "/debug/pprof/cmdline", "", 200},
		{"POST", u.actuator, "/api/v1/placements", `{"dry_run":true}`, 0},
		{"PATCH", u.exporter, "/api/v1/containers/web", `{"share":"30%"}`, 404},
	} {
		for _, authorization := range []string{"", "Bearer 0123456789abcdef", "Basic bGF4aXR5Ondyb25n"} {
			if code := u.ask(c.method, c.address, c.path, c.body, authorization); code != http.StatusUnauthorized {
				t.Errorf("%s %s with %q: %d", c.method, c.path, authorization, code)
			}
		}
		if code := u.ask(c.method, c.address, c.path, c.body, "Bearer "+tokens[0]); code == http.StatusUnauthorized || c.passed != 0 && code != c.passed {
			t.Errorf("%s %s with the token: %d", c.method, c.path, code)
		}
	}
	for address, path := range map[string]string{u.exporter: "/api/v1/tasks", u.actuator: "/api/v1/state"} {
		if code := u.ask("GET", address, path, "", ""); code != http.StatusOK {
			t.Errorf("reading %s: %d", path, code)
		}
	}
	// The commands of its owner find the token; without it they say what to do.
	with := []string{"deadline", "web", "5s", "--exporter.url=http://" + u.exporter, "--token.file=" + u.token}
	if _, _, stderr := laxity(with...); !strings.Contains(stderr, "no such") && !strings.Contains(stderr, "unknown") {
		t.Errorf("deadline with the token: %q; want that there is no such container", stderr)
	}
	with[len(with)-1] = "--token.file=/nonexistent"
	if _, _, stderr := laxity(with...); !strings.Contains(stderr, "--token.file") {
		t.Errorf("deadline without the token: %q; want what to do", stderr)
	}
	u.stop()
	if _, err := os.Stat(u.token); !os.IsNotExist(err) {
		t.Errorf("the token outlives its run: %v", err)
	}
}

func TestUpListensOnThisMachineAlone(t *testing.T) {
	code, help, _ := laxity("up", "--help")
	if code != exitOK || !strings.Contains(help, "127.0.0.1:9870") || !strings.Contains(help, "127.0.0.1:9871") {
		t.Errorf("code %d; want both addresses to be this machine's: %s", code, help)
	}
}

// A zero is not the default: it is refused, before anything starts. So is a label without a key.
func TestUpRefusesWrongValues(t *testing.T) {
	for flag, why := range map[string]string{
		"--late=0": "late is 0", "--batch-floor=0": "batch-floor is 0", "--containers.label==x": "has no key",
	} {
		if code, _, stderr := laxity("up", flag, "--state-dir="+t.TempDir()); code != exitUsage || !strings.Contains(stderr, why) {
			t.Errorf("%s: %d, %s", flag, code, stderr)
		}
	}
}
