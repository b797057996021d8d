package cudaprobe_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const mib = 1 << 20

// guarded is a memory guard on the stand-in library, and its events.
type guarded struct {
	*cudaprobe.MemoryGuard
	built  cudatest.Built
	events chan cudaprobe.Event
	name   string

	mu      sync.Mutex
	closing bool
}

func newMemoryGuard(t testing.TB, o cudaprobe.Options) *guarded {
	t.Helper()
	name := cudatest.RecordName(t)
	g, err := cudaprobe.NewMemoryGuard(cudaprobe.GateOptions{Options: o, Pins: name})
	if errors.Is(err, cudaprobe.ErrUnsupported) && errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Renew(time.Hour); err != nil {
		t.Fatal(err)
	}
	h := &guarded{MemoryGuard: g, built: cudatest.Build(t), events: make(chan cudaprobe.Event, 1024), name: name}
	go func() {
		defer close(h.events)
		for {
			e, err := g.Next()
			if err != nil {
				return
			}
			if e.Kind != cudaprobe.Continued {
				h.events <- e
				continue
			}
			go h.goOn(e.PID)
		}
	}()
	t.Cleanup(func() {
		h.mu.Lock()
		h.closing = true
		h.mu.Unlock()
		if err := errors.Join(g.Close(), cudaprobe.RemoveRecord(cudaprobe.PinFolder(name))); err != nil {
			t.Error(err)
		}
	})
	return h
}

// goOn continues a process that was stopped again too late.
func (h *guarded) goOn(pid int) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(pidfd)
	for end := time.Now().Add(patience / 15); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		done := h.closing
		if !done {
			done, _ = h.Again(pid, pidfd, "/proc") // else its test does not go on
		}
		h.mu.Unlock()
		if done {
			return
		}
	}
}

