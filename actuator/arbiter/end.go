package arbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
)

// releaseAndClose ends the arbiter: it waits for actions under way, then releases everything on
// record. What takes long comes last, and each part has its own time: a swap may take many minutes, and nobody stays
// paused for it.
func (a *Arbiter) releaseAndClose() error {
	a.restoreChannels()
	swapping, others := a.core.UnderWay()
	for ; others > 0; swapping, others = a.core.UnderWay() {
		a.finish(<-a.finished) // each of the others ends by its timeout
	}
	err := a.releaseHolds()
	if swapping > 0 {
		for left, _ := a.core.UnderWay(); left > 0; left, _ = a.core.UnderWay() {
			a.finish(<-a.finished)
		}
		err = a.releaseHolds() // also those whose swap was under way
	}
	swapped := a.bringAllBack()
	a.report(a.core.Effects())
	_ = a.saveLeases(true)
	a.saveHistory(true)
	a.publish()
	if err = errors.Join(err, swapped); err != nil {
		return fmt.Errorf("containers are still paused and on record; the guardian keeps trying to release them: %w", err)
	}
	return nil
}

// restoreTimeout bounds restoreChannels.
const restoreTimeout = 5 * time.Second

// restoreChannels waits for the changes under way, then restores all slices and channels.
func (a *Arbiter) restoreChannels() {
	if a.o.Channels == nil {
		return
	}
	for a.core.Dividing() {
		d := <-a.divided // each call ends by its timeout
		a.core.Divided(a.o.Now(), d.gpu, d.results)
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if left, err := a.o.Channels.RestoreAll(ctx); err != nil || left > 0 {
		a.log.Warn("cannot restore all time slices and channels; the guardian tries again", "processes", left, "err", err)
	}
}

// releaseHolds unpauses every container on record, again and again until that has worked or its time is over.
func (a *Arbiter) releaseHolds() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), actionTimeout)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if err = a.releaseAll(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// releaseAll unpauses every container on record, once each, but those whose swap is under way: it may be unpausing
// them itself.
func (a *Arbiter) releaseAll(ctx context.Context) error {
	holds, err := a.o.Journal.List()
	if err != nil {
		return err
	}
	if a.o.Core.DryRun {
		holds = append(holds, a.core.Holds()...)
	}
	holds = slices.DeleteFunc(holds, func(h record.Hold) bool { return a.core.Swapping(h.ContainerID) })
	for _, h := range holds {
		action := plan.Action{Kind: plan.Unpause, ContainerID: h.ContainerID, Container: h.Container, Cause: plan.Cause(h.Cause),
			Reason: "the actuator ends", GPUs: h.GPUs, Tasks: h.Tasks}
		a.core.Begin(action)
		go func() {
			r := core.Result{Action: core.Action{Action: action}, Started: a.o.Now()}
			r.Err = a.o.Enforcer.Unpause(ctx, action.ContainerID)
			a.finished <- r
		}()
	}
	for left := len(holds); left > 0; {
		r := <-a.finished
		if !swaps(r.Kind) {
			left--
			if !errors.Is(r.Err, enforce.ErrForeign) {
				err = errors.Join(err, r.Err)
			}
		}
		a.finish(r)
	}
	return err
}

// bringAllBack swaps in every container that is swapped out.
func (a *Arbiter) bringAllBack() error {
	if a.o.Swapper == nil {
		return nil
	}
	list, err := a.o.Swapper.Swapped()
	for _, s := range list {
		ctx, cancel := context.WithTimeout(context.Background(), actionTimeout)
		result, serr := a.o.Swapper.Resume(ctx, s.ContainerID, nil)
		cancel()
		d := decision.Decision{Kind: decision.SwapIn, Result: decision.Done, Reason: "the actuator ends", Container: s.Container,
			ContainerID: s.ContainerID, Cause: string(plan.OfMemory), Seconds: result.Seconds()}
		if serr != nil {
			d.Result, d.Error = decision.Failed, serr.Error()
			err = errors.Join(err, fmt.Errorf("container %s stays swapped out: %w", s.Container, serr))
		}
		a.core.Decide(a.o.Now(), d)
	}
	return err
}
