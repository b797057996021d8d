package memory_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const (
	patience = 30 * time.Second
	mib      = 1 << 20
	gpu      = "GPU-1"
)

// clock is as far ahead of time.Now as it was set, or of a time at which it stands still.
type clock struct {
	still time.Time // zero: it runs
	ahead atomic.Int64
}

func (c *clock) Now() time.Time {
	now := c.still
	if now.IsZero() {
		now = time.Now()
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

func (c *clock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// rig is a guard that runs, on the stand-in's memory.
type rig struct {
	*memory.Guard
	built   cudatest.Built
	members probetest.Members
	name    string
	failed  chan string
	hidden  atomic.Bool // the device lists nobody yet
	broken  atomic.Bool // it cannot be read
	hang    atomic.Pointer[hang]
}

// hang makes the driver hang.
type hang struct {
	begun chan struct{} // gets a token from each reading that hangs
	ended chan struct{}
}

// hangs makes the driver hang until release, and waits until a reading does.
func (r *rig) hangs(t testing.TB) (release func()) {
	t.Helper()
	h := &hang{make(chan struct{}, 100), make(chan struct{})}
	r.hang.Store(h)
	release = sync.OnceFunc(func() { r.hang.Store(nil); close(h.ended) })
	t.Cleanup(release)
	<-h.begun
	return release
}

func start(t testing.TB, change func(*memory.Options)) *rig {
	t.Helper()
	r := &rig{
		built: cudatest.Build(t), failed: make(chan string, 100),
		name: cudatest.RecordName(t),
	}
	o := memory.Options{
		Name: r.name, Container: r.members.Of, Usage: r.usage, Decider: memory.Limit{}, Context: cudatest.ContextSize,
		Failed: func(_, why string) { r.failed <- why },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&o)
	}
	var err error
	r.Guard, err = memory.New(o)
	if err == nil {
		neverHangs(r.Guard)
	}
	probetest.Run(t, r.Guard, err, func() error { return stop.Remove(r.name) })
	return r
}

// neverHangs lets a guard wait for its driver and for files as long as they take, on a machine that stalls.
func neverHangs(g *memory.Guard) {
	g.SetUsageLimit(time.Hour)
	g.SetFileLimit(time.Hour)
}

func (r *rig) usage(context.Context) (map[string]task.Usage, error) {
	if h := r.hang.Load(); h != nil {
		h.begun <- struct{}{}
		<-h.ended // whatever the context says
	}
	if r.broken.Load() {
		return nil, errors.New("the driver is busy")
	}
	if r.hidden.Load() {
		return map[string]task.Usage{gpu: {}}, nil
	}
	held, err := r.built.Usage()
	return map[string]task.Usage{gpu: {Processes: held}}, err
}

// cover limits container a, whose first process is given.
func (r *rig) cover(pid int, limit uint64) {
	r.Cover([]memory.Target{{ID: "a", PID: pid, GPUs: []string{gpu}, Limit: limit}})
}

// join starts a program in container a, and waits until it is guarded.
func (r *rig) join(t testing.TB, limit uint64) *cudatest.Program {
	t.Helper()
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	p.Open()
	r.cover(p.PID, limit)
	r.guarded(t, p)
	return p
}

// guarded waits until somebody has decided about an allocation of a program.
func (r *rig) guarded(t testing.TB, p *cudatest.Program) {
	t.Helper()
	decided := func() uint64 { v := r.Report()["a"]; return v.Passed + v.Granted + v.Denied }
	before := decided()
	for deadline := time.Now().Add(patience); ; {
		if a := p.Alloc("cuMemAlloc_v2", 1, 1); a.Count == 1 {
			p.Free("cuMemFree_v2", 1)
		}
		if decided() > before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not guarded: %+v", p.PID, r.Report()["a"])
		}
	}
}

// A program gets what its limit allows, and an error for the rest, which it
// survives; what it frees it can have again.
func TestLimitHolds(t *testing.T) {
	for _, name := range []string{"cuMemAlloc_v2", "cuMemCreate", "cuMemAllocManaged", "cuArray3DCreate_v2"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			p := r.join(t, 100*mib)
			for range 3 {
				if a := p.Alloc(name, 10*mib, 100); a.Result != cudatest.OutOfMemory || a.Count != 10 {
					t.Fatalf("%+v", a)
				}
				if v := r.Report()["a"]; v.Denied == 0 || v.FailedOpen != 0 {
					t.Errorf("%+v", v)
				}
				if a := p.Alloc(name, 1*mib, 1); a.Result != cudatest.OutOfMemory {
					t.Fatalf("%+v", a)
				}
				if a := p.Free("cuMemFree_v2", 100); a.Count != 10 {
					t.Fatalf("%+v", a)
				}
			}
		})
	}
}

