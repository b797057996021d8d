// Package undo undoes all that an actuator left: pauses, stops at allocations, swaps, time slices
// and channels. Its ways in are the guardian's process (Guard) and `laxity off` (Off); both work
// with nothing but the state folder.
package undo

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/guardian/strays"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/priority"
	"github.com/laxity/laxity/internal/sandbox"
)

// Options of Guard and Off. StateDir and Logger are required.
type Options struct {
	StateDir   string
	DockerHost string
	// Once ends the guardian when no actuator lives and nothing is on record.
	Once bool
	// ContainerOf returns the id of the container that a process of this machine belongs to.
	// Without it, containers that are off their GPUs stay
	// there.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// Channels undoes time slices and lets channels on again; nil: this machine cannot, and
	// what is on record of them stays.
	Channels channels.Driver
	// RunDir is a folder that a reboot empties, the same as the actuator's; enforce.RunDir
	// if empty.
	RunDir string
	// Lacks are what this process's sandbox keeps from it: the actuator tells them.
	Lacks  []sandbox.Lack
	Logger *slog.Logger
}

// Guard is the whole guardian process, for a main to call: it lets go
// through Docker what an actuator with the same state folder left paused. A
// second guardian of one folder ends at once, without an error. What cannot be let go is
// tried again for as long as the guardian lives; if it is ended before, the error wraps
// guardian.ErrLeft.
//
// With Once it outlives the end of ctx until no actuator lives and nothing is on
// record: whoever stops a whole group of processes must not take the guardian
// away before the actuator.
func Guard(ctx context.Context, o Options) error {
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
		o.Logger.Warn("cannot say what the guardian lacks", "err", err) // which is less than what it does
	}
	return g.Run(ctx)
}

// guardianScore is the guardian's oom_score_adj, as its unit has it: what must let go when all
// else has been killed is among the last to be.
const guardianScore = -900

// open makes the guardian. What it needs is open until closeAll.
func (o Options) open() (g *guardian.Guardian, closeAll func(), err error) {
	j, err := journal.Open(o.StateDir)
	if err != nil {
		return nil, nil, err
	}
	if err := j.Trouble(); err != nil {
		o.Logger.Error("the record of holds was damaged, or cannot be written", "err", err)
	}
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return nil, nil, err
	}
	closeAll = func() { _ = engine.Close() }
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	e, err := docker.New(docker.Options{Engine: engine, Journal: j})
	if err != nil {
		return nil, nil, err
	}
	undo, err := o.openChannels()
	if err != nil {
		return nil, nil, err
	}
	var bringBack func(context.Context) (int, error)
	if o.ContainerOf != nil {
		s := &bringer{o: o, log: o.Logger, said: map[string]string{}}
		closeAll = func() { s.close(); _ = engine.Close() }
		bringBack = s.resume
	}
	began := stop.Now()
	options := guardian.Options{
		Swaps:    bringBack,
		StateDir: o.StateDir, Journal: j, Enforcer: e, Logger: o.Logger, Once: o.Once,
		Release: func(ctx context.Context, expired bool) (int, error) { return ReleaseStopped(ctx, o.StateDir, expired) },
		Sweep: func() ([]int, error) {
			found, err := stop.SweepAll(stop.Options{Name: memory.Name(o.StateDir)}, began)
			return found, errors.Join(err, strays.Add(o.StateDir, len(found)))
		},
	}
	if undo != nil {
		options.Channels = undo
	}
	g, err = guardian.New(options)
	return g, closeAll, err
}

// ReleaseStopped continues the processes that an actuator with this state folder left
// stopped at allocations, or only those that nobody has a lease on any more, and returns
// how many.
func ReleaseStopped(ctx context.Context, stateDir string, expired bool) (int, error) {
	stopped, err := stop.ReleaseAll(ctx, stop.Options{Name: memory.Name(stateDir), IfExpired: expired})
	if err == nil && !expired { // whoever made the record is dead; the next one makes a new one
		err = stop.Remove(memory.Name(stateDir))
	}
	return stopped, err
}

// openChannels opens the record of slices and channels; nil where this machine has no driver
// for them.
func (o Options) openChannels() (*channels.Enforcer, error) {
	if o.Channels == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	return channels.New(channels.Options{Driver: o.Channels, Logger: o.Logger, Dir: channels.Folder(cmp.Or(o.RunDir, enforce.RunDir), o.StateDir)})
}

// Former undoes what a former actuator left stopped, off a GPU or with other time slices. An
// actuator that starts calls it with its lock held, before anything is changed. What cannot be
// undone the guardian tries again when this actuator ends; what is off its GPU goes on at the
// end of its lease.
func Former(ctx context.Context, o Options) {
	if n, err := ReleaseStopped(ctx, o.StateDir, false); err != nil || n > 0 {
		o.Logger.Warn("continued processes that a former actuator left stopped", "processes", n, "err", err)
	}
	e, err := o.openChannels()
	if e == nil {
		if err != nil {
			o.Logger.Error("cannot read what a former actuator left on GPUs", "err", err)
		}
		return
	}
	n, err := e.Pending()
	if n == 0 && err == nil {
		return
	}
	left, err := e.RestoreAll(ctx)
	o.Logger.Warn("let channels on and put time slices back that a former actuator left", "processes", n, "left", left, "err", err)
}
