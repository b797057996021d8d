package channelstest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// Subject is a driver, with processes that the suite controls as their owners would.
type Subject struct {
	Driver channels.Driver
	// State is as in channels.Options.
	State func(rm.Process) (channels.State, error)
	// Start begins a process that computes without end on this many GPUs, and returns once it
	// computes. It skips the test where that is impossible.
	Start func(t *testing.T, gpus int) rm.Process
	// Computes fails unless the process keeps computing.
	Computes func(t *testing.T, p rm.Process)
	// Stands fails if the process computes.
	Stands func(t *testing.T, p rm.Process)
	// Kill ends the process, and returns when its GPU memory is free. It fails if that takes more
	// than a second.
	Kill func(t *testing.T, p rm.Process)
	// AddGroup gives the process one more group on its GPU; nil: it cannot.
	AddGroup func(t *testing.T, p rm.Process)
}

// bench is one test: a subject, its enforcer, and a clock.
type bench struct {
	*testing.T
	Subject
	dir string
	now atomic.Int64
	// ends are called when a lease ends.
	ends []func()
}

// Run runs the suite. fresh is called once for each test.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(*bench){
		"off and on":                offAndOn,
		"twice is once":             twice,
		"a slice, and its own back": slice,
		"a slice that is too new":   unsettled,
		"a tenant's own change":     changed,
		"a lease ends":              lease,
		"a lease is renewed":        renewed,
		"a lease ends by itself":    endsByItself,
		"gone while off":            goneWhileOff,
		"a PID used again":          usedAgain,
		"the actuator is dead":      dead,
		"an unreadable record":      unreadable,
		"several GPUs":              severalGPUs,
		"several GPUs as one":       asOne,
		"as one, an actuator dies":  asOneDead,
		"a group made while off":    newGroup,
		"nothing without a record":  noRecord,
		"several processes":         several,
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{T: t, Subject: fresh(t), dir: t.TempDir()}
			b.now.Store(int64(time.Hour))
			test(b)
		})
	}
}

func (b *bench) enforcer() *channels.Enforcer { b.Helper(); return b.opened(false) }

func (b *bench) opened(asOne bool) *channels.Enforcer {
	b.Helper()
	e, err := channels.New(channels.Options{Driver: b.Driver, Dir: b.dir, State: b.State, AsOne: asOne,
		Deadline: 20 * time.Second, Settle: 20 * time.Millisecond,
		After: func(_ time.Duration, f func()) func() {
			b.ends = append(b.ends, f)
			return func() {}
		},
		Now: func() time.Duration { return time.Duration(b.now.Load()) }})
	b.check(err, nil)
	return e
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.Cleanup(cancel)
	return ctx
}

func (b *bench) check(err, want error) {
	b.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		b.Fatalf("error %v, want %v", err, want)
	}
}

func (b *bench) pass(d time.Duration) { b.now.Add(int64(d)) }

func of(processes ...rm.Process) channels.Target {
	return channels.Target{Container: "container", Processes: processes}
}

// off is a standing that takes a target off the GPU.
var off = channels.Standing{Off: true, Reason: "test"}

func (b *bench) recorded(e *channels.Enforcer, want int) {
	b.Helper()
	list, err := e.Records()
	b.check(err, nil)
	if len(list) != want {
		b.Errorf("on record: %+v, want %d", list, want)
	}
}

func (b *bench) takeOff(e *channels.Enforcer, t channels.Target) channels.Result {
	b.Helper()
	r, err := e.Apply(b.ctx(), t, off)
	b.check(err, nil)
	if !r.Off || len(r.Groups) == 0 {
		b.Fatalf("result %+v, want off", r)
	}
	return r
}

func (b *bench) slices(p rm.Process) (list []time.Duration) {
	b.Helper()
	groups, err := b.Driver.Find(b.ctx(), p)
	b.check(err, nil)
	for _, g := range groups {
		d, err := b.Driver.Slice(b.ctx(), g)
		b.check(err, nil)
		list = append(list, d)
	}
	return list
}

// set gives a process a slice once the slice has settled.
func (b *bench) set(e *channels.Enforcer, p rm.Process, d time.Duration) {
	b.Helper()
	s := channels.Standing{Slice: d}
	_, err := e.Inspect(b.ctx(), of(p), s)
	b.check(err, nil)
	b.pass(20 * time.Millisecond)
	r, err := e.Apply(b.ctx(), of(p), s)
	b.check(err, nil)
	if got := b.slices(p); r.Unsettled || !slices.Equal(got, []time.Duration{d}) {
		b.Fatalf("slices %v, result %+v; want %v", got, r, d)
	}
}