// The limit holds on the GPU that the device lists a process on, also where the process counts its
// GPUs in another order than they were given to its container.
func TestLimitHoldsInAnotherOrder(t *testing.T) {
	var r *rig
	r = start(t, func(o *memory.Options) {
		o.Usage = func(context.Context) (map[string]task.Usage, error) {
			held, err := r.built.Usage()
			return map[string]task.Usage{gpu: {}, second: {Processes: held}}, err
		}
	})
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	p.Open()
	r.Cover([]memory.Target{{ID: "a", PID: p.PID, GPUs: []string{gpu, second}, Limit: 200 * mib}})
	report := r.reports("a")
	until(t, func() bool { return len(report().PIDs) > 0 }, report)
	p.Context("cuCtxCreate_v2", 0) // of no size, in the stand-in
	if a := p.Alloc("cuMemAlloc_v2", 100*mib, 1); a.Count != 1 {
		t.Fatalf("%+v: %+v", a, report())
	}
	until(t, func() bool { return report().Held[second] > 0 }, report)
	for range 3 {
		if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Result != cudatest.OutOfMemory || a.Count != 10 {
			t.Fatalf("%+v: %+v", a, report())
		}
		if a := p.Free("cuMemFree_v2", 10); a.Count != 10 {
			t.Fatalf("%+v", a)
		}
	}
}

// reports returns what the guard reports of a container, at each call anew.
func (r *rig) reports(id string) func() memory.Report {
	return func() memory.Report { return r.Report()[id] }
}

// until waits for what the guard will do; report is shown if it does not.
func until(t *testing.T, done func() bool, report func() memory.Report) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", report())
		}
	}
}

// A context counts, and one that does not fit is refused.
func TestContextCounts(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, cudatest.ContextSize+20*mib)
	p.Call("cuDevicePrimaryCtxRetain")
	// It is seen a moment later; until then as much as a context may be had too much.
	report := r.reports("a")
	until(t, func() bool { return report().Held[gpu] >= cudatest.ContextSize }, report)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 2 {
		t.Fatalf("%+v", a)
	}
	p.Call("cuDevicePrimaryCtxRetain") // again: it has it
	if v := r.Report()["a"]; v.Held[gpu] != v.Limit {
		t.Errorf("%+v", v)
	}
}

// One that is larger than it was counted for takes the place of what is allocated next.
func TestContextLargerThanItsGuess(t *testing.T) {
	r := start(t, func(o *memory.Options) { o.Context = 16 * mib })
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	p.Open()
	r.cover(p.PID, 100*mib)
	report := r.reports("a")
	until(t, func() bool { return len(report().PIDs) > 0 }, report)
	p.Call("cuDevicePrimaryCtxRetain")
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 3 { // beside 64 MiB
		t.Errorf("%+v", a)
	}
	if held, err := r.built.Usage(); err != nil || held[p.PID] > 100*mib {
		t.Errorf("it holds %d MiB, %v", held[p.PID]/mib, err)
	}
}

