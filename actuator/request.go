package actuator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

var _ page.Actor = (*Actuator)(nil)

// ask is what a person asks for. The loop does it, on the present snapshot.
type ask struct {
	do   func(*loop) error
	done chan error
}

// inLoop has the loop do something, and waits for it.
func (a *Actuator) inLoop(ctx context.Context, do func(*loop) error) error {
	r := ask{do: do, done: make(chan error, 1)}
	select {
	case a.asks <- r:
	case <-ctx.Done():
		return fmt.Errorf("the actuator is busy or ends: %w", ctx.Err())
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pause keeps a container from computing because a person, who, asks for it. It
// is a lease like an alert's: until it is let go, or for Config.MaxHold. When it
// returns nil the lease is on disk; the container is paused in a moment.
func (a *Actuator) Pause(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func(l *loop) error { return l.askPause(who, container) })
}

// Release lets a container go that we keep from computing, whatever the cause,
// and does not hold it again for its present tasks.
func (a *Actuator) Release(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func(l *loop) error { return l.askRelease(who, container) })
}

// requestOf is the fingerprint of a person's lease for a container.
func requestOf(id string) string { return "person/" + id }

func (l *loop) askPause(who, ref string) error {
	now := l.o.Now()
	if why := l.handsOff(now); why != "" {
		return errors.New(why)
	}
	id, err := l.targetContainer(state.WishPause, ref)
	if err != nil {
		return err
	}
	c, _ := l.snap.FindContainer(id)
	switch {
	case !l.managed(c):
		return fmt.Errorf("it is not known yet whether container %s may be acted on; try again", c.Name)
	case l.standing(c, now) == plan.Somebody:
		return fmt.Errorf("container %s is paused already, and not by Laxity", c.Name)
	}
	l.book.Forgive(id) // who asks for it now takes back what was asked before
	lease := state.Lease{
		Wish: state.WishPause, Target: id, By: who, Fingerprint: requestOf(id),
		StartsAt: now, Opened: now, Expires: now.Add(l.Config().MaxHold),
	}
	if full := l.book.Room(lease); full != "" {
		return errors.New(full)
	}
	opened, _ := l.book.Fire(lease)
	if err := l.book.Save(); err != nil {
		l.book.Close(lease)
		return fmt.Errorf("nothing is paused that is not on record: %w", err)
	}
	d := decision.Decision{Kind: decision.Request, Result: decision.Renewed, By: who, Container: c.Name, ContainerID: id, Cause: string(state.WishPause),
		Reason: fmt.Sprintf("to be paused until it is let go, or for %v", l.Config().MaxHold)}
	if opened {
		d.Result = decision.Opened
	}
	l.decide(d)
	return nil
}

// handsOff says why nothing is paused now, else "".
func (l *loop) handsOff(now time.Time) string {
	switch {
	case l.snap == nil || l.unusable(now) != "":
		return "nothing is paused without fresh facts: " + l.unusable(now)
	case !l.tenure.ours():
		return l.tenure.why
	case !l.guard.mayHold():
		return "no guardian watches, so nothing is held"
	default:
		return l.breaker.open(now)
	}
}

func (l *loop) askRelease(who, ref string) error {
	now := l.o.Now()
	if l.snap == nil {
		return errors.New("there is no snapshot yet")
	}
	c, ok := l.snap.FindContainer(ref)
	if !ok {
		return fmt.Errorf("the exporter knows no running container %q", ref)
	}
	_, asked := l.book.Find(state.WishPause, func(target string) bool { return target == c.ID })
	_, waits := l.waits[c.ID]
	switch standing := l.standing(c, now); {
	case standing == plan.Somebody:
		return fmt.Errorf("container %s was paused by somebody else: docker unpause %s", c.Name, c.Name)
	case standing == plan.Runs && !asked && !waits && !l.channels.acts(c.ID):
		return fmt.Errorf("container %s is not kept from computing", c.Name)
	}
	for _, lease := range l.book.Leases() {
		if lease.By != "" && lease.Target == c.ID && lease.Wish == state.WishPause {
			l.book.Close(lease)
		}
	}
	l.exempt(c.ID, nil, now, who+" let it go")
	d := decision.Decision{Kind: decision.Request, Result: decision.Done, By: who, Container: c.Name, ContainerID: c.ID,
		Reason: "let go, and not held again for its present tasks"}
	if err := l.book.Save(); err != nil {
		d.Error = "this is forgotten by a restart: " + err.Error()
	}
	l.decide(d)
	return nil
}

// ErrNoDeadlines means that the source of the snapshots cannot change deadlines.
var ErrNoDeadlines = errors.New("deadlines cannot be changed here: this actuator knows no exporter that does")

// SetDeadline has the exporter change the relative deadline of a container; 0 is
// back to its label's.
func (a *Actuator) SetDeadline(ctx context.Context, who, container string, relative time.Duration) error {
	setter, ok := a.o.Source.(state.DeadlineSetter)
	if !ok {
		return ErrNoDeadlines
	}
	var c task.Container
	err := a.inLoop(ctx, func(l *loop) error {
		if l.snap == nil {
			return errors.New("there is no snapshot yet")
		}
		var known bool
		if c, known = l.snap.FindContainer(container); !known {
			return fmt.Errorf("the exporter knows no running container %q", container)
		}
		if !l.managed(c) {
			return fmt.Errorf("container %s is only observed: it has no laxity.* label, or is not on the allow-list", c.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d := decision.Decision{Kind: decision.Request, Result: decision.Done, By: who, Container: c.Name, ContainerID: c.ID, Reason: changed(c.Spec.Deadline, relative)}
	if a.o.DryRun {
		d.Result = decision.DryRun
	} else if err = setter.SetDeadline(ctx, c.ID, relative); err != nil {
		d.Result, d.Error = decision.Failed, err.Error()
	}
	// On record even if who asked is gone by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, a.inLoop(ctx, func(l *loop) error { l.decide(d); return nil }))
}

func changed(from task.Seconds, to time.Duration) string {
	was := "none"
	if from > 0 {
		was = from.Duration().String()
	}
	if to == 0 {
		return "deadline back to its label's, was " + was
	}
	return fmt.Sprintf("deadline %v, was %s", to, was)
}

// presentTasks are the ids of the container's unfinished tasks.
func (l *loop) presentTasks(id string, besides []string) []string {
	tasks := slices.Clone(besides)
	if l.snap != nil {
		for _, t := range l.snap.Tasks {
			if t.ContainerID == id && !slices.Contains(tasks, t.ID) {
				tasks = append(tasks, t.ID)
			}
		}
	}
	return tasks
}
