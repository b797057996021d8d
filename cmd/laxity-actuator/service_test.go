package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/dockerproxy"
)

// proxyProcess is the subcommand docker-proxy as a process of its own.
type proxyProcess struct {
	socket string
	stop   func() (log string)
}

func startProxy(t *testing.T, binary, client, engine string) *proxyProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "laxity-test-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &proxyProcess{socket: filepath.Join(dir, "p.sock")}
	var log bytes.Buffer
	cmd := exec.Command(binary, "docker-proxy", "--for="+client, "--listen="+p.socket, "--docker.socket="+engine)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = sync.OnceValue(func() string {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("docker-proxy: %v\n%s", err, log.String())
		}
		return log.String()
	})
	t.Cleanup(func() { p.stop() })
	for deadline := time.Now().Add(awaitLimit); command([]string{"health", "unix://" + p.socket}) != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("docker-proxy does not answer: %s", log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return p
}

// The documentation lists what passes, word for word.
func TestListsAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../../actuator/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for client, calls := range dockerproxy.Clients {
		var lines []string
		for _, c := range calls {
			lines = append(lines, c.String())
		}
		if block := "```\n" + strings.Join(lines, "\n") + "\n```"; !strings.Contains(string(readme), block) {
			t.Errorf("actuator/README.md does not list the calls of the %s:\n%s", client, block)
		}
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	first, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i, err)
	}
	if _, err := listenUnix(t.Context(), path); err == nil {
		t.Error("took a socket from somebody who listens on it")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal("a socket that was left behind:", err)
	}
	defer again.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), file); err == nil {
		t.Error("took the place of a file")
	}
}

func TestHealth(t *testing.T) {
	code := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer s.Close()
	dir := t.TempDir()
	watched := "guardian:" + dir
	ask := func(want int, targets ...string) {
		t.Helper()
		args := append([]string{"health"}, targets...)
		got := command(args)
		for deadline := time.Now().Add(awaitLimit); want == 0 && got != want && time.Now().Before(deadline); {
			got = command(args) // a slow machine may exceed its limit
		}
		if got != want {
			t.Errorf("%v: %d, want %d", targets, got, want)
		}
	}
	ask(2)
	ask(0, s.URL)
	ask(1, s.URL, watched)
	lock, err := journal.TryLock(journal.GuardianLock(dir))
	if err != nil {
		t.Fatal(err)
	}
	ask(0, s.URL, watched)
	lock.Unlock()
	ask(1, watched)
	code = http.StatusServiceUnavailable
	ask(1, s.URL)
	ask(1, "unix://"+filepath.Join(dir, "nobody"))
	ask(1, "nonsense")
}

// A token is written once, is one that the actuator takes, and changes when asked.
func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(args ...string) string {
		t.Helper()
		if code := command(append([]string{"token", path}, args...)); code != 0 {
			t.Fatal(code)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	first := write("--mode=0440")
	if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o440 || len(first) != 64 {
		t.Errorf("%v %v %d", i, err, len(first))
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+first)
	if err := tokens.Check(req); err != nil {
		t.Error(err)
	}
	if again := write(); again != first {
		t.Error("a token that was there did not stay")
	}
	if second := write("--replace"); second == first {
		t.Error("the token was not replaced")
	}
	if err := tokens.Check(req); err == nil {
		t.Error("the old token counts still")
	}
	if code := command([]string{"token", path, "--mode=rw"}); code != 2 {
		t.Error(code)
	}
}