// A process that is guarded while it makes a context gets no room for what the device does not show yet: of a
// call that began before, nobody knows.
func TestGuardedWhileItMakesAContext(t *testing.T) {
	var part atomic.Bool
	var r *rig
	r = start(t, func(o *memory.Options) {
		o.Usage = func(ctx context.Context) (map[string]task.Usage, error) {
			all, err := r.usage(ctx)
			for pid := range all[gpu].Processes {
				if part.Load() {
					all[gpu].Processes[pid] = mib
				}
			}
			return all, err
		}
	})
	p := r.built.Start(t)
	p.Open()
	p.Call("cuDevicePrimaryCtxRetain")
	r.members.Store(p.PID, "a")
	part.Store(true)
	r.cover(p.PID, cudatest.ContextSize+20*mib)
	report := r.reports("a")
	until(t, func() bool { return len(report().PIDs) > 0 && report().Held[gpu] == mib }, report)
	part.Store(false) // it has its context, and only then can it allocate
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 2 {
		t.Errorf("%+v", a)
	}
	if held, err := r.built.Usage(); err != nil || held[p.PID] > cudatest.ContextSize+20*mib {
		t.Errorf("it holds %d MiB, %v", held[p.PID]/mib, err)
	}
}

// What a pool has already is given out, at the limit too.
func TestPoolServesFromWhatItHas(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 100*mib)
	for range 5 {
		if a := p.Alloc("cuMemAllocAsync", 10*mib, 100); a.Count != 10 {
			t.Fatalf("%+v", a)
		}
		p.Free("cuMemFreeAsync", 10) // the pool keeps it: the usage shows the same
	}
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 1); a.Count != 0 {
		t.Errorf("the pool has it all: %+v", a)
	}
	p.Call("cuMemPoolTrimTo")
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 10 {
		t.Errorf("%+v", a)
	}
}

// The memory of a graph's nodes counts before its launch, in sum, and once after it.
func TestGraphsCountBeforeTheirLaunch(t *testing.T) {
	for _, name := range []string{"cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			p := r.join(t, 100*mib)
			if a := p.Alloc("cuMemAlloc_v2", 10*mib, 3); a.Count != 3 {
				t.Fatalf("%+v", a)
			}
			if a := p.Alloc(name, 10*mib, 100); a.Count != 7 || a.Result != cudatest.OutOfMemory {
				t.Fatalf("%+v", a)
			}
			if a := p.Alloc("cuMemAlloc_v2", 10*mib, 1); a.Count != 0 {
				t.Errorf("beside a graph that was not launched: %+v", a)
			}
			p.Graph("cuGraphInstantiateWithFlags")
			p.Graph("cuGraphDestroy")
			p.Graph("cuGraphLaunch")
			if held, err := r.built.Usage(); err != nil || held[p.PID] != 100*mib {
				t.Errorf("it holds %d MiB, %v", held[p.PID]/mib, err)
			}
			if a := p.Alloc(name, mib, 1); a.Count != 0 {
				t.Errorf("beyond the limit: %+v", a)
			}
			p.Free("cuMemFreeAsync", 4)
			p.Call("cuDeviceGraphMemTrim")
			if a := p.Alloc(name, 10*mib, 100); a.Count != 4 {
				t.Errorf("after four were freed: %+v", a)
			}
			p.Graph("cuGraphDestroy")
			if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 4 {
				t.Errorf("in the place of a graph that is gone: %+v", a)
			}
			if v := r.Report()["a"]; v.FailedOpen != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Memory that is freed within a graph and given again counts once.
func TestGraphsThatUseMemoryAgain(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, cudatest.ContextSize+100*mib)
	p.Call("cuDevicePrimaryCtxRetain") // so that the device lists it
	for i := range 20 {
		if a := p.Alloc("cuGraphAddMemAllocNode", 40*mib, 1); a.Count != 1 {
			t.Fatalf("node %d: %+v; %+v", i, a, r.Report()["a"])
		}
		p.Graph("cuGraphAddMemFreeNode")
	}
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 6 {
		t.Errorf("beside a graph that needs 40 MiB: %+v", a)
	}
	p.Graph("cuGraphInstantiateWithFlags")
	p.Graph("cuGraphLaunch")
	if held, err := r.built.Usage(); err != nil || held[p.PID] != cudatest.ContextSize+100*mib {
		t.Errorf("it holds %d MiB, %v", held[p.PID]/mib, err)
	}
}

// What a process takes before the device lists it counts, whether anybody is asked
// or not. What it would be refused for that alone waits until it is listed.
func TestListedLate(t *testing.T) {
	for name, decider := range map[string]memory.Decider{"passed": memory.Limit{}, "granted": asked{}} {
		t.Run(name, func(t *testing.T) {
			now := clock{still: time.Now()}
			r := start(t, func(o *memory.Options) { o.Decider, o.Now = decider, now.Now })
			r.hidden.Store(true)
			p := r.join(t, 100*mib)
			called := p.BeginAlloc("cuMemAlloc_v2", 10*mib, 100, 1)
			for deadline := time.Now().Add(patience); r.Report()["a"].Held[gpu] < 90*mib; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("what it took does not count: %+v", r.Report()["a"])
				}
			}
			r.waiting(t)
			if why := r.Waits()["a"]; why == "" {
				t.Error("it stands without a reason")
			}
			if held, err := r.built.Usage(); err != nil || held[p.PID] > 100*mib {
				t.Errorf("it holds %d MiB, %v", held[p.PID]/mib, err)
			}
			if v := r.Report()["a"]; v.Denied != 0 {
				t.Errorf("%+v", v)
			}
			r.hidden.Store(false)
			if a := called(); a.Count != 10 || a.Result != cudatest.OutOfMemory {
				t.Errorf("%+v", a)
			}
			p.Free("cuMemFree_v2", 10)
			if a := p.Alloc("cuMemAlloc_v2", 100*mib, 1); a.Count != 1 { // what was freed does not count any more
				t.Errorf("%+v", a)
			}
		})
	}
}

