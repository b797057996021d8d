package cudaprobe_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// The end is told of who made any call that was told, whatever came after it, and of
// who was named; of nobody else, and once.
func TestExiting(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	if !h.Stats().Exits {
		t.Fatal("Exiting is not told")
	}
	for _, tt := range []struct {
		name  string
		begin func(p *cudatest.Program)
		told  bool
	}{
		{"called cuInit", func(p *cudatest.Program) {
			h.expect(t, p, cudaprobe.InitCalled, p.CallInThread("cuInit"))
		}, true},
		{"made a context", func(p *cudatest.Program) {
			h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
		}, true},
		{"destroyed one of two contexts", func(p *cudatest.Program) {
			h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
			p.Call("cuCtxCreate_v2")
			p.CallFor("cuStreamSynchronize", 20*time.Millisecond) // some time passes
			c := p.Call("cuCtxDestroy_v2")
			h.expect(t, p, cudaprobe.Leaving, c)
			h.expect(t, p, cudaprobe.Left, c)
		}, true},
		{"runs another program", func(p *cudatest.Program) {
			h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
			p.Exec()
		}, true},
		{"was named", func(p *cudatest.Program) {
			for range 2 {
				if err := h.Know(p.PID); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"was named and calls", func(p *cudatest.Program) {
			if err := h.Know(p.PID); err != nil {
				t.Fatal(err)
			}
			h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
		}, true},
		{"did neither", func(*cudatest.Program) {}, false},
	} {
		t.Log(tt.name)
		p := h.built.Start(t)
		p.Open()
		tt.begin(p)
		p.Hold("cuStreamSynchronize") // a second thread, which dies with the process
		begun := time.Now()
		end(t, p.PID)
		if tt.told {
			e := h.expect(t, p, cudaprobe.Exiting, cudatest.Called{Before: begun, After: time.Now()})
			if e.Start <= 0 {
				t.Errorf("nothing says whose end it is: %+v", e)
			}
		}
		h.none(t)
	}
}

// end kills a process, and returns when it has ended.
func end(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); n != 1 {
		t.Fatalf("process %d does not end: %v", pid, err)
	}
}

func TestKnowAfterClose(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Know(os.Getpid()); !errors.Is(err, cudaprobe.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestLeavingAContext(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
	p.CallFor("cuStreamSynchronize", 20*time.Millisecond) // some time passes
	c := p.Call("cuCtxDestroy_v2")
	from := h.expect(t, p, cudaprobe.Leaving, c)
	to := h.expect(t, p, cudaprobe.Left, c)
	if !to.Time.After(from.Time) {
		t.Errorf("left at %v, before it began to leave at %v", to.Time, from.Time)
	}
	h.none(t)
}

// A thread that ends alone is no end of the process.
func TestExitOfAThreadIsNotTold(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	for range 20 {
		p.CallInThread("cuLaunchKernel") // the thread ends after the call
	}
	h.none(t)
}
