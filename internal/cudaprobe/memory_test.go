package cudaprobe_test

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

const mib = 1 << 20

// guarded is a memory guard on the stand-in library, its record and its events.
type guarded struct {
	*cudaprobe.MemoryGuard
	record *stop.Record
	built  cudatest.Built
	events chan cudaprobe.MemoryEvent
}

func newMemoryGuard(t testing.TB, o cudaprobe.Options) *guarded {
	t.Helper()
	name := cudatest.RecordName(t)
	g, err := cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Options: o, Pins: name})
	probetest.Need(t, err)
	if err := g.Renew(time.Hour); err != nil {
		t.Fatal(err)
	}
	record, err := stop.OpenRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	h := &guarded{MemoryGuard: g, record: record, built: cudatest.Build(t), events: make(chan cudaprobe.MemoryEvent, 1024)}
	go func() {
		defer close(h.events)
		_ = cudaprobe.Each(g.Next, func(e cudaprobe.MemoryEvent) { h.events <- e })
	}()
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), record.Close(), stop.Remove(name)); err != nil {
			t.Error(err)
		}
	})
	return h
}

// guard guards a program that sees GPUs with these slots.
func (h *guarded) guard(t testing.TB, p *cudatest.Program, slots []uint32, context uint64, on uint32) {
	t.Helper()
	if err := h.Guard(cudaprobe.Guarded{PID: p.PID, Slots: slots, Context: context, On: on}); err != nil {
		t.Fatal(err)
	}
}

// open starts a guarded program on slot 0.
func (h *guarded) open(t testing.TB) (p *cudatest.Program, pidfd int) {
	t.Helper()
	p = h.built.Start(t)
	p.Open()
	h.guard(t, p, []uint32{0}, 0, 1)
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(pidfd) })
	return p, pidfd
}

func (h *guarded) budget(t testing.TB, b cudaprobe.Budget) {
	t.Helper()
	if err := h.SetBudget(0, b); err != nil {
		t.Fatal(err)
	}
}

// held awaits a hold, and returns its call.
func (h *guarded) held(t testing.TB, p *cudatest.Program) cudaprobe.Call {
	t.Helper()
	select {
	case e := <-h.events:
		if e.PID != p.PID || e.Slipped {
			t.Fatalf("got %+v", e)
		}
		c, ok, err := h.Call(e.TID)
		if err != nil || !ok || !c.Held || c.PID != p.PID {
			t.Fatalf("its call is %+v, %v, %v", c, ok, err)
		}
		return c
	case <-time.After(patience):
		t.Fatal("nothing was held")
	}
	return cudaprobe.Call{}
}

// seen says that the device shows all contexts that a program has made.
func (h *guarded) seen(t testing.TB, p *cudatest.Program) {
	t.Helper()
	pool, err := h.TotalsOf(p.PID)
	if err := errors.Join(err, h.Note(p.PID, 0, 0, pool.Contexts, pool.Epoch)); err != nil {
		t.Fatal(err)
	}
}

// end ends the hold of a call that was decided about.
func (h *guarded) end(t testing.TB, pidfd int, c cudaprobe.Call) {
	t.Helper()
	hold := stop.Hold{PID: c.PID, TID: c.TID, At: c.At, Sent: true}
	if err := h.record.End(stop.Of("/proc", c.PID, pidfd), []stop.Hold{hold}); err != nil {
		t.Fatal(err)
	}
}