// asked is Limit without a ceiling.
type asked struct{ memory.Limit }

func (asked) Ceiling(string, string, uint64) uint64 { return 0 }

// A device that cannot be read for a moment lets nobody exceed a limit.
func TestLedgerFailsForAMoment(t *testing.T) {
	now := clock{still: time.Now()}
	r := start(t, func(o *memory.Options) { o.Now = now.Now })
	p := r.join(t, 100*mib)
	report := r.reports("a")
	waits := func() (called func() cudatest.Allocated) {
		t.Helper()
		r.broken.Store(true)
		called = p.BeginAlloc("cuMemAlloc_v2", 150*mib, 1, 1)
		until(t, func() bool { return strings.Contains(r.Waits()["a"], "cannot be read") }, report)
		return called
	}
	called := waits()
	r.broken.Store(false)
	if a := called(); a.Count != 0 {
		t.Errorf("%+v", a)
	}
	until(t, func() bool { return r.Waits()["a"] == "" }, report) // the reason of the first call
	called = waits()
	now.set(time.Second)
	if a := called(); a.Count != 1 || r.Report()["a"].FailedOpen == 0 { // nobody can decide
		t.Errorf("%+v", a)
	}
}

// A driver that hangs delays nobody: Cover returns and takes effect, and what is held passes.
func TestDriverHangs(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 100*mib)
	r.SetUsageLimit(100 * time.Millisecond)
	release := r.hangs(t)
	covered := make(chan struct{})
	go func() {
		defer close(covered)
		r.cover(p.PID, 50*mib)
		r.cover(p.PID, 100*mib)
	}()
	select {
	case <-covered:
	case <-time.After(patience):
		t.Fatal("Cover waits for the driver")
	}
	called := p.BeginAlloc("cuMemAlloc_v2", 150*mib, 1, 1)
	if a := called(); a.Count != 1 || a.After.Sub(a.Before) > patience {
		t.Errorf("%+v", a)
	}
	if v := r.Report()["a"]; v.FailedOpen == 0 || v.Denied != 0 {
		t.Errorf("%+v", v)
	}
	r.Cover(nil)
	report := r.reports("a")
	until(t, func() bool { return len(r.Report()) == 0 }, report)
	if n := len(r.hang.Load().begun); n > 0 {
		t.Errorf("%d more readings were begun beside one that hangs", n)
	}
	neverHangs(r.Guard)
	release()
	r.cover(p.PID, 100*mib)
	until(t, func() bool { return report().Held[gpu] >= 150*mib && len(report().PIDs) > 0 }, report)
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Result != cudatest.OutOfMemory {
		t.Errorf("the driver answers again, and beyond the limit: %+v", a)
	}
}

