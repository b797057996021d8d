package core

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan/ladder"
)

// wanted is a change to make to one process.
type wanted struct {
	tenant   string
	kind     ChangeKind
	standing ladder.Standing // with slice, off and on
}

func kindOf(c ladder.Change) ChangeKind {
	switch {
	case c.Set:
		return SetSlice
	case c.Standing.Off:
		return SwitchOff
	default:
		return SwitchOn
	}
}

// after is the standing after a change. The default slice is the process's own.
func after(s ladder.Standing, w wanted) ladder.Standing {
	switch w.kind {
	case SetSlice:
		if s.Slice = w.standing.Slice; s.Slice == ladder.DefaultSlice {
			s.Slice = 0
		}
	case SwitchOff, SwitchOn:
		s.Off, s.Until = w.standing.Off, w.standing.Until
	case Restore:
		return ladder.Standing{}
	case InspectChannels:
		return s
	}
	s.Rank, s.Reason = w.standing.Rank, w.standing.Reason
	return s
}

// change starts the changes on one GPU.
func (k *Core) change(gpu string, list []wanted) {
	if len(list) == 0 || k.o.DryRun {
		return
	}
	d := k.division.gpu(gpu)
	out := Division{GPU: gpu}
	stands := map[*tenant]ladder.Standing{} // between two changes
	for _, w := range list {
		t := k.division.tenants[w.tenant]
		s, begun := stands[t]
		if !begun {
			s = t.stands
		}
		stands[t], t.flying = after(s, w), true
		c := Change{Process: t.process, ContainerID: t.container, Kind: w.kind, Stands: stands[t]}
		if t.gang != nil {
			t.gang.change(t, &c)
			stands[t] = c.Stands
		}
		d.calls = append(d.calls, call{t, c})
		out.Changes = append(out.Changes, c)
	}
	k.out.Divide = append(k.out.Divide, out)
}

const (
	// When to inspect a process again that has no channels yet, or whose slice may still change: at
	// first, and at most.
	againSoon, againLate = 25 * time.Millisecond, 200 * time.Millisecond
	// The same after a failed call.
	failedSoon, failedLate = 250 * time.Millisecond, 5 * time.Second
	// When to inspect it for new contexts: at first, and at most. An inspection takes up to 50 ms of
	// the driver's time.
	inspectSoon, inspectLate = 500 * time.Millisecond, 10 * time.Second
)

// justBegun says why a process is left alone that has no channels yet, or whose own program may
// still set its slice.
const justBegun = "it has only just begun to use the GPU"

// Divided handles the end of the changes on a GPU. results are in the order of Division.Changes.
func (k *Core) Divided(now time.Time, gpu string, results []ChangeResult) {
	k.now = now
	d := k.division.gpus[gpu]
	calls := d.calls
	d.calls = nil
	for _, c := range calls {
		c.tenant.flying = false
		c.tenant.gang.land()
	}
	for i, c := range calls {
		if r := results[i]; !r.Skipped {
			k.onChanged(gpu, c, r)
		}
	}
}

// noChannels is how long the channels of a process with a task may stay unfound before that is
// reported as a failure: the context may take a while, and so may the search while other processes
// start.
const noChannels = time.Minute

// onNoGroup leaves a process alone for now whose channels were not found. What was changed of it
// before may still be in force, because the search may only have taken too long. An inspection would have
// told whether it is: then it is restored first, which works from the record and needs no search. A change
// that was not made leaves what was before.
func (k *Core) onNoGroup(matter, gpu string, c call, r ChangeResult) {
	t := c.tenant
	if t.acts() && c.Kind == InspectChannels {
		t.doubtful = true
		t.retry.later(k.now, againSoon, againLate)
		t.inspect.later(k.now, inspectSoon, inspectLate) // not again at once: the driver is busy
		return
	}
	if !t.acts() {
		t.stands = ladder.Standing{}
	}
	t.left = justBegun
	if t.missing.IsZero() {
		t.missing = k.now
	}
	if k.now.Sub(t.missing) < noChannels {
		t.retry.later(k.now, againSoon, againLate)
		return
	}
	t.left = fmt.Sprintf("no channels of it were found within %v", noChannels)
	t.retry.later(k.now, failedSoon, failedLate)
	k.decideOf(t, matter, decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: t.left + ": it is left as it is, and they are looked for again every few seconds",
		Error: r.Err.Error(), GPUs: []string{gpu}})
}

func (k *Core) onChanged(gpu string, c call, r ChangeResult) {
	t, now := c.tenant, k.now
	defer t.gang.changed(t, c, r)
	k.log(slog.LevelDebug, "order carried out", "gpu", gpu, "container", t.name, "pid", t.process.PID, "change", string(c.Kind),
		"slice", c.Stands.Slice, "off", c.Stands.Off, "reason", c.Stands.Reason, "unsettled", r.Unsettled, "err", r.Err)
	matter := fmt.Sprintf("%s/%d/order", t.container, t.process.PID)
	switch {
	case r.Gone && c.Kind == Restore:
		t.retry.later(now, againSoon, againLate) // until it has ended: then its record is removed, too
	case r.Gone:
		t.gone = true
	case r.NoGroup:
		k.onNoGroup(matter, gpu, c, r)
	case r.Err == nil && r.Unsettled && c.Kind != Restore:
		t.stands.Off, t.stands.Until, t.left, t.missing = c.Stands.Off, c.Stands.Until, justBegun, time.Time{}
		t.partly = t.partly || c.Stands.Slice != 0
		t.retry.later(now, againSoon, againLate)
	case r.Err != nil:
		t.doubtful, t.left = true, r.Err.Error()
		t.retry.later(now, failedSoon, failedLate)
		k.decideOf(t, matter, decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: "what was changed of it is put back, and it is tried again later",
			Error: r.Err.Error(), GPUs: []string{gpu}})
	case c.Kind == InspectChannels: // all of its channels have its standing now
		if t.partly {
			t.partly, t.left = false, ""
		}
		t.inspect.later(now, inspectSoon, inspectLate)
	case c.Kind == Restore: // restore again and again what keeps failing
		t.stands, t.doubtful, t.partly = c.Stands, false, false
		k.count(Changes, 1, string(c.Kind))
	default:
		if t.stands, t.partly, t.retry, t.left, t.missing = c.Stands, false, (backoff{}), "", (time.Time{}); t.inspect.wait == 0 {
			t.inspect.later(now, inspectSoon, inspectLate)
		}
		for _, m := range t.containers() {
			delete(k.lastReason, m.id+" "+matter)
		}
		k.count(Changes, 1, string(c.Kind))
	}
	if r.AsOne {
		way := SwitchOn
		if c.Stands.Off {
			way = SwitchOff
		}
		k.count(ChannelSkew, r.Skew.Seconds(), string(way))
	}
	if r.Own {
		k.decideOf(t, matter+"/own", decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: "it changed its own time slice; the one by the order is set again, and at the end its own one",
			GPUs: []string{gpu}})
	}
}

// decideOf records a decision about a tenant for each of its containers, until its reason changes.
func (k *Core) decideOf(t *tenant, matter string, d decision.Decision) {
	for _, m := range t.containers() {
		d.Container, d.ContainerID = m.name, m.id
		k.decideOnce(m.id+" "+matter, d)
	}
}
