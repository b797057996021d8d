package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/process"
)

func TestBegan(t *testing.T) {
	child := exec.Command("cat")
	stdin, err := child.StdinPipe() // it ends when this is closed
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	t.Cleanup(func() { _, _ = stdin.Close(), child.Wait() })
	const tick = 10 * time.Millisecond // the kernel's, which rounds down
	for asked := after; asked.Sub(after) < 5*tick; {
		asked = time.Now()
		began := process.Began("/proc", child.Process.Pid)
		interrupted := time.Since(asked) // maybe, between its readings of two clocks
		if began.Before(before.Add(-2*tick)) || began.After(after.Add(interrupted)) {
			t.Fatalf("it began %v, and was started between %v and %v", began, before, after)
		}
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	const rest = " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n"
	for stat, there := range map[string]bool{"7 (a) b) S" + rest: true, "7 (a) Z" + rest: false, "7 (a) X" + rest: false, "7 (a) S 1\n": false, "": false} {
		if err := os.WriteFile(filepath.Join(proc, "7", "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
		if began := process.Began(proc, 7); began.IsZero() == there {
			t.Errorf("%q: %v", stat, began)
		}
	}
	if !process.Began(proc, 8).IsZero() {
		t.Error("of no process")
	}
}
