package channelstest

import (
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// Tests of a container on several GPUs, which goes off and on as one.

// spread is a container with one process on two GPUs, and one more process on each of them.
func (b *bench) spread() channels.Target {
	t := of(b.Start(b.T, 2), b.Start(b.T, 1), b.Start(b.T, 1))
	seen := map[string]bool{}
	for _, p := range t.Processes {
		groups, err := b.Driver.Find(b.ctx(), p)
		b.check(err, nil)
		for _, g := range groups {
			if !seen[g.GPU] {
				seen[g.GPU] = true
				t.GPUs = append(t.GPUs, g.GPU)
			}
		}
	}
	return t
}

func (b *bench) all(processes []rm.Process, off bool) {
	b.Helper()
	for _, p := range processes {
		if off {
			b.Stands(b.T, p)
		} else {
			b.Computes(b.T, p)
		}
	}
}

func asOne(b *bench) {
	t, e := b.spread(), b.opened(true)
	for range 2 {
		r := b.takeOff(e, t)
		if len(r.Groups) != 4 || !r.AsOne || r.Skew < 0 || r.Skew > 10*time.Second {
			b.Errorf("result %+v, want 4 groups switched as one", r)
		}
		b.all(t.Processes, true)
		b.recorded(e, 3)
		if r := b.takeOff(e, t); r.AsOne {
			b.Errorf("result %+v, and nothing had to be switched", r)
		}
		r, err := e.Apply(b.ctx(), t, channels.Standing{})
		b.check(err, nil)
		if r.Off || !r.AsOne {
			b.Errorf("result %+v, want all on as one", r)
		}
		b.all(t.Processes, false)
		b.recorded(e, 0)
	}
	// Its slices apply per GPU.
	s := channels.Standing{Slices: map[string]time.Duration{t.GPUs[0]: time.Millisecond, t.GPUs[1]: 5 * time.Millisecond}}
	_, err := e.Inspect(b.ctx(), t, s)
	b.check(err, nil)
	b.pass(20 * time.Millisecond)
	_, err = e.Apply(b.ctx(), t, s)
	b.check(err, nil)
	groups, err := b.Driver.Find(b.ctx(), t.Processes[0])
	b.check(err, nil)
	for _, g := range groups {
		if d, err := b.Driver.Slice(b.ctx(), g); err != nil || d != s.Slices[g.GPU] {
			b.Errorf("slice %v on %s, %v; want %v", d, g.GPU, err, s.Slices[g.GPU])
		}
	}
	b.takeOff(e, t)
	b.all(t.Processes, true)
	b.check(e.Restore(b.ctx(), t.Processes...), nil)
	b.all(t.Processes, false)
	b.recorded(e, 0)
}

func asOneDead(b *bench) {
	t := b.spread()
	b.takeOff(b.opened(true), t)
	b.pass(2 * time.Second)
	n, err := b.enforcer().Sweep(b.ctx(), 100*time.Millisecond)
	b.check(err, nil)
	if n != len(t.Processes) {
		b.Errorf("swept %d", n)
	}
	b.all(t.Processes, false)
	b.takeOff(b.opened(true), t)
	left, err := b.enforcer().RestoreAll(b.ctx())
	b.check(err, nil)
	if left != 0 {
		b.Errorf("%d are left", left)
	}
	b.all(t.Processes, false)
	b.recorded(b.enforcer(), 0)
}
