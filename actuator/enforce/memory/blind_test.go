package memory_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

const second = "GPU-2"

// two is a guard of two GPUs, of which the second may be unreadable.
type two struct {
	*rig
	on      sync.Map                        // by PID: the GPU that lists it; GPU-1 if it is absent
	second  atomic.Pointer[func(*twoUsage)] // what becomes of the second in a reading
	why     sync.Map                        // by container: why it may get more than its limit; empty: it does not
	read    atomic.Int64                    // readings begun
	targets []memory.Target
}

type twoUsage = map[string]task.Usage

// What becomes of the second GPU in a reading.
var (
	readable = func(*twoUsage) {}
	lost     = func(u *twoUsage) { (*u)[second] = task.Usage{Err: errors.New("GPU is lost")} }
	dropped  = func(u *twoUsage) { delete(*u, second) }
)

func startTwo(t *testing.T, is func(*twoUsage), now *clock) *two {
	t.Helper()
	r := &two{}
	r.second.Store(&is)
	r.rig = start(t, func(o *memory.Options) {
		o.Usage = r.usage
		o.Passing = func(id, why string) { r.why.Store(id, why) }
		if now != nil {
			o.Now = now.Now
		}
	})
	return r
}

func (r *two) usage(context.Context) (map[string]task.Usage, error) {
	r.read.Add(1)
	if r.broken.Load() {
		return nil, errors.New("the driver is busy")
	}
	held, err := r.built.Usage()
	all := twoUsage{gpu: {Processes: map[int]uint64{}}, second: {Processes: map[int]uint64{}}}
	for pid, bytes := range held {
		where, ok := r.on.Load(pid)
		if !ok {
			where = gpu
		}
		all[where.(string)].Processes[pid] = bytes
	}
	(*r.second.Load())(&all)
	return all, err
}

// becomes changes the second GPU.
func (r *two) becomes(is func(*twoUsage)) { r.second.Store(&is) }

// reads waits for some readings.
func (r *two) reads(t *testing.T) {
	t.Helper()
	seen := r.read.Load()
	until(t, func() bool { return r.read.Load() > seen+2 }, r.reports("a"))
}

// run starts a guarded program in a container of its own, with this limit on each of its GPUs.
func (r *two) run(t *testing.T, id string, limit uint64, gpus ...string) *cudatest.Program {
	t.Helper()
	p := r.built.Start(t)
	r.members.Store(p.PID, id)
	p.Open()
	r.targets = append(r.targets, memory.Target{ID: id, PID: p.PID, GPUs: gpus, Limit: limit})
	r.Cover(r.targets)
	until(t, func() bool { return len(r.Report()[id].PIDs) > 0 }, r.reports(id))
	return p
}

// opens waits until calls on the second GPU pass, as it has been unreadable for long.
func (r *two) opens(t *testing.T) {
	t.Helper()
	p := r.run(t, "opened", mib, second)
	r.on.Store(p.PID, second)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 3); a.Count != 3 || r.Report()["opened"].FailedOpen != 3 {
		t.Fatalf("on a GPU that cannot be read: %+v; %+v", a, r.Report()["opened"])
	}
	if why, _ := r.why.Load("opened"); why != "the memory in use on GPU-2 cannot be read" {
		t.Errorf("the reason does not name the GPU: %q", why)
	}
}

// holds checks a limit of 100 MiB on GPU-1.
func (r *two) holds(t *testing.T, id string, p *cudatest.Program) {
	t.Helper()
	for range 3 {
		if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Result != cudatest.OutOfMemory || a.Count != 10 {
			t.Errorf("%s: %+v; %+v", id, a, r.Report()[id])
		}
		if a := p.Free("cuMemFree_v2", 10); a.Count != 10 {
			t.Fatalf("%s: %+v", id, a)
		}
	}
	if v := r.Report()[id]; v.FailedOpen != 0 || v.Denied < 3 {
		t.Errorf("%s: %+v", id, v)
	}
}

// A GPU that cannot be read, or that the driver has dropped, opens no limit on another one.
func TestLimitHoldsBesideAnUnreadableGPU(t *testing.T) {
	for name, is := range map[string]func(*twoUsage){"lost": lost, "dropped": dropped} {
		t.Run(name, func(t *testing.T) {
			r := startTwo(t, readable, nil)
			one := r.run(t, "one", 100*mib, gpu)
			both := r.run(t, "both", 100*mib, gpu, second)
			both.Context("cuCtxCreate_v2", 0)
			r.becomes(is)
			r.opens(t)
			r.holds(t, "one", one)
			r.holds(t, "both", both)
			// Nobody knows on which GPU a thread without a context allocates.
			if a := both.BeginAllocInThread("cuMemAlloc_v2", 10*mib, 100)(); a.Count != 10 || r.Report()["both"].FailedOpen != 0 {
				t.Errorf("%+v; %+v", a, r.Report()["both"])
			}
		})
	}
}

// A GPU that was never read is as one that was lost later.
func TestLimitHoldsBesideAGPUThatWasNeverRead(t *testing.T) {
	r := startTwo(t, lost, nil)
	one := r.run(t, "one", 100*mib, gpu)
	r.opens(t)
	r.holds(t, "one", one)
}

