package stop

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
)

// sleeper starts a process that does nothing, and returns a hold of it.
func sleeper(t *testing.T) (*exec.Cmd, Hold) {
	t.Helper()
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(c) })
	s, ok := proc.ReadStat("/proc", c.Process.Pid)
	if !ok {
		t.Fatal("it cannot be read when the process started")
	}
	return c, Hold{PID: c.Process.Pid, TID: c.Process.Pid, Start: time.Duration(s.Start) * 10 * time.Millisecond}
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

func opened(t *testing.T, h Hold) *Process {
	t.Helper()
	p, err := openProcess("/proc", h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close() })
	return p
}

// await looks until what is seen is as it should be.
func await(t *testing.T, p *Process, what string, right func(Seen) bool) {
	t.Helper()
	var seen Seen
	for range 2000 {
		var err error
		if seen, err = p.Inspect(); err != nil {
			t.Fatal(err)
		}
		if right(seen) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: seen is %+v", what, seen)
}

func TestSecondStopIsPendingAndContinueThrowsItAway(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	await(t, p, "it sleeps", func(s Seen) bool { return s == Seen{} })
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "it is stopped", func(s Seen) bool { return s == Seen{Stopped: true} })
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "a second SIGSTOP waits", func(s Seen) bool { return s == Seen{Stopped: true, StopPending: true} })
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, p, "it goes on", func(s Seen) bool { return s == Seen{} })
}

func TestStoppedProcessThatIsAskedToEnd(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "it is stopped", func(s Seen) bool { return s == Seen{Stopped: true} })
	_ = c.Process.Signal(unix.SIGTERM)
	await(t, p, "it is asked to end", func(s Seen) bool { return s == Seen{Stopped: true, EndPending: true} })
}

func TestProcessThatHasEndedNeedsNothing(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	end(c)
	if _, err := p.Inspect(); !errors.Is(err, errGone) {
		t.Errorf("look: %v", err)
	}
	if err := p.Continue(); err != nil {
		t.Errorf("continue: %v", err)
	}
	if _, err := openProcess("/proc", h); !errors.Is(err, errGone) {
		t.Errorf("open: %v", err)
	}
}

func TestOtherProcessWithThePIDIsNotOpened(t *testing.T) {
	_, h := sleeper(t)
	h.Start -= time.Second
	if _, err := openProcess("/proc", h); !errors.Is(err, errGone) {
		t.Errorf("open: %v", err)
	}
}

// A hold would be forgotten whose process stands.
func TestProcessThatCannotBeReadHasNotEnded(t *testing.T) {
	_, h := sleeper(t)
	if _, err := openProcess(filepath.Join(t.TempDir(), "proc"), h); err == nil || errors.Is(err, errGone) {
		t.Errorf("open: %v", err)
	}
}