// open starts a guarded program on slot 0.
func (h *guarded) open(t testing.TB) (p *cudatest.Program, pidfd int) {
	t.Helper()
	p = h.built.Start(t)
	p.Open()
	if err := h.Guard(p.PID, []uint32{0}, 0, 1); err != nil {
		t.Fatal(err)
	}
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
		if e.PID != p.PID || e.Kind != cudaprobe.Held {
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

// seen says that the ledger shows all contexts that a program has made.
func (h *guarded) seen(t testing.TB, p *cudatest.Program) {
	t.Helper()
	pool, err := h.PoolOf(p.PID)
	if err := errors.Join(err, h.Note(p.PID, 0, 0, pool.Contexts)); err != nil {
		t.Fatal(err)
	}
}

func (h *guarded) end(t testing.TB, pidfd int, c cudaprobe.Call) {
	t.Helper()
	if err := h.Continue(c.PID, pidfd, []cudaprobe.Call{c}); err != nil {
		t.Fatal(err)
	}
}

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
				before, _, _, _ := h.Spent(0)
				h.budget(t, cudaprobe.Budget{Ceiling: before + 4*mib})
				if a := p.Alloc(name, mib, 4); a.Result != 0 || a.Count != 4 {
					t.Fatalf("%s: %+v", name, a)
				}
				if spent, _, _, err := h.Spent(0); spent-before != 4*mib || err != nil {
					t.Fatalf("%s: spent %d, %v", name, spent-before, err)
				}
				called := p.BeginAlloc(name, mib, 1, 1)
				c := h.held(t, p)
				awaitState(t, p.PID, "T")
				if list, err := h.List(); err != nil || len(list) != 1 || list[0].PID != p.PID {
					t.Fatalf("%s: on record %+v, %v", name, list, err)
				}
				if slot, ok := c.Slot(); c.Bytes != mib || slot != 0 || !ok {
					t.Fatalf("%s: %+v", name, c)
				}
				if err := h.Deny(c); err != nil {
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
				if list, err := h.List(); err != nil || len(list) != 0 {
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
		} else if err := h.Deny(c); err != nil {
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
	if pool, err := h.PoolOf(p.PID); err != nil || pool.Used != 300*mib || pool.Peak != 300*mib {
		t.Errorf("%+v, %v", pool, err)
	}
	p.Free("cuMemFreeAsync", 100)
	if pool, err := h.PoolOf(p.PID); err != nil || pool.Used != 0 || pool.Peak != 300*mib {
		t.Errorf("%+v, %v", pool, err)
	}
	if a := p.Alloc("cuMemAllocAsync", 3*mib, 100); a.Count != 100 { // its pool has it already
		t.Error(a)
	}
}

// What a context takes is a guess until the ledger shows it: somebody is asked meanwhile.
func TestMemoryAfterAContext(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	if err := h.Guard(p.PID, []uint32{0}, 10*mib, 0); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	before, _, _, _ := h.Spent(0)
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
	if spent, _, _, err := h.Spent(0); spent-before != 13*mib || err != nil {
		t.Errorf("spent %d MiB, %v", (spent-before)/mib, err)
	}
}

// The first node with memory is asked about, and counts until its graph is launched or
// destroyed; another one passes.
func TestMemoryOfGraphs(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	before, _, _, _ := h.Spent(0)
	h.budget(t, cudaprobe.Budget{Ceiling: before + 100*mib})
	want := func(when string, bytes uint64) {
		t.Helper()
		if pool, err := h.PoolOf(p.PID); err != nil || pool.Graphs != bytes {
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
	if spent, _, _, err := h.Spent(0); spent-before != 12*mib || err != nil {
		t.Errorf("spent %d MiB, %v", (spent-before)/mib, err)
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

// With several GPUs an allocation counts on that of the thread's current context.
func TestMemoryOfTheCurrentContext(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	if err := h.Guard(p.PID, []uint32{0, 1, 2}, 0, 0); err != nil {
		t.Fatal(err)
	}
	spent := func() (all [3]uint64) {
		for slot := range all {
			all[slot], _, _, _ = h.Spent(uint32(slot))
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
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 2) // in threads that have no context
	for range 2 {
		c := h.held(t, p)
		if slot, known := c.Slot(); known {
			t.Errorf("it is not known on which GPU, and counts on %d", slot)
		}
		if err := h.Deny(c); err != nil {
			t.Error(err)
		}
		h.end(t, pidfd, c)
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
			if err := h.Show(c, 70*mib, 120*mib); err != nil {
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

// A process that is dropped while a call of it is held can be let go all the same.
func TestMemoryLost(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, pidfd := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	h.held(t, p)
	if lost := h.Lost(p.PID); len(lost) != 0 {
		t.Errorf("%+v, of which somebody can decide", lost)
	}
	h.Drop(p.PID)
	lost := h.Lost(p.PID)
	if len(lost) != 1 {
		t.Fatalf("%+v", lost)
	}
	if err := h.Continue(p.PID, pidfd, lost); err != nil {
		t.Error(err)
	}
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	if lost := h.Lost(p.PID); len(lost) != 0 {
		t.Errorf("still on record: %+v", lost)
	}
}

// Somebody else's SIGCONT lets no held call through.
func TestMemoryForeignContinue(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	if err := h.Weakness(); err != nil {
		t.Skip(err)
	}
	p, pidfd := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	c := h.held(t, p)
	for range 300 {
		awaitState(t, p.PID, "T")
		signal(t, p, syscall.SIGCONT)
	}
	if err := h.Deny(c); err != nil {
		t.Error(err)
	}
	h.end(t, pidfd, c)
	if a := called(); a.Count != 0 || a.Result != cudatest.OutOfMemory {
		t.Error(a)
	}
}

// With nobody to renew it, the guard lets all pass, and its record continues whom
// it had stopped.
func TestMemoryOpen(t *testing.T) {
	h := newMemoryGuard(t, cudaprobe.Options{})
	p, _ := h.open(t)
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 1, 1)
	h.held(t, p)
	awaitState(t, p.PID, "T")
	record, err := cudaprobe.OpenRecord(cudaprobe.PinFolder(h.name))
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	if err := record.Open(); err != nil {
		t.Fatal(err)
	}
	signal(t, p, syscall.SIGCONT)
	if a := called(); a.Count != 1 {
		t.Error(a)
	}
	if list, err := record.List(); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if err := record.Forget(p.PID); err != nil {
		t.Error(err)
	}
	if list, err := record.List(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if a := p.Alloc("cuMemAlloc_v2", mib, 1); a.Count != 1 {
		t.Error(a)
	}
	if _, _, opened, err := h.Spent(0); opened != 1 || err != nil {
		t.Error(opened, err)
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
		t.Skip("cannot trace:", err)
	}
	if err := h.Deny(c); !errors.Is(err, cudaprobe.ErrCannotDeny) {
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
