package gate_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// settled is a program in container a that the gate knows to be idle.
func settled(t *testing.T, r *rig, b cudatest.Built) *cudatest.Program {
	t.Helper()
	p := r.join(t, b, "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Finishing)
	return p
}

func quick(o *gate.Options) { o.Assume = 50 * time.Millisecond }

// A child of a process that has called cuInit is a process of its own.
func TestFork(t *testing.T) {
	r := start(t, quick)
	p := settled(t, r, cudatest.Build(t))
	child := p.Fork()
	r.members.Store(child, "a")
	p.Call("cuInit")
	r.await(t, "a", "two processes", func(v gate.View) bool { return len(v.PIDs) == 2 && v.Phase == plan.Preparing })
	r.gated(t, child, 1)
	called := p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
}

// A new program in the same process begins anew, also in the midst of its turn.
func TestExec(t *testing.T) {
	r := start(t, quick)
	p := settled(t, r, cudatest.Build(t))
	called := p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
	p.Exec()
	p.Call("cuInit")
	r.phase(t, "a", plan.Preparing)
	if err := r.Shut("a"); err != nil {
		t.Fatal(err)
	}
	r.gated(t, p.PID, 2)
	called = p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
}

// All processes of a container are held and let go together.
func TestTwoProcesses(t *testing.T) {
	r := start(t, quick)
	b := cudatest.Build(t)
	p := settled(t, r, b)
	q := r.join(t, b, "a")
	r.await(t, "a", "two processes", func(v gate.View) bool { return len(v.PIDs) == 2 })
	r.gated(t, q.PID, 1)
	first, second := p.Begin("cuLaunchKernel"), q.Begin("cuLaunchKernel")
	r.await(t, "a", "still", func(v gate.View) bool { return v.Still })
	r.admit(t, "a")
	first()
	second()
	p.Call("cuCtxSynchronize")
	if v := r.View()["a"]; v.Phase != plan.Computing || !v.Admitted {
		t.Errorf("one of them still computes: %+v", v)
	}
	q.Call("cuCtxSynchronize")
	if v := r.phase(t, "a", plan.Finishing); v.Admitted {
		t.Errorf("%+v", v)
	}
}

// A process with a tracer passes: the tracer would get the signal.
func TestTraced(t *testing.T) {
	r := start(t, quick)
	p := r.join(t, cudatest.Build(t), "a")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(p.PID); err != nil {
		t.Skip("cannot trace:", err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.PID, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := syscall.PtraceCont(p.PID, 0); err != nil {
		t.Fatal(err)
	}
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	v := r.await(t, "a", "an obstacle", func(v gate.View) bool { return v.Obstacle != "" })
	if !strings.Contains(v.Obstacle, "traced") {
		t.Errorf("%+v", v)
	}
	p.Call("cuLaunchKernel")
}

// A launch from a thread stops the others too.
func TestLaunchFromThread(t *testing.T) {
	r := start(t, quick)
	p := settled(t, r, cudatest.Build(t))
	called := p.BeginThread("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
}

// What cannot be seen yet does not count as not done: a process computes, as far
// as anybody knows, until its probes have been on it for a while.
func TestAssumedUntilItCanBeSeen(t *testing.T) {
	attached := make(chan struct{})
	r := start(t, func(o *gate.Options) {
		quick(o)
		o.Attached = func(int, time.Duration) { <-attached }
	})
	p := r.join(t, cudatest.Build(t), "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Computing)
	time.Sleep(200 * time.Millisecond) // four times what it would be given
	if v := r.View()["a"]; v.Phase != plan.Computing {
		t.Errorf("%+v before its launches can be seen", v)
	}
	close(attached)
	r.phase(t, "a", plan.Finishing)
}