func offAndOn(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	b.Stands(b.T, p)
	b.recorded(e, 1)
	r, err := e.Apply(b.ctx(), of(p), channels.Standing{})
	b.check(err, nil)
	if r.Off {
		b.Errorf("result %+v", r)
	}
	b.Computes(b.T, p)
	b.recorded(e, 0)
}

func twice(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	b.takeOff(e, of(p))
	b.Stands(b.T, p)
	for range 2 {
		b.check(e.Restore(b.ctx(), p), nil)
		b.Computes(b.T, p)
		b.recorded(e, 0)
	}
}

func slice(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	own := b.slices(p)
	b.set(e, p, 500*time.Microsecond)
	b.recorded(e, 1)
	b.set(e, p, time.Second)
	b.takeOff(e, of(p)) // and its slice stays
	if got := b.slices(p); got[0] != time.Second {
		b.Errorf("slices %v while off", got)
	}
	r, err := e.Apply(b.ctx(), of(p), channels.Standing{Off: true, Slice: time.Millisecond})
	b.check(err, nil)
	if got := b.slices(p); !r.Off || got[0] != time.Millisecond {
		b.Errorf("slices %v, result %+v: want another slice while off", got, r)
	}
	b.Stands(b.T, p)
	_, err = e.Apply(b.ctx(), of(p), channels.Standing{})
	b.check(err, nil)
	if got := b.slices(p); !slices.Equal(got, own) {
		b.Errorf("slices %v, want its own %v back", got, own)
	}
	b.recorded(e, 0)
	for _, d := range []time.Duration{-1, 999, 101 * time.Second} {
		if _, err := e.Apply(b.ctx(), of(p), channels.Standing{Slice: d}); err == nil {
			b.Errorf("a slice of %v was taken", d)
		}
	}
}

func unsettled(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	own := b.slices(p)
	r, err := e.Apply(b.ctx(), of(p), channels.Standing{Slice: time.Second})
	b.check(err, nil)
	if got := b.slices(p); !r.Unsettled || !slices.Equal(got, own) {
		b.Errorf("slices %v, result %+v: it was seen for the first time", got, r)
	}
	b.recorded(e, 0)
}

func changed(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.set(e, p, time.Second)
	groups, err := b.Driver.Find(b.ctx(), p)
	b.check(err, nil)
	b.check(b.Driver.SetSlice(b.ctx(), groups[0], 3*time.Millisecond), nil)
	r, err := e.Inspect(b.ctx(), of(p), channels.Standing{Slice: time.Second})
	b.check(err, nil)
	if got := b.slices(p); len(r.Changed) != 1 || got[0] != time.Second {
		b.Errorf("slices %v, result %+v: want it told, and ours again", got, r)
	}
	r, err = e.Inspect(b.ctx(), of(p), channels.Standing{Slice: time.Second})
	if err != nil || len(r.Changed) != 0 {
		b.Errorf("told twice: %+v, %v", r, err)
	}
	b.check(e.Restore(b.ctx(), p), nil)
	if got := b.slices(p); got[0] != 3*time.Millisecond {
		b.Errorf("slices %v, want what it chose last", got)
	}
}

func lease(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	r, err := e.Apply(b.ctx(), of(p), channels.Standing{Off: true, Lease: time.Hour})
	b.check(err, nil)
	if left := r.Until - time.Duration(b.now.Load()); left != time.Second {
		b.Errorf("a lease of %v, want 1s at most", left)
	}
	guardian := b.enforcer()
	b.pass(time.Second)
	n, err := guardian.Sweep(b.ctx(), 100*time.Millisecond)
	b.check(err, nil)
	b.Stands(b.T, p)
	b.pass(100 * time.Millisecond)
	again, err := guardian.Sweep(b.ctx(), 100*time.Millisecond)
	b.check(err, nil)
	if n != 0 || again != 1 {
		b.Errorf("swept %d and %d, want 0 within the grace and 1 after", n, again)
	}
	b.Computes(b.T, p)
	b.recorded(e, 0)
}

func renewed(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	for range 3 {
		b.takeOff(e, of(p))
		b.pass(900 * time.Millisecond)
		if n, err := e.Sweep(b.ctx(), 0); n != 0 || err != nil {
			b.Errorf("swept %d, %v", n, err)
		}
	}
	b.Stands(b.T, p)
	b.check(e.Restore(b.ctx(), p), nil)
}

func endsByItself(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	b.pass(time.Second)
	b.takeOff(e, of(p)) // renewed as it ends
	b.ends[0]()
	b.Stands(b.T, p)
	b.pass(time.Second)
	b.ends[1]()
	b.Computes(b.T, p)
	b.recorded(e, 0)
	b.ends[1]() // nothing is left of it
}
