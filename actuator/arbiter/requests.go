package arbiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/exporter/task"
)

// ask is a function that the loop runs between two steps.
type ask struct {
	do   func() error
	done chan error
}

// inLoop runs a function in the loop and waits for it.
func (a *Arbiter) inLoop(ctx context.Context, do func() error) error {
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

// Configure applies a new configuration, which must be valid.
func (a *Arbiter) Configure(ctx context.Context, c config.Config) error {
	return a.inLoop(ctx, func() error {
		a.core.Configure(a.o.Now(), c)
		a.publish() // who asked sees it at once
		return nil
	})
}

// Pause holds a container at the request of the person named who. The request is a lease, like an
// alert's: it ends by Release, or after Config.MaxHold. When Pause returns nil the lease is on
// disk, and the container is paused soon after.
func (a *Arbiter) Pause(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func() error {
		kept, err := a.core.AskPause(a.o.Now(), who, container)
		if err != nil {
			return err
		}
		return kept(a.saveLeases())
	})
}

// Release releases a container that we hold, whatever the cause. It is not held again for its
// present tasks.
func (a *Arbiter) Release(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func() error {
		kept, err := a.core.AskRelease(a.o.Now(), who, container)
		if err != nil {
			return err
		}
		kept(a.saveLeases())
		return nil
	})
}

// ErrNoDeadlines means that the source of the snapshots cannot change deadlines.
var ErrNoDeadlines = errors.New("deadlines cannot be changed here: this actuator knows no exporter that does")

// SetDeadline makes the exporter change the relative deadline of a container; 0 restores its
// label's.
func (a *Arbiter) SetDeadline(ctx context.Context, who, container string, relative time.Duration) error {
	setter, ok := a.o.Source.(source.DeadlineSetter)
	if !ok {
		return ErrNoDeadlines
	}
	var c task.Container
	err := a.inLoop(ctx, func() (err error) { c, err = a.core.Find(container); return err })
	if err != nil {
		return err
	}
	d := decision.Decision{Kind: decision.Request, Result: decision.Done, By: who, Container: c.Name, ContainerID: c.ID, Reason: changed(c.Spec.Deadline, relative)}
	if a.o.Core.DryRun {
		d.Result = decision.DryRun
	} else if err = setter.SetDeadline(ctx, c.ID, relative); err != nil {
		d.Result, d.Error = decision.Failed, err.Error()
	}
	// Recorded even if the client has disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, a.inLoop(ctx, func() error { a.core.Decide(a.o.Now(), d); return nil }))
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
