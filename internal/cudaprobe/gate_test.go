package cudaprobe_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// gated is a gate on the stand-in library, and its events.
type gated struct {
	*cudaprobe.Gate
	built  cudatest.Built
	events chan cudaprobe.Event
}

func newGate(t testing.TB, o cudaprobe.Options) *gated {
	t.Helper()
	name := cudatest.RecordName(t)
	g, err := cudaprobe.NewGate(cudaprobe.GateOptions{Options: o, Pins: name})
	if errors.Is(err, cudaprobe.ErrUnsupported) && errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Renew(time.Hour); err != nil {
		t.Fatal(err)
	}
	h := &gated{Gate: g, built: cudatest.Build(t), events: make(chan cudaprobe.Event, 1024)}
	go func() {
		defer close(h.events)
		for {
			e, err := g.Next()
			if err != nil {
				return
			}
			h.events <- e
		}
	}()
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), cudaprobe.RemoveRecord(cudaprobe.PinFolder(name))); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *gated) next(t testing.TB, p *cudatest.Program, kind cudaprobe.Kind) cudaprobe.Event {
	t.Helper()
	select {
	case e := <-h.events:
		if e.PID != p.PID || e.Kind != kind {
			t.Fatalf("got %+v, want kind %d of process %d", e, kind, p.PID)
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event came, want kind", kind)
	}
	return cudaprobe.Event{}
}

func letGo(t testing.TB, h *gated, p *cudatest.Program) {
	t.Helper()
	if err := h.Admit(p.PID); err != nil {
		t.Fatal(err)
	}
	signal(t, p, syscall.SIGCONT)
	if err := h.Forget(p.PID); err != nil {
		t.Fatal(err)
	}
}

func signal(t testing.TB, p *cudatest.Program, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID, s); err != nil {
		t.Fatal(err)
	}
}

// state is the letter in /proc/PID/stat.
func state(t testing.TB, pid int) string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "X"
	}
	s := string(data)
	return s[strings.LastIndex(s, ")")+2:][:1]
}

func awaitState(t testing.TB, pid int, want string) {
	t.Helper()
	for deadline := time.Now().Add(patience); state(t, pid) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is %s, want %s", pid, state(t, pid), want)
		}
	}
}

func open(t testing.TB, h *gated) *cudatest.Program {
	t.Helper()
	p := h.built.Start(t)
	p.Open()
	if err := h.Gate.Gate(p.PID, false); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGateHoldsAndLetsGo(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			h := newGate(t, o)
			p := open(t, h)
			p.Call("cuCtxSynchronize")
			for range 3 {
				called := p.Begin("cuLaunchKernel")
				e := h.next(t, p, cudaprobe.Held)
				awaitState(t, p.PID, "T")
				list, err := h.List()
				if err != nil || len(list) != 1 || list[0].PID != p.PID || list[0].Start != e.Start || e.Start == 0 {
					t.Fatalf("on record: %+v, %v", list, err)
				}
				letGo(t, h, p)
				called()
				p.Call("cuLaunchKernel") // admitted: it passes
				p.Call("cuCtxSynchronize")
				h.next(t, p, cudaprobe.Done)
				if busy, err := h.Shut(p.PID); busy || err != nil {
					t.Fatal(busy, err)
				}
			}
			h.Drop(p.PID)
			p.Call("cuLaunchKernel")
		})
	}
}

// Of a process whose probes are still being put on, nothing is under way.
func TestShutBeforeTheProbesAreOn(t *testing.T) {
	h := newGate(t, cudaprobe.Options{})
	pid := os.Getpid()
	if err := h.Admit(pid); err != nil {
		t.Fatal(err)
	}
	if busy, err := h.Shut(pid); busy || err != nil {
		t.Error(busy, err)
	}
	if begun, done, err := h.Launches(pid); begun != 0 || done != 0 || err != nil {
		t.Error(begun, done, err)
	}
}

// A tenant's own SIGCONT does not open the gate, and not one launch slips.
func TestForeignContinueDoesNotOpen(t *testing.T) {
	h := newGate(t, cudaprobe.Options{})
	if err := h.Weakness(); err != nil {
		t.Skip(err)
	}
	p := open(t, h)
	called := p.Begin("cuLaunchKernel")
	h.next(t, p, cudaprobe.Held)
	awaitState(t, p.PID, "T")
	for range 1000 {
		signal(t, p, syscall.SIGCONT)
		h.next(t, p, cudaprobe.Continued)
		awaitState(t, p.PID, "T")
	}
	admitted := time.Now()
	letGo(t, h, p)
	if c := called(); c.After.Before(admitted) {
		t.Errorf("the launch ended at %v, before its admission at %v", c.After, admitted)
	}
}

func TestOpenRecordLetsAllPass(t *testing.T) {
	h := newGate(t, cudaprobe.Options{})
	p, q := open(t, h), open(t, h)
	called := p.Begin("cuGraphLaunch")
	h.next(t, p, cudaprobe.Held)
	if err := h.Open(); err != nil {
		t.Fatal(err)
	}
	q.Call("cuLaunchKernelEx")
	awaitState(t, p.PID, "T")
	signal(t, p, syscall.SIGCONT)
	called()
}

func TestHeldProcessAskedToEnd(t *testing.T) {
	h := newGate(t, cudaprobe.Options{})
	p := open(t, h)
	p.Begin("cuLaunchKernel")
	h.next(t, p, cudaprobe.Held)
	signal(t, p, syscall.SIGTERM)
	h.next(t, p, cudaprobe.AskedToEnd)
	letGo(t, h, p)
	awaitState(t, p.PID, "Z")
}

// Who is kept back stops before its context, not at its launches' expense: let go from
// there it stops at its launch as ever.
func TestGateHoldsBack(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			h := newGate(t, o)
			p := open(t, h)
			p.Call("cuCtxCreate_v2") // nobody keeps it back
			for range 3 {
				if err := h.Back(p.PID); err != nil {
					t.Fatal(err)
				}
				called := p.Begin("cuCtxCreate_v2")
				h.next(t, p, cudaprobe.HeldBack)
				awaitState(t, p.PID, "T")
				if list, err := h.List(); err != nil || len(list) != 1 || list[0].PID != p.PID {
					t.Fatalf("on record: %+v, %v", list, err)
				}
				if err := h.Weakness(); err == nil {
					signal(t, p, syscall.SIGCONT) // a tenant's own
					h.next(t, p, cudaprobe.Continued)
					awaitState(t, p.PID, "T")
				}
				if err := h.Forth(p.PID); err != nil {
					t.Fatal(err)
				}
				letGo(t, h, p)
				called()
				h.Reset(p.PID)
			}
			called := p.Begin("cuLaunchKernel")
			h.next(t, p, cudaprobe.Held)
			letGo(t, h, p)
			called()
			if err := h.Open(); err != nil {
				t.Fatal(err)
			}
			if err := h.Back(p.PID); err != nil {
				t.Fatal(err)
			}
			p.Call("cuCtxCreate_v2") // the gate is open
		})
	}
}

func TestThreadsStopTogether(t *testing.T) {
	h := newGate(t, cudaprobe.Options{})
	p := open(t, h)
	called := p.BeginThread("cuLaunchKernel")
	h.next(t, p, cudaprobe.Held)
	awaitState(t, p.PID, "T")
	letGo(t, h, p)
	called()
}