// A driver that is slow and answers lets nothing run unasked, though a guardian watches: it continues whom the guard
// does not renew in time.
func TestSlowDriverKeepsTheLimit(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 100*mib)
	release := r.hangs(t)
	called := p.BeginAlloc("cuMemAlloc_v2", 150*mib, 1, 1)
	report := r.reports("a")
	var lease time.Duration
	renewed := false
	until(t, func() bool { // some are late on a machine that stalls
		for _, h := range r.holds(t) {
			if longer := h.Lease - lease; lease != 0 && longer > 0 && longer < stop.Lease {
				renewed = true
			}
			lease = h.Lease
		}
		return renewed
	}, report)
	release()
	if a := called(); a.Result != cudatest.OutOfMemory || report().FailedOpen != 0 {
		t.Errorf("%+v; %+v", a, report())
	}
}

// holds lists what is on record.
func (r *rig) holds(t testing.TB) []stop.Hold {
	t.Helper()
	record, err := stop.OpenRecord(r.name)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	list, err := record.List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The guard ends while the driver hangs, and continues whom it stopped.
func TestEndsWhileTheDriverHangs(t *testing.T) {
	hung, began := make(chan struct{}), make(chan struct{}, 100)
	var late *time.Timer
	release := sync.OnceFunc(func() { close(hung) })
	t.Cleanup(func() { // after the end of the guard
		if late != nil {
			late.Stop()
		}
		release()
	})
	r := start(t, func(o *memory.Options) {
		o.Usage = func(context.Context) (map[string]task.Usage, error) {
			began <- struct{}{}
			<-hung
			return nil, errors.New("it was too late")
		}
	})
	t.Cleanup(func() { late = time.AfterFunc(patience, func() { t.Error("it does not end"); release() }) })
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	p.Open()
	r.cover(p.PID, mib)
	<-began
}

// Cover says whether anybody takes the targets: else its caller must not go on renewing the guard.
func TestCoverTellsThatNobodyTakesTheTargets(t *testing.T) {
	name := cudatest.RecordName(t)
	g, err := memory.New(memory.Options{Name: name, Container: new(probetest.Members).Of, Decider: memory.Limit{},
		Usage: func(context.Context) (map[string]task.Usage, error) { return nil, nil }})
	probetest.Need(t, err)
	if !g.Cover(nil) || g.Cover(nil) {
		t.Error("it does not run yet")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for deadline := time.Now().Add(patience); !g.Cover(nil); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it runs, and takes nothing")
		}
	}
	cancel()
	if err := errors.Join(<-ended, stop.Remove(name)); err != nil {
		t.Error(err)
	}
}

// Many threads at once get no more than one after the other.
func TestThreadsAtOnce(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 128*mib)
	a := p.BeginAlloc("cuMemAlloc_v2", mib, 100, 64)()
	held, err := r.built.Usage()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d allocations of 128 that fit; %+v", a.Count, r.Report()["a"])
	if held[p.PID] > 128*mib || a.Count > 128 || a.Result != cudatest.OutOfMemory {
		t.Errorf("%+v: it holds %d MiB", a, held[p.PID]/mib)
	}
	if a.Count < 64 {
		t.Errorf("too little: %+v", a)
	}
}

// The limit is for all processes of a container, forks and new programs included.
func TestProcessesShareTheLimit(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 100*mib)
	q := r.built.Start(t)
	r.members.Store(q.PID, "a")
	q.Call("cuInit")
	r.guarded(t, q)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 6); a.Count != 6 {
		t.Fatalf("%+v", a)
	}
	if a := q.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 4 {
		t.Fatalf("%+v", a)
	}
	child := q.Fork()
	r.members.Store(child, "a")
	q.Call("cuInit")
	r.guarded(t, q)
	if a := q.Alloc("cuMemAlloc_v2", 10*mib, 1); a.Count != 0 {
		t.Errorf("a child: %+v", a)
	}
	p.Exec() // what the old program held is gone
	p.Call("cuInit")
	r.guarded(t, p)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 6 {
		t.Errorf("a new program: %+v", a)
	}
}

// meanwhile lets something happen, once, while a request of one process is decided.
type meanwhile struct {
	memory.Limit
	of atomic.Pointer[event]
}

// event is what happens at a request of a process.
type event struct {
	pid  int
	does func()
}