func (h *guarded) spent(t testing.TB) cudaprobe.Spent {
	t.Helper()
	s, err := h.Spent(0)
	if err != nil {
		t.Fatal(err)
	}
	return s
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

func alive() bool { return true }

var allocators = []string{
	"cuMemAlloc_v2", "cuMemAlloc_v2_ptds", "cuMemAlloc_v2_ptsz", "cuMemAllocManaged", "cuMemAllocPitch_v2", "cuMemCreate", "cuMemAllocAsync",
	"cuMemAllocFromPoolAsync", "cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate",
	"cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2",
}

// Within its budget a call passes and is counted; beyond it, it is held, and its
// program gets what was decided.
func TestMemoryGrantAndDeny(t *testing.T) {
	for way, o := range ways {
		t.Run(way, func(t *testing.T) {
			h, allocators := newMemoryGuard(t, o), allocators
			if o.OneByOne {
				allocators = allocators[:3] // taking each probe off takes its time
			}
			for _, name := range allocators {
				p, pidfd := h.open(t)
				if strings.HasPrefix(name, "cuGraph") {
					if err := h.FollowGraphs(p.PID); err != nil {
						t.Fatal(err)
					}
				}
				before := h.spent(t).Bytes
				h.budget(t, cudaprobe.Budget{Ceiling: before + 4*mib})
				if a := p.Alloc(name, mib, 4); a.Result != 0 || a.Count != 4 {
					t.Fatalf("%s: %+v", name, a)
				}
				if spent := h.spent(t).Bytes; spent-before != 4*mib {
					t.Fatalf("%s: spent %d", name, spent-before)
				}
				called := p.BeginAlloc(name, mib, 1, 1)
				c := h.held(t, p)
				awaitState(t, p.PID, "T")
				if list, err := h.record.List(); err != nil || len(list) != 1 || list[0].PID != p.PID {
					t.Fatalf("%s: on record %+v, %v", name, list, err)
				}
				if slot, ok := c.Slot(); c.Bytes != mib || slot != 0 || !ok {
					t.Fatalf("%s: %+v", name, c)
				}
				if err := h.Deny(c, alive); err != nil {
					t.Fatal(name, err)
				}
				h.end(t, pidfd, c)
				if a := called(); a.Result != cudatest.OutOfMemory || a.Count != 0 {
					t.Fatalf("%s: %+v", name, a)
				}
				called = p.BeginAlloc(name, mib, 1, 1)
				c = h.held(t, p)
				if err := h.Grant(c); err != nil {
					t.Fatal(err)
				}
				h.end(t, pidfd, c)
				if a := called(); a.Result != 0 || a.Count != 1 {
					t.Fatalf("%s: %+v", name, a)
				}
				if list, err := h.record.List(); err != nil || len(list) != 0 {
					t.Fatalf("%s: on record %+v, %v", name, list, err)
				}
				if calls, err := h.Calls(); err != nil || len(calls) != 0 {
					t.Fatalf("%s: under way %+v, %v", name, calls, err)
				}
				h.Drop(p.PID)
			}
		})
	}
}

// Denied again and again, a program goes on, and the probes at its returns work.
func TestMemoryDenyMany(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	for i := range 300 {
		called := p.BeginAlloc("cuMemAllocAsync", 3*mib, 1, 1)
		c := h.held(t, p)
		if i%3 == 0 {
			if err := h.Grant(c); err != nil {
				t.Fatal(err)
			}
		} else if err := h.Deny(c, alive); err != nil {
			t.Fatal(i, err)
		}
		h.end(t, pidfd, c)
		want := cudatest.OutOfMemory
		if i%3 == 0 {
			want = 0
		}
		if a := called(); a.Result != want {
			t.Fatal(i, a)
		}
	}
	if pool, err := h.TotalsOf(p.PID); err != nil || pool.Used != 300*mib || pool.Peak != 300*mib {
		t.Errorf("%+v, %v", pool, err)
	}
	p.Free("cuMemFreeAsync", 100)
	if pool, err := h.TotalsOf(p.PID); err != nil || pool.Used != 0 || pool.Peak != 300*mib {
		t.Errorf("%+v, %v", pool, err)
	}
	if a := p.Alloc("cuMemAllocAsync", 3*mib, 100); a.Count != 100 { // its pool has it already
		t.Error(a)
	}
}

// What a context takes is a guess until the device shows it: somebody is asked meanwhile.
func TestMemoryAfterAContext(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	h.guard(t, p, []uint32{0}, 10*mib, 0)
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	before := h.spent(t).Bytes
	h.budget(t, cudaprobe.Budget{Ceiling: before + 100*mib})
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Count != 1 {
		t.Errorf("before it: %+v", a)
	}
	p.Call("cuDevicePrimaryCtxRetain")
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 3, 1)
	c := h.held(t, p)
	h.seen(t, p)
	if err := h.Grant(c); err != nil {
		t.Fatal(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Count != 3 {
		t.Errorf("once it is seen: %+v", a)
	}
	if spent := h.spent(t).Bytes; spent-before != 13*mib {
		t.Errorf("spent %d MiB", (spent-before)/mib)
	}
}

// The first node with memory is asked about, and counts until its graph is launched or
// destroyed; another one passes.
func TestMemoryOfGraphs(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	before := h.spent(t).Bytes
	h.budget(t, cudaprobe.Budget{Ceiling: before + 100*mib})
	want := func(when string, bytes uint64) {
		t.Helper()
		if pool, err := h.TotalsOf(p.PID); err != nil || pool.Graphs != bytes {
			t.Errorf("%s: %d MiB, %v", when, pool.Graphs/mib, err)
		}
	}
	if a := p.Alloc("cuGraphAddNode", 0, 10); a.Count != 10 {
		t.Errorf("nodes without memory: %+v", a)
	}
	want("nodes without memory", 0)
	called := p.BeginAlloc("cuGraphAddNode_v2", mib, 3, 1)
	c := h.held(t, p)
	if c.Bytes != mib || c.Function() != "cuGraphAddNode" {
		t.Errorf("%+v", c)
	}
	if err := errors.Join(h.FollowGraphs(p.PID), h.FollowGraphs(p.PID), h.Grant(c)); err != nil {
		t.Fatal(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Count != 3 {
		t.Fatalf("%+v", a)
	}
	want("added", 3*mib)
	p.Graph("cuGraphInstantiateWithFlags")
	want("ready", 3*mib)
	p.Graph("cuGraphDestroy")
	want("its source is destroyed", 3*mib)
	p.Graph("cuGraphLaunch")
	want("launched", 0)
	p.Graph("cuGraphLaunch")
	want("launched again", 0)
	p.Alloc("cuGraphAddMemAllocNode", 2*mib, 5)
	want("another graph", 10*mib)
	p.Graph("cuGraphDestroy")
	want("destroyed", 0)
	if spent := h.spent(t).Bytes; spent-before != 12*mib {
		t.Errorf("spent %d MiB", (spent-before)/mib)
	}
	for range 2 { // the second graph has the addresses of the first
		p.Alloc("cuGraphAddNode_v2", 5*mib, 1)
		p.Graph("cuGraphAddMemFreeNode")
		p.Alloc("cuGraphAddMemAllocNode", 3*mib, 1)
		want("memory that was freed within the graph is given again", 5*mib)
		p.Alloc("cuGraphAddNode", 3*mib, 1)
		want("it is given once", 8*mib)
		p.Graph("cuGraphDestroy")
		want("destroyed", 0)
	}
	h.budget(t, cudaprobe.Budget{})
	if a := p.Alloc("cuGraphAddNode", 0, 10); a.Count != 10 {
		t.Errorf("empty nodes are not asked about: %+v", a)
	}
}

// What was spent never gets less: a call that fails is counted as failed, and one that does not fit is not counted.
func TestWhatIsSpentOnlyGrows(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	before := h.spent(t)
	h.budget(t, cudaprobe.Budget{Ceiling: before.Bytes + 1<<41})
	if a := p.Alloc("cuMemAlloc_v2", 1<<40, 1); a.Result != cudatest.OutOfMemory {
		t.Fatalf("the driver has a tebibyte: %+v", a)
	}
	s := h.spent(t)
	if s.Bytes-before.Bytes != 1<<40 || s.Failed-before.Failed != 1<<40 || s.Got() != before.Got() {
		t.Errorf("a call that failed: %+v, before %+v", s, before)
	}
	called := p.BeginAlloc("cuMemAlloc_v2", 1<<41, 1, 1)
	c := h.held(t, p)
	if now := h.spent(t); now != s {
		t.Errorf("a call that does not fit: %+v, before %+v", now, s)
	}
	if err := h.Grant(c); err != nil {
		t.Fatal(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Result != cudatest.OutOfMemory || h.spent(t) != s {
		t.Errorf("a call that was granted, and failed: %+v, %+v", a, h.spent(t))
	}
}

// With several GPUs an allocation counts on that of the thread's current context.
func TestMemoryOfTheCurrentContext(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	h.guard(t, p, []uint32{0, 1, 2}, 0, 0)
	spent := func() (all [3]uint64) {
		for slot := range all {
			spent, _ := h.Spent(uint32(slot))
			all[slot] = spent.Bytes
		}
		return all
	}
	for slot := range uint32(3) {
		before := spent()
		if err := h.SetBudget(slot, cudaprobe.Budget{Ceiling: before[slot] + 1000*mib}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		gpu  int
	}{
		{"created", func() { p.Context("cuCtxCreate_v2", 1) }, 1},
		{"retained", func() { p.Context("cuDevicePrimaryCtxRetain", 2) }, 1}, // not current for that
		{"set", func() { p.Current("cuCtxSetCurrent", 2) }, 2},
		{"pushed", func() { p.Current("cuCtxPushCurrent_v2", 1) }, 1},
		{"created above", func() { p.Context("cuCtxCreate_v2", 0) }, 0},
		{"popped", func() { p.Current("cuCtxPopCurrent_v2", 0) }, 1},
		{"popped again", func() { p.Current("cuCtxPopCurrent_v2", 0) }, 2},
	} {
		step.do()
		h.seen(t, p)
		before := spent()
		if a := p.Alloc("cuMemAlloc_v2", mib, 3); a.Count != 3 {
			t.Fatalf("%s: %+v", step.name, a)
		}
		want := before
		want[step.gpu] += 3 * mib
		if got := spent(); got != want {
			t.Errorf("%s: %v; want %v", step.name, got, want)
		}
	}
	if totals, err := h.TotalsOf(p.PID); err != nil || totals.On != 0b111 {
		t.Errorf("it made contexts on all three: %b, %v", totals.On, err)
	}
	if err := h.Reorder(p.PID, []uint32{2, 1, 0}); err != nil {
		t.Fatal(err)
	}
	before := spent()
	if a := p.Alloc("cuMemAlloc_v2", mib, 3); a.Count != 3 || spent()[0] != before[0]+3*mib {
		t.Errorf("in another order: %+v, %v after %v", a, spent(), before)
	}
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	// One thread: the stop of the first of two would keep the other from its allocation.
	called := p.BeginAllocInThread("cuMemAlloc_v2", mib, 1)
	c := h.held(t, p)
	if slot, known := c.Slot(); known {
		t.Errorf("it is not known on which GPU, and counts on %d", slot)
	}
	if err := h.Deny(c, alive); err != nil {
		t.Error(err)
	}
	hold := stop.Hold{PID: c.PID, TID: c.TID, At: c.At, Sent: true}
	if err := h.record.End(stop.Of("/proc", p.PID, pidfd), []stop.Hold{hold}); err != nil {
		t.Error(err)
	}
	called()
}

// What the library says of memory is lowered to what is to be shown.
func TestMemoryInfo(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	h.budget(t, cudaprobe.Budget{Ceiling: 100 * mib})
	if free, total, device := p.Memory(); free != total || total != 16<<10*mib || device != total {
		t.Errorf("without a limit: %d, %d, %d", free, total, device)
	}
	h.budget(t, cudaprobe.Budget{Ceiling: 100 * mib, Limit: 120 * mib})
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for range 2 {
			c := h.held(t, p)
			if !c.Question() {
				t.Errorf("%+v", c)
			}
			if err := h.Show(c, 70*mib, 120*mib, alive); err != nil {
				t.Error(err)
			}
			h.end(t, pidfd, c)
		}
	}()
	if free, total, device := p.Memory(); free != 70*mib || total != 120*mib || device != 120*mib {
		t.Errorf("%d MiB free of %d, the device has %d", free/mib, total/mib, device/mib)
	}
	<-shown
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 10); a.Count != 10 { // it is counted as before
		t.Error(a)
	}
	h.Drop(p.PID)
	if _, total, _ := p.Memory(); total != 16<<10*mib {
		t.Errorf("not guarded: %d", total)
	}
}

// Nothing is written once somebody else has continued the process: what is there now is the program's.
func TestMemoryInfoIsShownAtItsReturnAlone(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	limited, unlimited := cudaprobe.Budget{Limit: 120 * mib}, cudaprobe.Budget{}
	ask := func() <-chan [3]uint64 {
		told := make(chan [3]uint64, 1)
		go func() {
			free, total, device := p.Memory()
			told <- [3]uint64{free, total, device}
		}()
		return told
	}
	held := func() cudaprobe.Call {
		c := h.held(t, p)
		awaitState(t, p.PID, "T")
		return c
	}
	for _, tt := range []struct {
		name string
		next cudaprobe.Budget // when it asks again
		then func(told <-chan [3]uint64) (last <-chan [3]uint64, holds []cudaprobe.Call)
		why  string
	}{
		{"held at another question", limited, func(told <-chan [3]uint64) (<-chan [3]uint64, []cudaprobe.Call) {
			return told, []cudaprobe.Call{held()}
		}, "another call"},
		{"held at the same place", unlimited, func(told <-chan [3]uint64) (<-chan [3]uint64, []cudaprobe.Call) {
			<-told
			h.budget(t, limited)
			return ask(), []cudaprobe.Call{held()}
		}, "another call"},
		{"asleep", unlimited, func(told <-chan [3]uint64) (<-chan [3]uint64, []cudaprobe.Call) {
			awaitState(t, p.PID, "S")
			return told, nil
		}, "somebody else continued"},
		{"stopped elsewhere", unlimited, func(told <-chan [3]uint64) (<-chan [3]uint64, []cudaprobe.Call) {
			awaitState(t, p.PID, "S")
			signal(t, p, syscall.SIGSTOP)
			awaitState(t, p.PID, "T")
			return told, nil
		}, "it is at"},
	} {
		h.budget(t, limited)
		told := ask()
		c := held()
		h.budget(t, tt.next)
		signal(t, p, syscall.SIGCONT)
		told, holds := tt.then(told)
		before := state(t, p.PID)
		if err := h.Show(c, 70*mib, 120*mib, alive); err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v", tt.name, err)
		}
		awaitState(t, p.PID, before)
		h.budget(t, unlimited) // it asks no more
		for _, c := range append(holds, c) {
			h.end(t, pidfd, c)
		}
		if got := <-told; got != [3]uint64{16 << 10 * mib, 16 << 10 * mib, 16 << 10 * mib} {
			t.Errorf("%s: it is told %v", tt.name, got)
		}
	}
}

// Where somebody else than the guard ends the hold of a question, the thread's next allocations are counted and held as
// before.
func TestMemoryAfterAQuestionThatNobodyAnswered(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	before := h.spent(t).Bytes
	h.budget(t, cudaprobe.Budget{Ceiling: before + 10*mib, Limit: 10 * mib})
	told := make(chan struct{})
	go func() {
		defer close(told)
		p.Memory()
	}()
	for range 2 {
		h.end(t, pidfd, h.held(t, p))
	}
	<-told
	if a := p.Alloc("cuMemAlloc_v2", mib, 10); a.Count != 10 || h.spent(t).Bytes-before != 10*mib {
		t.Errorf("%+v, of which %d MiB count", a, (h.spent(t).Bytes-before)/mib)
	}
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	c := h.held(t, p)
	if err := h.Deny(c, alive); err != nil {
		t.Fatal(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Result != cudatest.OutOfMemory {
		t.Errorf("%+v", a)
	}
}

// A process that is dropped while a call of it is held is continued all the same.
func TestMemoryDroppedWhileHeld(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	c := h.held(t, p)
	h.Drop(p.PID)
	if calls, err := h.Calls(); err != nil || len(calls) != 0 {
		t.Errorf("%+v, %v", calls, err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	if holds, err := h.record.List(); err != nil || len(holds) != 0 {
		t.Errorf("still on record: %+v, %v", holds, err)
	}
}

// A guard that is taken off a process and put on again within a moment holds each call
// once, and counts it once: the old set of probes does nothing any more.
func TestMemoryOneSetOfProbesCounts(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	h.budget(t, cudaprobe.Budget{Ceiling: h.spent(t).Bytes + 1<<40})
	for range 20 {
		h.Drop(p.PID) // its probes are taken off some 0.1 s later
		h.guard(t, p, []uint32{0}, 0, 1)
		before := h.spent(t)
		if a := p.Alloc("cuMemAlloc_v2", mib, 10); a.Count != 10 {
			t.Fatalf("%+v", a)
		}
		if after := h.spent(t); after.Bytes-before.Bytes != 10*mib || after.Passed-before.Passed != 10 {
			t.Fatalf("10 MiB in 10 calls came to %d bytes in %d", after.Bytes-before.Bytes, after.Passed-before.Passed)
		}
		h.budget(t, cudaprobe.Budget{})
		called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
		c := h.held(t, p)
		if holds, err := h.record.List(); err != nil || len(holds) != 1 {
			t.Fatalf("one call is on record as %+v, %v", holds, err)
		}
		if err := h.Grant(c); err != nil {
			t.Fatal(err)
		}
		h.end(t, pidfd, c)
		if a := called(); a.Count != 1 {
			t.Fatalf("%+v", a)
		}
		h.budget(t, cudaprobe.Budget{Ceiling: h.spent(t).Bytes + 1<<40})
	}
}

// Guarding a process again that is guarded puts no second set of probes on it.
func TestMemoryGuardIsIdempotent(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, _ := h.open(t)
	before := h.spent(t)
	h.budget(t, cudaprobe.Budget{Ceiling: before.Bytes + 1<<40})
	h.guard(t, p, []uint32{0}, 0, 1)
	p.Alloc("cuMemAlloc_v2", mib, 10)
	if after := h.spent(t); after.Passed-before.Passed != 10 {
		t.Errorf("10 calls are counted as %d", after.Passed-before.Passed)
	}
}

// A process with the PID of a guarded one, which started at another time, is not touched.
func TestMemoryOfAnotherProcessWithThePID(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	if err := h.Guard(cudaprobe.Guarded{PID: p.PID, Start: 1, Slots: []uint32{0}, On: 1}); err != nil {
		t.Fatal(err)
	}
	before := h.spent(t)
	if a := p.Alloc("cuMemAlloc_v2", mib, 3); a.Count != 3 {
		t.Errorf("%+v", a)
	}
	if after := h.spent(t); after != before {
		t.Errorf("%+v, before it %+v", after, before)
	}
}

// What the kernel counted of a program is forgotten when another one replaces it, and
// the probes stay.
func TestMemoryAfterExec(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, _ := h.open(t)
	before := h.spent(t)
	h.budget(t, cudaprobe.Budget{Ceiling: before.Bytes + 1<<40})
	p.Alloc("cuMemAllocAsync", mib, 10)
	old, err := h.TotalsOf(p.PID)
	if err != nil || old.Used != 10*mib {
		t.Fatalf("%+v, %v", old, err)
	}
	p.Exec()
	p.Open()
	p.Alloc("cuMemAllocAsync", mib, 3)
	now, err := h.TotalsOf(p.PID)
	if err != nil || now.Used != 3*mib || now.Epoch == old.Epoch {
		t.Errorf("%+v, %v; the old program had %+v", now, err, old)
	}
	if after := h.spent(t); after.Passed-before.Passed != 13 {
		t.Errorf("13 calls are counted as %d", after.Passed-before.Passed)
	}
}

// Somebody else's SIGCONT lets a held call run. That is reported, and the next call is held.
func TestMemorySlipped(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, _ := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	h.held(t, p)
	awaitState(t, p.PID, "T")
	signal(t, p, syscall.SIGCONT)
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	select {
	case e := <-h.events:
		if !e.Slipped || e.PID != p.PID {
			t.Errorf("%+v", e)
		}
	case <-time.After(patience):
		t.Error("it is not reported")
	}
	p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	h.held(t, p)
	awaitState(t, p.PID, "T")
}

// With nobody to renew it, the guard lets all pass.
func TestMemoryOpen(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, _ := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	h.held(t, p)
	awaitState(t, p.PID, "T")
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: cudatest.RecordName(t)}); n != 1 || err != nil {
		t.Error(n, err)
	}
	if a := called(); a.Count != 1 {
		t.Error(a)
	}
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Count != 1 {
		t.Error(a)
	}
	if s := h.spent(t); s.Opened != 1 {
		t.Errorf("%+v", s)
	}
}

// A process that is traced by somebody else is not touched.
func TestMemoryTraced(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	c := h.held(t, p)
	traced, free := make(chan error), make(chan struct{})
	go func() { // a tracer is a thread, which ends with this goroutine
		runtime.LockOSThread()
		traced <- unix.PtraceSeize(p.PID)
		<-free
	}()
	defer close(free)
	if err := <-traced; err != nil {
		needtest.Tracing.Skip(t, "cannot trace:", err)
	}
	if err := h.Deny(c, alive); !errors.Is(err, cudaprobe.ErrCannotDeny) {
		t.Fatal(err)
	}
	free <- struct{}{}
	awaitState(t, p.PID, "T")
	if err := h.Grant(c); err != nil {
		t.Fatal(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Count != 1 {
		t.Error(a)
	}
}

// While a file of a container hangs, others are guarded, and the guard ends.
func TestMemoryFileThatHangsStopsNothingElse(t *testing.T) {
	for name, begin := range map[string]func(h *guarded, p *cudatest.Program) (hangs func() error){
		"guard": func(h *guarded, p *cudatest.Program) func() error {
			return func() error { return h.Guard(cudaprobe.Guarded{PID: p.PID, Slots: []uint32{0}}) }
		},
		"follow graphs": func(h *guarded, p *cudatest.Program) func() error {
			h.guard(t, p, []uint32{0}, 0, 0)
			if err := os.Chtimes(h.built.Library, time.Time{}, time.Unix(1, 0)); err != nil { // else it is not read again
				t.Fatal(err)
			}
			return func() error { return h.FollowGraphs(p.PID) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryGuard(t, cudaprobe.Options{})
			p, other := h.built.Start(t), cudatest.Build(t).Start(t)
			p.Open()
			other.Open()
			hangs := begin(h, p)
			wait, release := cudatest.Hold(t, h.built.Library, unix.FAN_ACCESS_PERM)
			ended := make(chan error, 1)
			go func() { ended <- hangs() }()
			wait()
			done := make(chan error, 1)
			go func() {
				guard := h.Guard(cudaprobe.Guarded{PID: other.PID, Slots: []uint32{1}})
				done <- errors.Join(guard, h.FollowGraphs(other.PID), h.Close())
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("other calls wait for it")
			}
			release()
			if err := <-ended; err != nil && !errors.Is(err, cudaprobe.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// A process that is dropped while a file of it hangs stays dropped, and another guard of it has the new slots.
func TestMemoryDroppedWhileItsFileHangs(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	wait, release := cudatest.Hold(t, h.built.Library, unix.FAN_ACCESS_PERM)
	old := make(chan error, 1)
	go func() { old <- h.Guard(cudaprobe.Guarded{PID: p.PID, Slots: []uint32{1}}) }()
	wait()
	h.Drop(p.PID)
	if err := h.Enlist(cudaprobe.Guarded{PID: p.PID, Slots: []uint32{0}}); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-old; err == nil {
		t.Error("it is guarded, though it was dropped")
	}
	if err := h.Attach(p.PID); err != nil {
		t.Fatal(err)
	}
	h.budget(t, cudaprobe.Budget{Ceiling: h.spent(t).Bytes + mib})
	before := h.spent(t)
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Count != 1 || h.spent(t).Passed != before.Passed+1 {
		t.Errorf("%+v; %+v after %+v", a, h.spent(t), before)
	}
}

// The maps have room for the CPUs of this machine.
func TestMemoryMapsAreForThisMachine(t *testing.T) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cudabpf.LoadMemoryFor(cpus)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := newMemoryGuard(t, cudaprobe.Options{}).QuestionEntries(), spec.Maps[cudabpf.MemoryMapQuestions].MaxEntries; got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}
