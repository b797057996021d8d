package channelstest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// Tests of processes, actuators and records that end.

func goneWhileOff(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	b.Kill(b.T, p)
	_, err := e.Apply(b.ctx(), of(p), off)
	b.check(err, channels.ErrGone)
	b.recorded(e, 0)
	b.check(e.Restore(b.ctx(), p), nil)
	other := b.Start(b.T, 1)
	b.takeOff(e, of(other))
	b.Kill(b.T, other)
	left, err := e.RestoreAll(b.ctx())
	b.check(err, nil)
	if left != 0 {
		b.Errorf("%d are left", left)
	}
	b.recorded(e, 0)
}

func usedAgain(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	former := rm.Process{PID: p.PID, Start: p.Start - 1}
	_, err := e.Apply(b.ctx(), of(former), off)
	b.check(err, channels.ErrGone)
	b.Computes(b.T, p)
	b.takeOff(e, of(former, p)) // who is left counts
	b.Stands(b.T, p)
	b.check(e.Restore(b.ctx(), former), nil)
	b.Stands(b.T, p)
	b.check(e.Restore(b.ctx(), p), nil)
	b.Computes(b.T, p)
}

func dead(b *bench) {
	p, held, e := b.Start(b.T, 1), b.Start(b.T, 1), b.enforcer()
	own := b.slices(p)
	b.set(e, p, time.Second)
	b.takeOff(e, of(held))
	left, err := b.enforcer().RestoreAll(b.ctx())
	b.check(err, nil)
	if got := b.slices(p); left != 0 || !slices.Equal(got, own) {
		b.Errorf("%d left, slices %v; want %v", left, got, own)
	}
	b.Computes(b.T, held)
	b.recorded(e, 0)
}

func unreadable(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	files, err := filepath.Glob(filepath.Join(b.dir, "*.json"))
	b.check(err, nil)
	b.check(os.WriteFile(files[0], []byte(`{"pid":`), 0o600), nil)
	b.recorded(e, 1)
	left, err := b.enforcer().RestoreAll(b.ctx())
	b.check(err, nil)
	if left != 0 {
		b.Errorf("%d left", left)
	}
	b.Computes(b.T, p)
	b.recorded(e, 0)
}

func severalGPUs(b *bench) {
	p, e := b.Start(b.T, 2), b.enforcer()
	_, err := e.Apply(b.ctx(), of(p), off)
	b.check(err, channels.ErrSeveralGPUs)
	b.Computes(b.T, p)
	b.recorded(e, 0)
}

func newGroup(b *bench) {
	if b.AddGroup == nil {
		b.Skip("this subject cannot make a process use its GPU by another group while it is off")
	}
	p, e := b.Start(b.T, 1), b.enforcer()
	b.takeOff(e, of(p))
	b.AddGroup(b.T, p)
	b.Computes(b.T, p)
	r, err := e.Inspect(b.ctx(), of(p), off)
	b.check(err, nil)
	if !r.Off || len(r.Groups) != 2 {
		b.Errorf("result %+v", r)
	}
	b.Stands(b.T, p)
	b.check(e.Restore(b.ctx(), p), nil)
	b.Computes(b.T, p)
}

func noRecord(b *bench) {
	p, e := b.Start(b.T, 1), b.enforcer()
	groups, err := b.Driver.Find(b.ctx(), p)
	b.check(err, nil)
	b.check(b.Driver.Switch(b.ctx(), groups, false), nil) // a debugger's doing, say
	left, err := e.RestoreAll(b.ctx())
	b.check(errors.Join(err, e.Restore(b.ctx(), p)), nil)
	n, err := e.Sweep(b.ctx(), 0)
	b.check(err, nil)
	_, err = e.Inspect(b.ctx(), of(p), channels.Standing{})
	b.check(err, nil)
	if left != 0 || n != 0 {
		b.Errorf("%d left, %d swept", left, n)
	}
	b.Stands(b.T, p)
	b.check(b.Driver.Switch(b.ctx(), groups, true), nil)
}

func several(b *bench) {
	all := []rm.Process{b.Start(b.T, 1), b.Start(b.T, 1), b.Start(b.T, 1)}
	e := b.enforcer()
	r := b.takeOff(e, of(all[:2]...))
	if len(r.Groups) != 2 {
		b.Errorf("result %+v", r)
	}
	for _, p := range all[:2] {
		b.Stands(b.T, p)
	}
	b.Computes(b.T, all[2])
	b.recorded(e, 2)
	b.check(e.Restore(b.ctx(), all...), nil)
	for _, p := range all {
		b.Computes(b.T, p)
	}
	b.recorded(e, 0)
}
