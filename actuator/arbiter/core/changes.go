package core

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan/ladder"
)

// wanted is what is to be done to one process.
type wanted struct {
	tenant   string
	kind     ChangeKind
	standing ladder.Standing // of slice, off and on
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

// after is how somebody stands after a change. A slice as by default is its own one.
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
	case Look:
		return s
	}
	s.Rank, s.Reason = w.standing.Rank, w.standing.Reason
	return s
}

// change sets the changes on one GPU going.
func (k *Core) change(gpu string, list []wanted) {
	if len(list) == 0 || k.o.DryRun {
		return
	}
	d := k.division.gpu(gpu)
	out := Division{GPU: gpu}
	stands := map[*tenant]ladder.Standing{} // in the middle of the changes
	for _, w := range list {
		t := k.division.tenants[w.tenant]
		s, begun := stands[t]
		if !begun {
			s = t.stands
		}
		stands[t], t.flying = after(s, w), true
		c := Change{Process: t.process, ContainerID: t.container, ContainerName: t.name, Kind: w.kind, Stands: stands[t]}
		d.calls = append(d.calls, call{t, c})
		out.Changes = append(out.Changes, c)
	}
	k.out.Divide = append(k.out.Divide, out)
}

const (
	// How soon a process that has no channels yet, or whose slice may yet change, is looked at
	// again, at first and at most.
	againSoon, againLate = 25 * time.Millisecond, 200 * time.Millisecond
	// The same after a call that failed.
	failedSoon, failedLate = 250 * time.Millisecond, 5 * time.Second
	// How soon it is looked for new contexts, at first and at most. It takes up to 50 ms of the
	// driver's time.
	lookSoon, lookLate = 500 * time.Millisecond, 10 * time.Second
)

// justBegun says why somebody is left as it is that has no channels yet, or whose own program
// may yet set its slice.
const justBegun = "it has only just begun to use the GPU"

// Divided takes note of how the changes on a GPU came out: results are in the order of
// Division.Changes.
func (k *Core) Divided(now time.Time, gpu string, results []ChangeResult) {
	k.now = now
	d := k.division.gpus[gpu]
	calls := d.calls
	d.calls = nil
	for _, c := range calls {
		c.tenant.flying = false
	}
	for i, c := range calls {
		if r := results[i]; !r.Skipped {
			k.onChanged(gpu, c, r)
		}
	}
}

func (k *Core) onChanged(gpu string, c call, r ChangeResult) {
	t, now := c.tenant, k.now
	k.log(slog.LevelDebug, "order carried out", "gpu", gpu, "container", t.name, "pid", t.process.PID, "change", string(c.Kind),
		"slice", c.Stands.Slice, "off", c.Stands.Off, "reason", c.Stands.Reason, "unsettled", r.Unsettled, "err", r.Err)
	matter := fmt.Sprintf("%s/%d/order", t.container, t.process.PID)
	switch {
	case r.Gone && c.Kind == Restore:
		t.retry.later(now, againSoon, againLate) // until it has ended: then it is off the record, too
	case r.Gone:
		t.gone = true
	case r.NoGroup:
		t.stands, t.left = ladder.Standing{}, justBegun
		t.retry.later(now, againSoon, againLate)
	case r.Err == nil && r.Unsettled:
		t.stands.Off, t.stands.Until, t.left = c.Stands.Off, c.Stands.Until, justBegun
		t.retry.later(now, againSoon, againLate)
	case r.Err != nil:
		t.doubtful, t.left = true, r.Err.Error()
		t.retry.later(now, failedSoon, failedLate)
		k.decideOnce(matter, decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: "what was changed of it is put back, and it is tried again later",
			Error: r.Err.Error(), Container: t.name, ContainerID: t.container, GPUs: []string{gpu}})
	case c.Kind == Look:
		t.look.later(now, lookSoon, lookLate)
	case c.Kind == Restore: // what fails again and again is put back in between
		t.stands, t.doubtful = c.Stands, false
		k.count(Changes, 1, string(c.Kind))
	default:
		if t.stands, t.retry, t.left = c.Stands, (backoff{}), ""; t.look.wait == 0 {
			t.look.later(now, lookSoon, lookLate)
		}
		delete(k.lastReason, matter)
		k.count(Changes, 1, string(c.Kind))
	}
	if r.Own {
		k.decideOnce(matter+"/own", decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: "it changed its own time slice; the one by the order is set again, and at the end its own one",
			Container: t.name, ContainerID: t.container, GPUs: []string{gpu}})
	}
}
