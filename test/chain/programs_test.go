package chain

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/internal/needtest"
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
	needtest.Prometheus.Skipf(t, "%s is not installed (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager): the real chain was not tested", names[0])
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

// start runs a program, until the test ends, and waits until it is ready. What it
// said is shown if the test failed.
func start(t *testing.T, address, path string, args ...string) {
	t.Helper()
	// In a folder of its own, where Prometheus would leave files behind.
	d, err := daemon.Start(context.WithoutCancel(t.Context()), t.TempDir(), address, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(path), d.Said())
		}
	})
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