func (m *meanwhile) Decide(r memory.Request) memory.Answer {
	if e := m.of.Load(); e != nil && r.PID == e.pid && m.of.CompareAndSwap(e, nil) {
		e.does()
	}
	return m.Limit.Decide(r)
}

// The room that one process is granted is not given to another one by the kernel meanwhile.
func TestRoomIsGivenOnce(t *testing.T) {
	m := &meanwhile{}
	r := start(t, func(o *memory.Options) { o.Decider = m })
	q := r.join(t, 100*mib)
	if a := q.Alloc("cuMemAlloc_v2", 10*mib, 8); a.Count != 8 {
		t.Fatalf("%+v", a)
	}
	held := func() (sum uint64) {
		all, err := r.built.Usage()
		if err != nil {
			t.Fatal(err)
		}
		for _, bytes := range all {
			sum += bytes
		}
		return sum
	}
	room := 100*mib - held()
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	p.Call("cuInit")
	r.guarded(t, p)
	begun := make(chan func() cudatest.Allocated, 1)
	m.of.Store(&event{p.PID, func() {
		begun <- q.BeginAlloc("cuMemAlloc_v2", room, 1, 1)
		for end := time.Now().Add(200 * time.Millisecond); held() < 100*mib && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // it passes, or it waits until this one is decided
		}
	}})
	first := p.Alloc("cuMemAlloc_v2", room, 1)
	if len(begun) == 0 {
		t.Fatal("nobody was asked about the first call of a process")
	}
	second := <-begun
	if a := second(); first.Count+a.Count != 1 || held() > 100*mib {
		t.Errorf("for the last %d MiB: %+v and %+v, %d MiB are held", room/mib, first, a, held()/mib)
	}
}

// A container that is not limited any more gets what it wants, also one that waits.
func TestUncover(t *testing.T) {
	r := start(t, func(o *memory.Options) { o.Decider = &script{verdict: memory.Wait} })
	p := r.join(t, 10*mib)
	called := p.BeginAlloc("cuMemAlloc_v2", 20*mib, 1, 1)
	r.waiting(t)
	r.Cover(nil)
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	if a := p.Alloc("cuMemAlloc_v2", 20*mib, 3); a.Count != 3 {
		t.Errorf("%+v", a)
	}
}

// script is a Decider that does as it is told beyond the limit.
type script struct {
	memory.Limit
	mu      sync.Mutex
	verdict memory.Verdict
	asked   []memory.Request
}

func (s *script) Decide(r memory.Request) memory.Answer {
	if a := s.Limit.Decide(r); a.Verdict == memory.Grant {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	return memory.Answer{Verdict: s.verdict, Reason: "the script says so"}
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (s *script) set(v memory.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict = v
}

func (r *rig) waiting(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(patience); r.Report()["a"].Waiting == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing waits: %+v", r.Report()["a"])
		}
	}
}

// A request waits until it is reconsidered, or has waited too long.
func TestWait(t *testing.T) {
	s := &script{verdict: memory.Wait}
	r := start(t, func(o *memory.Options) { o.Decider, o.MaxWait = s, time.Minute })
	p := r.join(t, 10*mib)
	called := p.BeginAlloc("cuMemAlloc_v2", 20*mib, 1, 1)
	r.waiting(t)
	for deadline := time.Now().Add(patience); r.Waits()["a"] != "its allocation waits: the script says so"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it stands without a reason: %v", r.Waits())
		}
	}
	s.set(memory.Grant)
	r.Reconsider()
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	s.mu.Lock()
	first := s.asked[0]
	s.mu.Unlock()
	// The byte that it was guarded with counts until the process is listed, though it was freed.
	if first.ContainerID != "a" || first.PID != p.PID || first.GPU != gpu || first.Bytes != 20*mib ||
		first.Function != "cuMemAlloc" || first.Held > 1 || first.Limit != 10*mib || first.Since.IsZero() {
		t.Errorf("%+v", first)
	}
	s.set(memory.Wait)
	r.SetMaxWait(time.Second)
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Result != cudatest.OutOfMemory || a.After.Sub(a.Before) < time.Second {
		t.Errorf("%+v", a)
	}
}

