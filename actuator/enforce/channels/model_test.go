package channels_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/internal/rm"
)

var errDriver = errors.New("the driver refuses")

// plan says what goes wrong in one operation: its steps are the driver's calls and the
// writes of the record, each before and after.
type plan struct {
	die  int // at which step the actuator dies; -1: it does not
	fail []bool
}

// actuator is an enforcer whose program can die at every step: nothing that it began goes
// on after that.
type actuator struct {
	*channels.Enforcer
	mu   sync.Mutex
	plan plan
	at   int
	dead bool
}

func (a *actuator) begin(p plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plan, a.at = p, 0
}

func (a *actuator) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}

// step is one step; it does not return when the actuator dies there.
func (a *actuator) step() (fails bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = a.dead || a.at == a.plan.die
	if a.dead {
		runtime.Goexit()
	}
	fails = a.at < len(a.plan.fail) && a.plan.fail[a.at]
	a.at++
	return fails
}

func (a *actuator) call() error {
	if a.step() {
		return errDriver
	}
	return nil
}

// world is a machine, its processes, and who acts on them.
type world struct {
	*rapid.T
	machine  *channelstest.Machine
	dir      string
	now      atomic.Int64
	actuator *actuator
	guardian *actuator
	live     []rm.Process
	exiting  []rm.Process
	former   []rm.Process // have been, with a PID that is used again or not
	own      map[rm.Process][]time.Duration
	aside    map[rm.Process]bool // nobody has a standing for it
	asOne    bool                // containers on several GPUs go off as one
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) enforcer() *actuator {
	a := &actuator{plan: plan{die: -1}}
	driver := channelstest.Faulty{Driver: w.machine,
		Before: func(context.Context, string) error { return a.call() },
		After:  func(string) error { return a.call() }}
	var err error
	a.Enforcer, err = channels.New(channels.Options{Driver: driver, Dir: w.dir, State: w.machine.State, AsOne: w.asOne,
		Deadline: time.Minute, Settle: time.Nanosecond,
		After: neverEnds, // the sweeper does it
		Now:   func() time.Duration { return time.Duration(w.now.Add(1000)) }})
	w.must(err)
	a.OnStep(func(string) { a.step() })
	return a
}

func (w *world) pick(of []rm.Process) (p rm.Process, ok bool) {
	if len(of) == 0 {
		return p, false
	}
	return rapid.SampledFrom(of).Draw(w.T, "process"), true
}

func (w *world) start(pid int) rm.Process {
	gpus := rapid.SampledFrom([][]string{gpuNames[:1], gpuNames[:1], gpuNames[:1], gpuNames, nil}).Draw(w.T, "gpus")
	p := w.machine.Start(pid, gpus...)
	w.live = append(w.live, p)
	w.own[p] = []time.Duration{channelstest.OwnSlice}
	w.aside[p] = rapid.IntRange(0, 3).Draw(w.T, "aside") == 0
	return p
}

func (w *world) freePID() int {
	for pid := 2; ; pid++ {
		if !slices.ContainsFunc(append(slices.Clone(w.live), w.exiting...), func(p rm.Process) bool { return p.PID == pid }) {
			return pid // the least, so that PIDs are used again
		}
	}
}

func (w *world) end(p rm.Process) {
	w.machine.Kill(p)
	is := func(other rm.Process) bool { return other == p }
	w.live, w.exiting = slices.DeleteFunc(w.live, is), slices.DeleteFunc(w.exiting, is)
	w.former = append(w.former, p)
}

// target is some processes with a standing, some of which may have ended.
func (w *world) target() channels.Target {
	t := channels.Target{Container: "c"}
	for _, p := range slices.Concat(w.live, w.exiting, w.former) {
		if !w.aside[p] && rapid.Bool().Draw(w.T, "in") {
			t.Processes = append(t.Processes, p)
		}
	}
	return t
}

func (w *world) plan() plan {
	p := plan{die: -1}
	if rapid.IntRange(0, 2).Draw(w.T, "dies") == 0 {
		p.die = rapid.IntRange(0, 25).Draw(w.T, "at")
	}
	if rapid.Bool().Draw(w.T, "faults") {
		p.fail = rapid.SliceOfN(rapid.Bool(), 0, 30).Draw(w.T, "fail")
	}
	return p
}

// act is one operation of the actuator, which may die in it. The next one undoes first.
func (w *world) act(f func(*actuator)) {
	w.actuator.begin(w.plan())
	f(w.actuator)
	if !w.actuator.gone() {
		return
	}
	w.check() // with nobody there
	if rapid.Bool().Draw(w.T, "guardian first") {
		w.guard(func(g *actuator) { _, _ = g.RestoreAll(w.Context()) }) // its calls may fail
	}
	w.actuator = w.enforcer()
	w.guard(func(*actuator) { _, _ = w.actuator.RestoreAll(w.Context()) })
}

// guard is one operation of the guardian, whose calls may fail.
func (w *world) guard(f func(*actuator)) {
	p := w.plan()
	p.die = -1
	w.guardian.begin(p)
	f(w.guardian)
	w.guardian.begin(plan{die: -1})
}