// A program that leaves out a GPU that cannot be read counts the other one first.
func TestLimitHoldsThoughTheUnreadableGPUIsTheFirst(t *testing.T) {
	r := startTwo(t, lost, nil)
	r.opens(t)
	p := r.run(t, "both", 100*mib, second, gpu)
	p.Context("cuCtxCreate_v2", 0)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 1); a.Count != 1 { // so that GPU-1 lists it
		t.Fatalf("%+v", a)
	}
	report := r.reports("both")
	until(t, func() bool { return report().Held[gpu] > 0 }, report)
	var before uint64
	until(t, func() bool { // until then its calls count on the first, and pass
		before = report().FailedOpen
		p.Alloc("cuMemAlloc_v2", mib, 1)
		p.Free("cuMemFree_v2", 1)
		return report().FailedOpen == before
	}, report)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 100); a.Count != 9 || report().FailedOpen != before {
		t.Errorf("%+v; %+v", a, report())
	}
}

// A GPU that cannot be read for a moment lets nobody exceed a limit.
func TestUnreadableGPUForAMoment(t *testing.T) {
	now := clock{still: time.Now()}
	r := startTwo(t, readable, &now)
	p := r.run(t, "a", 100*mib, gpu, second)
	r.on.Store(p.PID, second)
	p.Context("cuCtxCreate_v2", 1)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 1); a.Count != 1 {
		t.Fatalf("%+v", a)
	}
	r.becomes(lost)
	called := p.BeginAlloc("cuMemAlloc_v2", 150*mib, 1, 1)
	r.waiting(t)
	until(t, func() bool { return strings.Contains(r.Waits()["a"], second) }, r.reports("a"))
	r.becomes(readable)
	if a := called(); a.Count != 0 || r.Report()["a"].FailedOpen != 0 {
		t.Errorf("%+v; %+v", a, r.Report()["a"])
	}
}

// What was held on a GPU before it could not be read, and what was taken since, gives no room when it can
// be read again, also while it does not list the process yet.
func TestUnreadableGPUReturns(t *testing.T) {
	now := clock{still: time.Now()}
	r := startTwo(t, readable, &now)
	p := r.run(t, "a", 100*mib, second)
	r.on.Store(p.PID, second)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 5); a.Count != 5 {
		t.Fatalf("%+v", a)
	}
	report := r.reports("a")
	until(t, func() bool { return report().Held[second] == 50*mib }, report)
	r.becomes(lost)
	r.reads(t)
	now.set(time.Second)
	r.opens(t)
	if a := p.Alloc("cuMemAlloc_v2", 10*mib, 4); a.Count != 4 || report().FailedOpen < 4 {
		t.Fatalf("%+v; %+v", a, report())
	}
	if v := report(); v.Held[second] < 90*mib {
		t.Errorf("it holds 90 MiB: %+v", v)
	}
	r.becomes(func(u *twoUsage) { (*u)[second] = task.Usage{} })
	called := p.BeginAlloc("cuMemAlloc_v2", 10*mib, 100, 1)
	until(t, func() bool { return report().Waiting == 1 }, report)
	r.becomes(readable)
	if a := called(); a.Count != 1 || a.Result != cudatest.OutOfMemory {
		t.Errorf("%+v; %+v", a, report())
	}
}

// TestUnreadFailureEnds: a container whose call passed for want of a reading may get more than its
// limit until a later reading of all of its GPUs shows it within the limit and one context.
func TestUnreadFailureEnds(t *testing.T) {
	breaks := func(r *two, is bool) { r.broken.Store(is) }
	loses := func(r *two, is bool) {
		if is {
			r.becomes(lost)
		} else {
			r.becomes(readable)
		}
	}
	for name, tt := range map[string]struct {
		unreadable   func(r *two, is bool)
		bytes        uint64
		soon, beyond bool
	}{
		"nothing can be read":               {unreadable: breaks, bytes: 10 * mib},
		"one GPU cannot be read":            {unreadable: loses, bytes: 10 * mib},
		"for a moment":                      {unreadable: breaks, bytes: 10 * mib, soon: true},
		"beyond its limit, by less":         {unreadable: breaks, bytes: 120 * mib},
		"beyond its limit, and one context": {unreadable: breaks, bytes: 200 * mib, beyond: true},
	} {
		t.Run(name, func(t *testing.T) {
			var now clock
			r := startTwo(t, readable, &now)
			p := r.run(t, "a", 100*mib, gpu, second)
			r.on.Store(p.PID, second)
			p.Context("cuCtxCreate_v2", 1)
			report := r.reports("a")
			failed := func() bool { why, _ := r.why.Load("a"); return why != nil && why != "" }
			later := func(ahead time.Duration) { // and some readings
				now.set(ahead)
				r.reads(t)
			}
			tt.unreadable(r, true)
			later(0)
			if a := p.Alloc("cuMemAlloc_v2", tt.bytes, 1); a.Count != 1 || !failed() {
				t.Fatalf("%+v; %+v", a, report())
			}
			passed := time.Now()
			if !tt.soon {
				later(time.Minute)
				if !failed() {
					t.Fatal("it ended without a reading")
				}
			}
			tt.unreadable(r, false)
			if tt.soon {
				later(0)
				if !failed() && time.Since(passed) < 4*time.Second {
					t.Fatal("it ended though the driver may not list what passed")
				}
			}
			later(2 * time.Minute)
			if tt.beyond {
				if !failed() {
					t.Fatalf("it ended beyond the limit: %+v", report())
				}
				p.Free("cuMemFree_v2", 1)
			}
			until(t, func() bool { return !failed() }, report)
			if a := p.Alloc("cuMemAlloc_v2", 200*mib, 1); a.Result != cudatest.OutOfMemory {
				t.Errorf("the limit holds again: %+v", a)
			}
		})
	}
}