// TestMaxWaitChanges: a new bound counts for a call that waits already.
func TestMaxWaitChanges(t *testing.T) {
	for name, tt := range map[string]struct{ was, is, waits, denied time.Duration }{
		"longer":  {10 * time.Minute, 31 * time.Minute, 30 * time.Minute, 31 * time.Minute},
		"shorter": {31 * time.Minute, 10 * time.Minute, 9 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var now clock
			s := &script{verdict: memory.Wait}
			r := start(t, func(o *memory.Options) { o.Decider, o.MaxWait, o.Now = s, tt.was, now.Now })
			p := r.join(t, 10*mib)
			called := p.BeginAlloc("cuMemAlloc_v2", 20*mib, 1, 1)
			report := r.reports("a")
			until(t, func() bool { return s.count() > 0 }, report)
			r.SetMaxWait(tt.is)
			now.set(tt.waits)
			before := s.count()
			until(t, func() bool { return s.count() > before+1 }, report) // it waits on
			now.set(tt.denied)
			if a := called(); a.Result != cudatest.OutOfMemory || report().Denied == 0 {
				t.Errorf("%+v; %+v", a, report())
			}
		})
	}
}

// large is a Decider that lets large allocations wait, or denies them, and grants all others.
type large struct {
	asked
	denies atomic.Bool
}

func (l *large) Decide(r memory.Request) memory.Answer {
	switch {
	case r.Bytes < 20*mib:
		return memory.Answer{Verdict: memory.Grant, Reason: "it is small"}
	case l.denies.Load():
		return memory.Answer{Verdict: memory.Deny, Reason: "it is large"}
	}
	return memory.Answer{Verdict: memory.Wait, Reason: "it is large"}
}

// slips lets a large allocation wait, and then run as somebody continues its process.
func (r *rig) slips(t *testing.T, p *cudatest.Program, before func()) {
	t.Helper()
	called := p.BeginAlloc("cuMemAlloc_v2", 20*mib, 1, 1)
	r.waiting(t)
	before()
	if err := syscall.Kill(p.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if a := called(); a.Count != 1 {
		t.Fatalf("%+v", a)
	}
}

// A call that waited and ran, as somebody else continued its process, holds nobody any more.
func TestNobodyStandsForACallThatIsOver(t *testing.T) {
	r := start(t, func(o *memory.Options) { o.Decider, o.MaxWait = &large{}, 2*patience })
	p := r.join(t, 10*mib)
	r.slips(t, p, func() {})
	report := r.reports("a")
	// The end of its hold may continue a call that is held meanwhile.
	until(t, func() bool { return report().FailedOpen == 1 && len(r.holds(t)) == 0 }, report)
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Count != 1 || a.After.Sub(a.Before) > patience {
		t.Errorf("it was granted at once: %+v", a)
	}
	until(t, func() bool { return report().Waiting == 0 }, report)
	if v := report(); v.Denied != 0 || v.FailedOpen != 1 {
		t.Errorf("%+v", v)
	}
}

// The answer to such a call is not given to the thread's next one, which is at the same place.
func TestAnswerIsForItsOwnCall(t *testing.T) {
	d := &large{}
	r := start(t, func(o *memory.Options) { o.Decider = d })
	p := r.join(t, 10*mib)
	var release func()
	r.slips(t, p, func() {
		release = r.hangs(t) // the reading before the answer takes its time
		d.denies.Store(true)
	})
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	report := r.reports("a")
	until(t, func() bool { return state(p.PID) == "T" }, report)
	release()
	if a := called(); a.Count != 1 || report().Denied != 0 {
		t.Errorf("%+v; %+v", a, report())
	}
}

// The program sees its limit as the GPU's memory.
func TestInfoShowsTheLimit(t *testing.T) {
	r := start(t, nil)
	p := r.join(t, 100*mib)
	p.Alloc("cuMemAlloc_v2", 10*mib, 3)
	if free, total, device := p.Memory(); free != 70*mib || total != 100*mib || device != 100*mib {
		t.Errorf("%d MiB free of %d; the device has %d", free/mib, total/mib, device/mib)
	}
}
