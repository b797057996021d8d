package core

import (
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
)

// begin starts an action, unless another one is under way for the container, or the last attempt
// failed just now.
func (k *Core) begin(a plan.Action) {
	if _, busy := k.holds.flying[a.ContainerID]; busy || k.now.Before(k.holds.retry[a.ContainerID].next) {
		return
	}
	if h := k.holds.byID[a.ContainerID]; h != nil && h.doubtful && a.Kind == plan.Unpause && k.now.Sub(h.Since) < doubt {
		return // its pause may still come; an inspection will show
	}
	if a.Kind == plan.SwapOut || a.Kind == plan.SwapIn {
		if !k.division.setAside(a.ContainerID, k.now) {
			return // a checkpoint waits until its channels are restored: they are on first
		}
		k.memory.swaps.busy[a.ContainerID] = true
		k.breaker.acts = append(k.breaker.acts, k.now)
	}
	h := record.Hold{
		ContainerID: a.ContainerID, Container: a.Container, Cause: string(a.Cause), Reason: a.Reason,
		GPUs: a.GPUs, Tasks: a.Tasks, Since: k.now, Until: k.now.Add(k.config.MaxHold),
		Expires: k.now.Add(min(k.o.HoldLease, k.config.MaxHold)),
	}
	k.holds.flying[a.ContainerID] = flight{kind: a.Kind, gpus: a.GPUs}
	k.out.Actions = append(k.out.Actions, Action{Action: a, Hold: h, Arrived: k.facts.planned})
}

// UnderWay counts the actions that have not ended: swaps, which may take many minutes, and others.
func (k *Core) UnderWay() (swaps, others int) {
	for id := range k.holds.flying {
		if k.Swapping(id) {
			swaps++
		} else {
			others++
		}
	}
	return swaps, others
}

// Swapping reports whether a swap of the container is under way.
func (k *Core) Swapping(id string) bool {
	f := k.holds.flying[id]
	return f.kind == plan.SwapOut || f.kind == plan.SwapIn
}

// Begin registers an action that starts without a plan, at the end of the program.
func (k *Core) Begin(a plan.Action) {
	k.holds.flying[a.ContainerID] = flight{kind: a.Kind, gpus: a.GPUs}
}

func isGone(err error) bool { return errors.Is(err, enforce.ErrGone) }

// Finished handles the end of an action.
func (k *Core) Finished(now time.Time, r Result) {
	k.now = now
	delete(k.holds.flying, r.ContainerID)
	switch r.Kind {
	case AskSwap:
		k.onAskedSwap(r)
		return
	case Inspect:
		k.onLabels(r)
		k.onInspected(r)
		return
	}
	for _, g := range r.GPUs {
		k.holds.acted[g] = now
	}
	d := decision.Decision{
		Kind: decision.Kind(r.Kind), Result: decision.Done, Reason: r.Reason, Policy: k.config.Policy,
		Container: r.Container, ContainerID: r.ContainerID, GPUs: r.GPUs, Tasks: r.Tasks,
		Cause: string(r.Cause), Seconds: now.Sub(r.Started).Seconds(),
	}
	if k.o.DryRun {
		d.Result = decision.DryRun
	}
	switch r.Kind {
	case plan.Pause:
		k.onPaused(r, &d)
	case plan.SwapOut, plan.SwapIn:
		k.onSwapped(r, &d)
	default:
		k.onUnpaused(r, &d)
	}
	k.count(ActionsDone, 1, string(r.Kind), string(d.Result))
	k.count(ActionSeconds, d.Seconds, string(r.Kind))
	if !r.Arrived.IsZero() && d.Result == decision.Done {
		k.count(Latency, now.Sub(r.Arrived).Seconds(), string(r.Kind))
	}
	matter := d.ContainerID + "/" + string(d.Kind)
	switch d.Result {
	case decision.Failed, decision.Ignored:
		k.decideOnce(matter, d)
	default:
		delete(k.lastReason, matter)
		k.decide(d)
	}
}

// ErrOvertaken is the error of an action that was not tried because its precondition is no longer
// true.
var ErrOvertaken = errors.New("overtaken: its tasks are finished")

func (k *Core) onPaused(r Result, d *decision.Decision) {
	id, h := r.ContainerID, &hold{Hold: r.Hold}
	h.endBy(h.Since.Add(k.config.MaxHold)) // it may have been configured while the pause was under way
	switch {
	case r.Err == nil:
		k.holds.byID[id] = h
		delete(k.holds.retry, id)
		delete(k.holds.freed, id)
		return
	case errors.Is(r.Err, ErrOvertaken), isGone(r.Err), errors.Is(r.Err, enforce.ErrForeign):
		d.Result, d.Error = decision.Ignored, r.Err.Error()
	default:
		d.Result, d.Error = decision.Failed, r.Err.Error()
	}
	if r.OnRecord {
		h.doubtful = true
		k.holds.byID[id] = h
	}
	if !errors.Is(r.Err, ErrOvertaken) {
		k.holds.later(id, k.now)
	}
}

func (k *Core) onUnpaused(r Result, d *decision.Decision) {
	id := r.ContainerID
	if r.Err != nil && !errors.Is(r.Err, enforce.ErrForeign) {
		d.Result, d.Error = decision.Failed, r.Err.Error()
		k.holds.later(id, k.now)
		return
	}
	if r.Err != nil {
		d.Result, d.Error = decision.Ignored, r.Err.Error()
	}
	delete(k.holds.byID, id)
	delete(k.holds.retry, id)
	k.holds.freed[id] = k.now
}

// fresh reports whether the snapshot's samples show the effect of our last action on the GPU.
func (k *Core) fresh(gpu string, settle time.Duration) bool {
	for _, f := range k.holds.flying {
		if f.changes() && slices.Contains(f.gpus, gpu) {
			return false
		}
	}
	t, acted := k.holds.acted[gpu]
	return !acted || !k.facts.snap.Time.Before(t.Add(settle))
}
