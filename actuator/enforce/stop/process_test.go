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

// await reads until threads and signals are as they should be.
func await(t *testing.T, p *Process, what string, threads Threads, signals Pending) {
	t.Helper()
	var gotThreads Threads
	var gotSignals Pending
	for range 6000 {
		var errThreads, errSignals error
		gotThreads, errThreads = p.Threads()
		gotSignals, errSignals = p.Pending()
		if err := errors.Join(errThreads, errSignals); err != nil {
			t.Fatal(err)
		}
		if gotThreads == threads && gotSignals == signals {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: it reads %+v and %+v", what, gotThreads, gotSignals)
}

func TestSecondStopIsPendingAndContinueThrowsItAway(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	await(t, p, "it sleeps", Threads{}, Pending{})
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "it is stopped", Threads{Stopped: true}, Pending{})
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "a second SIGSTOP waits", Threads{Stopped: true}, Pending{Stop: true})
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, p, "it goes on", Threads{}, Pending{})
}

func TestThreadThatRuns(t *testing.T) {
	c := exec.Command("sh", "-c", "while :; do :; done")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(c) })
	p := opened(t, Hold{PID: c.Process.Pid})
	await(t, p, "it runs", Threads{Running: true}, Pending{})
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "it is stopped", Threads{Stopped: true}, Pending{})
}

func TestStoppedProcessThatIsAskedToEnd(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	_ = c.Process.Signal(unix.SIGSTOP)
	await(t, p, "it is stopped", Threads{Stopped: true}, Pending{})
	_ = c.Process.Signal(unix.SIGTERM)
	await(t, p, "it is asked to end", Threads{Stopped: true}, Pending{End: true})
}

func TestProcessThatHasEndedNeedsNothing(t *testing.T) {
	c, h := sleeper(t)
	p := opened(t, h)
	end(c)
	if _, err := p.Threads(); !errors.Is(err, errGone) {
		t.Errorf("read the threads: %v", err)
	}
	if _, err := p.Pending(); !errors.Is(err, errGone) {
		t.Errorf("read the signals: %v", err)
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
