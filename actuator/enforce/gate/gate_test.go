package gate_test

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const patience = 30 * time.Second

// rig is a gate that runs.
type rig struct {
	*gate.Gate
	members  probetest.Members
	attached sync.Map // PID → how often it got its probes
	name     string
}

func start(t testing.TB, change func(*gate.Options)) *rig {
	t.Helper()
	r := &rig{name: cudatest.RecordName(t)}
	attached := func(pid int, _ time.Duration) {
		n, _ := r.attached.LoadOrStore(pid, 0)
		r.attached.Store(pid, n.(int)+1)
	}
	o := gate.Options{Attached: attached, Name: r.name, Container: r.members.Of, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&o)
	}
	var err error
	r.Gate, err = gate.New(o)
	probetest.Run(t, r.Gate, err, func() error { return cudaprobe.RemoveRecord(cudaprobe.PinFolder(r.name)) })
	return r
}

// await waits until the view of a container is as it should be.
func (r *rig) await(t testing.TB, id, what string, ok func(gate.View) bool) gate.View {
	t.Helper()
	deadline := time.After(patience)
	for {
		v := r.View()[id]
		if ok(v) {
			return v
		}
		select {
		case <-r.Changed():
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("container %s is %+v, want %s", id, v, what)
		}
	}
}

func (r *rig) phase(t testing.TB, id string, want plan.Phase) gate.View {
	t.Helper()
	return r.await(t, id, string(want), func(v gate.View) bool { return v.Phase == want })
}

func (r *rig) admit(t testing.TB, id string) {
	t.Helper()
	if err := r.Admit(id); err != nil {
		t.Fatal(err)
	}
}

// join starts a program in a container and lets it call cuInit.
func (r *rig) join(t testing.TB, b cudatest.Built, id string) *cudatest.Program {
	t.Helper()
	p := b.Start(t)
	r.members.Store(p.PID, id)
	p.Call("cuInit")
	return p
}

// A container's whole way through the gate.
func TestTurn(t *testing.T) {
	r := start(t, nil)
	b := cudatest.Build(t)
	p := r.join(t, b, "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.await(t, "a", "computing or finishing", func(v gate.View) bool { return v.Phase != "" })
	r.phase(t, "a", plan.Finishing) // nothing was seen of it
	for range 3 {
		called := p.Begin("cuLaunchKernel")
		if v := r.phase(t, "a", plan.Waiting); v.Admitted || len(v.PIDs) != 1 {
			t.Errorf("%+v", v)
		}
		r.admit(t, "a")
		called()
		r.phase(t, "a", plan.Computing)
		p.Call("cuLaunchKernel") // it keeps its turn
		p.Call("cuCtxSynchronize")
		if v := r.phase(t, "a", plan.Finishing); v.Admitted {
			t.Errorf("its turn is not over: %+v", v)
		}
	}
	called := p.Begin("cuGraphLaunch")
	r.phase(t, "a", plan.Waiting)
	r.Arbitrate(nil) // nobody is arbitrated any more
	called()
	p.Call("cuLaunchKernel")
}

// One that calls cuInit later is found by the probe, and is known to have
// launched nothing.
func TestNewProcess(t *testing.T) {
	r := start(t, nil)
	b := cudatest.Build(t)
	first := r.join(t, b, "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: first.PID}, {ID: "b", PID: first.PID}})
	r.await(t, "a", "seen", func(v gate.View) bool { return v.Phase != "" })
	p := r.join(t, b, "b")
	r.phase(t, "b", plan.Preparing)
	r.gated(t, p.PID, 1)
	p.Begin("cuLaunchKernel")
	r.phase(t, "b", plan.Waiting)
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await(t, "b", "without processes", func(v gate.View) bool { return len(v.PIDs) == 0 && v.Phase == plan.Finishing })
}

// gated waits until the probes are on a process as often as it was adopted.
func (r *rig) gated(t testing.TB, pid, times int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n, _ := r.attached.Load(pid)
		if n == times {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d got its probes %v times", pid, n)
		}
	}
}

// A loop of launches and synchronising calls is one turn.
func TestLoopKeepsItsTurn(t *testing.T) {
	const linger = time.Second // longer than a busy machine takes from one call to the next
	r := start(t, func(o *gate.Options) { o.Linger = linger })
	b := cudatest.Build(t)
	p := r.join(t, b, "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Finishing)
	called := p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
	for begun := time.Now(); time.Since(begun) < 2*linger; {
		p.Call("cuCtxSynchronize")
		p.Call("cuLaunchKernel")
	}
	if v := r.View()["a"]; v.Phase != plan.Computing || !v.Admitted {
		t.Errorf("%+v", v)
	}
}

// A stop by the kernel that comes only after our SIGCONT is undone; one that comes
// much later is somebody else's, and stays.
func TestAStopThatComesLate(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, cudatest.Build(t), "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Finishing)
	called := p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	r.admit(t, "a")
	called()
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Call("cuCtxSynchronize") // it answers
	time.Sleep(1200 * time.Millisecond)
	if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat"); err != nil || !strings.Contains(string(stat), ") T ") {
		t.Errorf("it runs again: %s %v", stat, err)
	}
	if err := syscall.Kill(p.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestAskedToEndWhileHeld(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, cudatest.Build(t), "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Finishing)
	p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.await(t, "a", "without processes", func(v gate.View) bool { return len(v.PIDs) == 0 })
}

// A gate that nobody renews is open, and LetGo continues whom it had stopped.
func TestLeaseRunsOut(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, cudatest.Build(t), "a")
	r.Arbitrate([]gate.Target{{ID: "a", PID: p.PID}})
	r.phase(t, "a", plan.Finishing)
	called := p.Begin("cuLaunchKernel")
	r.phase(t, "a", plan.Waiting)
	o := gate.LetGoOptions{Name: r.name, IfExpired: true}
	if n, err := gate.LetGo(t.Context(), o); n != 0 || err != nil {
		t.Fatalf("let %d go before the end of the lease: %v", n, err)
	}
	if err := r.Renew(0); err != nil {
		t.Fatal(err)
	}
	if n, err := gate.LetGo(t.Context(), o); n != 1 || err != nil {
		t.Fatalf("let %d go: %v", n, err)
	}
	called()
	p.Call("cuCtxSynchronize")
	p.Call("cuLaunchKernel")
}
