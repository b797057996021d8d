package arbiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/admission"
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

// inLoop runs a function in the loop and waits for its end.
func (a *Arbiter) inLoop(ctx context.Context, do func() error) error {
	r := ask{do: do, done: make(chan error, 1)}
	select {
	case a.asks <- r:
	case <-ctx.Done():
		return fmt.Errorf("the actuator is busy or shutting down (try again): %w", ctx.Err())
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Configure applies a new configuration, which must be valid, to core and memory guard. Where ctx ends
// first, the loop may apply it still.
func (a *Arbiter) Configure(ctx context.Context, c config.Config) error {
	return a.inLoop(ctx, func() error {
		a.core.Configure(a.o.Now(), c)
		if g := a.o.MemoryGuard; g != nil {
			g.SetMaxWait(MaxWait(c))
		}
		a.publish() // the caller sees it at once
		return nil
	})
}

// MaxWait is how long the memory guard lets an allocation wait: longer than the ledger does, which
// says why it denies.
func MaxWait(c config.Config) time.Duration { return max(c.MaxHold, c.MemoryWait+time.Minute) }

// Pause holds a container for the person named who. The request is a lease, like an alert's: it
// ends by Release, or after Config.MaxHold. When Pause returns nil, the lease is on disk, and the
// pause follows soon.
func (a *Arbiter) Pause(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func() error {
		kept, err := a.core.AskPause(a.o.Now(), who, container)
		if err != nil {
			return err
		}
		return kept(a.saveLeases(false))
	})
}

// Release releases a container that we hold, whatever the cause, and exempts its present tasks from
// further holds.
func (a *Arbiter) Release(ctx context.Context, who, container string) error {
	return a.inLoop(ctx, func() error {
		kept, err := a.core.AskRelease(a.o.Now(), who, container)
		if err != nil {
			return err
		}
		kept(a.saveLeases(false))
		return nil
	})
}

// Admission answers whether a container that does not run yet could keep a deadline or share.
func (a *Arbiter) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	var answer admission.Answer
	err := a.inLoop(ctx, func() (err error) { answer, err = a.core.AskAdmission(a.o.Now(), q); return err })
	if err != nil { // where ctx ended, the loop may write answer still
		return admission.Answer{}, err
	}
	return answer, nil
}

// ErrNoChanges means that the source of the snapshots cannot change settings.
var ErrNoChanges = errors.New("settings of containers cannot be changed here: this actuator has no exporter that does")

// Change makes the exporter change settings of a running container.
func (a *Arbiter) Change(ctx context.Context, who, container string, change task.Change) error {
	changer, ok := a.o.Source.(source.Changer)
	if !ok {
		return ErrNoChanges
	}
	var c task.Container
	err := a.inLoop(ctx, func() (err error) { c, err = a.core.Find(container); return err })
	if err != nil {
		return err
	}
	d := decision.Decision{Kind: decision.Request, Result: decision.Done, By: who, Container: c.Name, ContainerID: c.ID, Reason: change.Words(c.Spec)}
	if a.o.Core.DryRun {
		d.Result = decision.DryRun
	} else if err = changer.Change(ctx, c.ID, change); err != nil {
		d.Result, d.Error = decision.Failed, err.Error()
	}
	// Recorded even if the client has disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, a.inLoop(ctx, func() error { a.core.Decide(a.o.Now(), d); return nil }))
}
