// Package undo undoes all that an actuator left: pauses, stops at allocations, swaps, time slices
// and channels. The guardian's process calls RunGuardian, and `laxity off` calls Off; both need only
// the state folder.
package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/guardian/strays"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/priority"
	"github.com/laxity/laxity/internal/sandbox"
	"github.com/laxity/laxity/internal/statefolder"
)

// Options of RunGuardian and Off. StateDir and Logger are required.
type Options struct {
	StateDir string
	// Engine is the container engine that a person chose, if any; else it is the last actuator's.
	Engine engine.Choice
	// Using is called with the engine before it is used, and why it is; nil: that is logged.
	Using func(c engine.Choice, because string)
	// Once ends the guardian when no actuator lives and nothing is on record.
	Once bool
	// ContainerOf returns the id of the container that a process of this machine belongs to.
	// Without it, swapped containers stay swapped.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// Channels restores time slices and switches channels on. nil: this machine cannot, and
	// their records stay.
	Channels channels.Driver
	// RunDir is a folder that a reboot empties, the same as the actuator's; enforce.RunDir
	// if empty.
	RunDir string
	// Lacks are the rights that this process's sandbox withholds; the actuator reports them.
	Lacks  []sandbox.Lack
	Logger *slog.Logger
}

// RunGuardian runs a whole guardian process. It releases through their engine the containers that an
// actuator with the same state folder left paused. A second guardian of the folder ends at
// once, without an error. RunGuardian retries what it cannot release until ctx ends; then the error
// wraps guardian.ErrLeft.
//
// With Once it ignores the end of ctx until no actuator lives and nothing is on record: a
// signal to a whole process group must not end the guardian before the actuator.
func RunGuardian(ctx context.Context, o Options) error {
	if o.Once {
		ctx = context.WithoutCancel(ctx)
	}
	if err := o.run(ctx); err != nil && !errors.Is(err, guardian.ErrTaken) {
		return err
	}
	return nil
}

func (o Options) run(ctx context.Context) error {
	if err := priority.Outlive(guardianScore); err != nil {
		o.Logger.Warn("when memory runs short the kernel may kill the guardian before others (it needs CAP_SYS_RESOURCE to say otherwise)", "err", err)
	}
	g, closeAll, err := o.open()
	if err != nil {
		return err
	}
	defer closeAll()
	for _, l := range o.Lacks {
		o.Logger.Warn("the guardian's sandbox keeps from it what it needs", "what", l.What, "means", l.Means, "fix", l.Fix)
	}
	if err := watch.KeepLacks(o.StateDir, o.Lacks); err != nil {
		o.Logger.Warn("cannot say what the guardian lacks", "err", err) // go on: releasing matters more
	}
	return g.Run(ctx)
}

// guardianScore is the guardian's oom_score_adj, the same as in its unit: the kernel kills it
// among the last, since it must act after the others died.
const guardianScore = -900

// open makes the guardian and opens what it needs, until closeAll.
func (o Options) open() (g *guardian.Guardian, closeAll func(), err error) {
	j, err := journal.Open(o.StateDir)
	if err != nil {
		return nil, nil, err
	}
	if err := j.Trouble(); err != nil {
		o.Logger.Error("the record of holds was damaged, or cannot be written", "err", err)
	}
	e := &engines{o: o, journal: j}
	closeAll = func() { _ = e.close() }
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	if _, _, err := e.open(); err != nil {
		return nil, nil, err
	}
	state, err := statefolder.Of(o.StateDir) // once: somebody may remove the folder while we watch
	if err != nil {
		return nil, nil, err
	}
	undo, err := o.openChannels(state)
	if err != nil {
		return nil, nil, err
	}
	var bringBack func(context.Context) (int, error)
	if o.ContainerOf != nil {
		s := &bringer{o: o, engines: e, log: o.Logger, lastLogged: map[string]string{}}
		closeAll = func() { s.close(); _ = e.close() }
		bringBack = s.resume
	}
	began := stop.Now()
	options := guardian.Options{
		Swaps:    bringBack,
		StateDir: o.StateDir, Journal: j, Enforcer: e, Logger: o.Logger, Once: o.Once,
		Release: func(ctx context.Context, expired bool) (int, error) { return releaseStopped(ctx, state, expired) },
		Sweep: func() ([]int, error) {
			found, err := stop.SweepAll(stop.Options{Name: memory.Name(state)}, began)
			return found, errors.Join(err, strays.Add(o.StateDir, len(found)))
		},
	}
	if undo != nil {
		options.Channels = undo
	}
	g, err = guardian.New(options)
	return g, closeAll, err
}

// releaseStopped continues the processes that an actuator with this state folder left stopped
// at allocations, and returns how many. With expired only those whose lease ran out.
func releaseStopped(ctx context.Context, state statefolder.ID, expired bool) (int, error) {
	stopped, err := stop.ReleaseAll(ctx, stop.Options{Name: memory.Name(state), IfExpired: expired})
	if err == nil && !expired { // its actuator is dead; the next one makes a new record
		err = stop.Remove(memory.Name(state))
	}
	return stopped, err
}

// openChannels opens the record of slices and channels; nil where this machine has no driver
// for them.
func (o Options) openChannels(state statefolder.ID) (*channels.Enforcer, error) {
	if o.Channels == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	return channels.New(channels.Options{Driver: o.Channels, Logger: o.Logger, Dir: channels.Folder(cmp.Or(o.RunDir, enforce.RunDir), state)})
}

// How often Former asks a driver that is busy, each for a second at most, and the pause between.
const (
	formerTries = 4
	formerPause = 200 * time.Millisecond
)

// pass reports whether d has passed before ctx ended.
func pass(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Former undoes what a former actuator left: stopped processes, channels that are off, changed
// time slices. A starting actuator calls it with its lock held, before it changes anything. The
// guardian retries what Former cannot undo when this actuator ends; channels that are off are
// switched on when their lease ends.
func Former(ctx context.Context, o Options) {
	state, err := statefolder.Of(o.StateDir)
	if err != nil {
		o.Logger.Error("cannot undo what a former actuator left", "err", err)
	} else {
		_ = o.former(ctx, state)
	}
	_ = o.former(ctx, statefolder.ByPath(o.StateDir))
}

// former undoes what is on record under one name of the state folder. It logs what it undoes, and
// the error that it returns.
func (o Options) former(ctx context.Context, state statefolder.ID) error {
	n, stopped := releaseStopped(ctx, state, false)
	if stopped != nil || n > 0 {
		o.Logger.Warn("continued processes that a former actuator left stopped", "processes", n, "err", stopped)
	}
	e, err := o.openChannels(state)
	if err != nil {
		o.Logger.Error("cannot read what a former actuator left on GPUs", "err", err)
	}
	if e == nil {
		return errors.Join(stopped, err)
	}
	n, err = e.Pending()
	if n == 0 && err == nil {
		return stopped
	}
	left, err := e.RestoreAll(ctx)
	for tries := 1; left > 0 && tries < formerTries && pass(ctx, formerPause); tries++ {
		left, err = e.RestoreAll(ctx) // the driver may have been busy making contexts
	}
	o.Logger.Warn("switched channels on and restored time slices, which a former actuator had left", "processes", n, "left", left, "err", err)
	if left > 0 && err == nil {
		err = fmt.Errorf("channels or time slices of %d processes are as a former actuator left them", left)
	}
	return errors.Join(stopped, err)
}
