package arbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

const (
	// actionTimeout bounds one action with all its attempts.
	actionTimeout = 30 * time.Second
	// swapTimeout bounds a whole swap; each step has a limit of its own.
	swapTimeout = 5 * time.Minute
)

func swaps(k plan.Kind) bool { return k == plan.SwapOut || k == plan.SwapIn }

// act starts an action in a goroutine of its own.
func (a *Arbiter) act(ctx context.Context, action core.Action) {
	limit := actionTimeout
	if swaps(action.Kind) {
		limit = swapTimeout
	}
	go func() {
		// Not ctx: a shutdown waits for actions and does not interrupt them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		r := core.Result{Action: action, Started: a.o.Now()}
		a.enforce(ctx, &r)
		a.finished <- r
	}()
}

// enforce carries out an action. It runs outside the loop and shares no state with it.
func (a *Arbiter) enforce(ctx context.Context, r *core.Result) {
	id := r.ContainerID
	switch r.Kind {
	case plan.Pause:
		if r.Err = a.stillTrue(r.Action); r.Err == nil {
			r.Err = a.o.Enforcer.Pause(ctx, r.Hold)
		}
		if r.Err != nil {
			r.OnRecord = a.mayBeOnRecord(id)
		}
	case plan.Unpause:
		r.Err = a.o.Enforcer.Unpause(ctx, id)
	case plan.SwapOut:
		if r.Err = a.stillTrue(r.Action); r.Err == nil {
			r.Swap, r.Err = a.swapOut(ctx, r.Action)
		}
		if r.Err != nil {
			r.OnRecord = a.mayBeOnRecord(id) // as it is where our hold could not be released
		}
	case plan.SwapIn:
		r.Swap, r.Err = a.o.Swapper.Resume(ctx, id, func(need map[string]uint64) error { return a.o.Ledger.Reserve(id, need) })
		a.o.Ledger.Release(id)
	case core.AskSwap:
		r.Err = a.o.Swapper.Can(ctx, id)
	default:
		r.Status, r.Err = a.o.Enforcer.Status(ctx, id)
	}
}

// mayBeOnRecord reports whether a container is on record, or may be: a record that cannot be read
// counts as one, for it may name a container that is paused.
func (a *Arbiter) mayBeOnRecord(id string) bool {
	_, recorded, err := a.o.Journal.Get(id)
	return recorded || err != nil
}

// swapOut swaps a container out. It releases our hold first: a frozen process can neither be locked
// nor checkpointed.
func (a *Arbiter) swapOut(ctx context.Context, action core.Action) (enforce.SwapResult, error) {
	if action.Standing == plan.Ours {
		if err := a.o.Enforcer.Unpause(ctx, action.ContainerID); err != nil && !errors.Is(err, enforce.ErrForeign) {
			return enforce.SwapResult{}, fmt.Errorf("release before swapping out: %w", err)
		}
	}
	return a.o.Swapper.Suspend(ctx, action.ContainerID, action.Container, action.Reason)
}

// stillTrue checks an action's precondition against the latest snapshot. The enforcer checks the
// container's state at the engine.
func (a *Arbiter) stillTrue(action core.Action) error {
	s := a.snapshot.Load()
	for _, id := range action.Tasks {
		if !slices.ContainsFunc(s.Tasks, func(t task.Task) bool { return t.ID == id && t.State.Unfinished() }) {
			return core.ErrOvertaken
		}
	}
	return nil
}

// finish passes the end of an action to the core, with the present record.
func (a *Arbiter) finish(r core.Result) {
	switch {
	case r.Kind == core.Inspect:
		r.OnRecord = a.mayBeOnRecord(r.ContainerID)
	case swaps(r.Kind):
		var err error
		if r.Swapped, err = a.o.Swapper.Swapped(); err != nil {
			a.log.Error("cannot read which containers are swapped out", "err", err)
		}
		r.SwappedKnown = err == nil
	}
	a.core.Finished(a.o.Now(), r)
}

// readSwaps reads the record of swaps, which may be another actuator's.
func (a *Arbiter) readSwaps() {
	if a.o.Swapper == nil {
		return
	}
	list, err := a.o.Swapper.Swapped()
	if err != nil {
		a.log.Error("cannot read which containers are swapped out", "err", err)
		return
	}
	a.core.Swapped(a.o.Now(), list)
}

// adopt takes over those holds of a former actuator whose lease is still open, if a guardian
// watches. The first step releases all others.
func (a *Arbiter) adopt(ctx context.Context) {
	if a.o.Core.DryRun {
		return // the record belongs to the actuator that leads
	}
	holds, err := a.o.Journal.List()
	if err != nil {
		a.log.Error("cannot read the journal", "err", err)
	}
	for _, h := range holds {
		kept := a.core.MayKeep(a.o.Now(), h)
		if kept {
			s, err := a.o.Enforcer.Status(ctx, h.ContainerID)
			kept = err == nil && s.Paused
		}
		a.core.Adopt(a.o.Now(), h, kept)
	}
	a.carryOut(ctx)
}
