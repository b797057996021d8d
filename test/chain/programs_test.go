package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for an event before it gives up. No test
// passes by waiting so long.
const patience = 60 * time.Second

// program returns the path of the first of the names that is installed.
func program(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager): the real chain was not tested", names[0])
	return ""
}

// buildPrograms compiles the daemons of this checkout.
func buildPrograms(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "../../cmd/laxity-exporter", "../../cmd/laxity-actuator").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// freePorts returns addresses on which nobody listens now.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at once, so that they differ
		addresses[i] = l.Addr().String()
	}
	return addresses
}

// log collects a program's output for when the test fails.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// daemon is a program that runs until the test ends or stops it.
type daemon struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done
}

// start runs a program. At the end of the test it gets a SIGTERM, and its output
// is shown if the test failed.
func start(t *testing.T, path string, args ...string) *daemon {
	t.Helper()
	d := &daemon{name: filepath.Base(path), cmd: exec.Command(path, args...), done: make(chan struct{})}
	output := &log{}
	d.cmd.Stdout, d.cmd.Stderr = output, output
	d.cmd.Dir = t.TempDir() // where Prometheus would leave files behind
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", d.name, output)
		}
	})
	return d
}

// stop ends the program by SIGTERM, and by force if it does not obey.
func (d *daemon) stop() error {
	select {
	case <-d.done:
		return d.err
	default:
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.done:
		return d.err
	case <-time.After(20 * time.Second):
		return errors.Join(errors.New("does not end on SIGTERM"), d.cmd.Process.Kill())
	}
}

// ready waits until the program answers 200 at its readiness URL.
func (d *daemon) ready(t *testing.T, address string) *daemon {
	t.Helper()
	until(t, d.name+" is ready", func(ctx context.Context) error {
		select {
		case <-d.done:
			t.Fatalf("%s ended: %v", d.name, d.err)
		default:
		}
		return get(ctx, "http://"+address+"/-/ready")
	})
	return d
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

// until asks again until there is no error, and fails the test with the last one.
func until(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
	}
}

// configure copies a file of compose/ with other ports and paths. Each thing to
// replace must be there, or the test would run with something else than it says.
func configure(t *testing.T, dir, name string, replace map[string]string) (path string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../compose", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for from, to := range replace {
		if !strings.Contains(text, from) {
			t.Fatalf("compose/%s does not say %q", name, from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	path = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
