// Package sleeper builds the program that tests run in containers of their own.
//
// For tests only. It imports the standard library.
package sleeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is PID 1, so that it must not rely on default signals.
const program = `package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		return
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
}
`

// Build returns the path of a static binary that runs until it gets SIGTERM, or ends at once if it
// has an argument. It goes with the test.
func Build(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "sleep")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the test container's program: %v\n%s", err, out)
	}
	return binary
}