// check is what holds at every moment, whoever is alive: who is touched is on record.
func (w *world) check() {
	w.Helper()
	records := map[rm.Process]channels.Record{}
	list, err := w.guardian.Records()
	w.must(err)
	for _, r := range list {
		records[r.Process()] = r
	}
	for _, p := range w.live {
		r := records[p]
		if n := w.machine.Off(p); n > 0 && !r.Off() {
			w.Fatalf("%d channels of %v are off, and the record says %+v", n, p, r)
		}
		for _, d := range w.machine.Slices(p) {
			if !slices.Contains(w.own[p], d) && !slices.ContainsFunc(r.Groups, func(e channels.Entry) bool { return e.Slice != 0 }) {
				w.Fatalf("%v has a slice of %v, and the record says %+v", p, d, r)
			}
		}
		if w.aside[p] && w.machine.Changes(p) > 0 {
			w.Fatalf("%v was touched", p)
		}
	}
	if wrong := w.machine.Wrong(); len(wrong) > 0 {
		w.Fatalf("calls for processes that were not meant: %v", wrong)
	}
}

func (w *world) ops() map[string]func(*rapid.T) {
	ctx := w.Context()
	standing := func() channels.Standing {
		return channels.Standing{
			Off:   rapid.Bool().Draw(w.T, "off"),
			Slice: rapid.SampledFrom([]time.Duration{0, time.Microsecond, 500 * time.Microsecond, time.Second}).Draw(w.T, "slice"),
		}
	}
	op := func(f func()) func(*rapid.T) {
		return func(t *rapid.T) { w.T = t; f() }
	}
	onLive := func(f func(p rm.Process)) func(*rapid.T) {
		return op(func() {
			if p, ok := w.pick(w.live); ok {
				f(p)
			}
		})
	}
	return map[string]func(*rapid.T){
		"start": op(func() {
			if len(w.live) < 5 {
				w.start(w.freePID())
			}
		}),
		"end": onLive(w.end),
		"is exiting": onLive(func(p rm.Process) {
			w.machine.SetState(p, channels.Exiting)
			w.live = slices.DeleteFunc(w.live, func(other rm.Process) bool { return other == p })
			w.exiting = append(w.exiting, p)
		}),
		"has exited": op(func() {
			if p, ok := w.pick(w.exiting); ok {
				w.end(p)
			}
		}),
		"trace":       onLive(func(p rm.Process) { w.machine.SetState(p, channels.Traced) }),
		"trace no":    onLive(func(p rm.Process) { w.machine.SetState(p, channels.Lives) }),
		"new context": onLive(func(p rm.Process) { w.machine.AddGroup(p, rapid.SampledFrom(gpuNames).Draw(w.T, "gpu")) }),
		"new stream":  onLive(w.machine.AddChannel),
		"end context": onLive(w.machine.DropGroup),
		"own slice": onLive(func(p rm.Process) {
			d := 7 * time.Millisecond
			w.own[p] = append(w.own[p], d)
			w.machine.Own(p, d)
		}),
		"time": op(func() { w.now.Add(rapid.Int64Range(0, int64(2*time.Second)).Draw(w.T, "passes")) }),
		"apply": op(func() {
			t, s := w.target(), standing()
			w.act(func(a *actuator) { _, _ = a.Apply(ctx, t, s) }) // whatever comes of it
		}),
		"ladder": onLive(func(p rm.Process) { // from one slice to another, and it dies in between
			if w.aside[p] {
				return
			}
			t := channels.Target{Processes: []rm.Process{p}}
			for _, d := range []time.Duration{time.Millisecond, time.Millisecond, time.Second} {
				w.act(func(a *actuator) { _, _ = a.Apply(ctx, t, channels.Standing{Slice: d}) })
			}
		}),
		"look": op(func() {
			t, s := w.target(), standing()
			w.act(func(a *actuator) { _, _ = a.Inspect(ctx, t, s) })
		}),
		"restore": op(func() {
			t := w.target()
			w.act(func(a *actuator) { _ = a.Restore(ctx, t.Processes...) })
		}),
		"sweep": op(func() {
			w.guard(func(g *actuator) { _, _ = g.Sweep(ctx, 100*time.Millisecond) })
		}),
		"sweep in peace": op(func() {
			_, err := w.guardian.Sweep(ctx, 0)
			if err == nil {
				list, _ := w.guardian.Records()
				for _, r := range list {
					if slices.Contains(w.live, r.Process()) && r.Off() && r.Until <= time.Duration(w.now.Load()) {
						w.Fatalf("left though its lease is over: %+v", r)
					}
				}
			}
		}),
		"": op(w.check),
	}
}

// Whatever is asked for, fails, ends, or dies at whichever step: who is touched is on
// record, and after an undo whoever lives is on with its own slice. Nobody else is touched.
func TestWhateverHappensIsUndone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "laxity-test-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := &world{T: rt, machine: channelstest.NewMachine(), dir: dir, own: map[rm.Process][]time.Duration{}, aside: map[rm.Process]bool{},
			asOne: rapid.Bool().Draw(rt, "as one")}
		w.actuator, w.guardian = w.enforcer(), w.enforcer()
		rt.Repeat(w.ops())
		w.T = rt
		for _, p := range slices.Clone(w.exiting) {
			w.end(p)
		}
		left, err := w.guardian.RestoreAll(rt.Context())
		if left != 0 || err != nil {
			rt.Fatalf("%d left: %v", left, err)
		}
		list, err := w.guardian.Records()
		if len(list) > 0 || err != nil {
			rt.Fatalf("on record: %+v, %v", list, err)
		}
		w.check()
		for _, p := range w.live {
			if n := w.machine.Off(p); n > 0 {
				rt.Fatalf("%d channels of %v are off", n, p)
			}
		}
	})
}
