package core

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/exporter/task"
)

// holds are the containers that we pause, and the actions under way.
type holds struct {
	byID map[string]*hold
	// flying is the action under way, by container id.
	flying map[string]flight
	retry  map[string]backoff
	// freed is when we unpaused a container, until the snapshot confirms it.
	freed map[string]time.Time
	// acted is when we last acted on a GPU.
	acted map[string]time.Time
}

type hold struct {
	record.Hold
	// doubtful: the pause failed and could not be undone, so the container may be stopped.
	doubtful  bool
	inspected time.Time
	// onRecord is the end of a lease whose renewal could not be written.
	onRecord time.Time
}

// endBy shortens the hold so that it ends at this time at the latest.
func (h *hold) endBy(end time.Time) {
	if end.Before(h.Until) {
		h.Until = end
	}
	if end.Before(h.Expires) {
		h.Expires = end
	}
}

type flight struct {
	kind plan.Kind
	gpus []string
}

// changes reports whether the action changes anything.
func (f flight) changes() bool { return f.kind != Inspect && f.kind != AskSwap }

func newHolds() holds {
	return holds{byID: map[string]*hold{}, flying: map[string]flight{}, retry: map[string]backoff{}, freed: map[string]time.Time{}, acted: map[string]time.Time{}}
}

// later keeps a failed action from being tried again at once.
func (h *holds) later(id string, now time.Time) {
	b := h.retry[id]
	b.later(now, 250*time.Millisecond, 5*time.Second)
	h.retry[id] = b
}

// MayKeep reports whether the reason for a former actuator's hold is still seen.
func (k *Core) MayKeep(now time.Time, h record.Hold) bool {
	k.now = now
	return k.adopted(h).Expires.After(now) && k.around.MayHold && k.leaseOf(h)
}

// adopted converts a former actuator's hold to our clock and bounds.
func (k *Core) adopted(h record.Hold) record.Hold {
	h.Since = Earlier(h.Since, k.now)
	h.Expires = k.now.Add(min(h.Expires.Sub(k.now), k.o.HoldLease))
	h.Until = k.now.Add(min(h.Until.Sub(k.now), k.config.MaxHold))
	return h
}

// Adopt takes over a recorded hold of a former actuator. kept: its reason is still seen and the
// container is paused; otherwise the first step releases it. Usually there is nothing to adopt,
// since the guardian released everything.
func (k *Core) Adopt(now time.Time, h record.Hold, kept bool) {
	k.now = now
	h = k.adopted(h)
	d := decision.Decision{Kind: decision.Hold, Result: decision.Kept, Container: h.Container, ContainerID: h.ContainerID,
		GPUs: h.GPUs, Cause: h.Cause, Reason: "a former actuator paused it and the reason still holds"}
	if !kept {
		h.Expires = now
		d.Result, d.Reason = decision.Closed, "a former actuator paused it; it is released"
	}
	k.holds.byID[h.ContainerID] = &hold{Hold: h}
	k.decide(d)
}

// leaseOf reports whether an open lease asks for the hold.
func (k *Core) leaseOf(h record.Hold) bool {
	switch plan.Cause(h.Cause) {
	case plan.Asked:
		return k.wished(lease.Pause, h.ContainerID)
	case plan.Relieve:
		return slices.ContainsFunc(h.GPUs, func(g string) bool { return k.wished(lease.Relieve, g) })
	default:
		return slices.ContainsFunc(h.GPUs, k.arbitrated)
	}
}

// Holds returns the holds, unsorted.
func (k *Core) Holds() (all []record.Hold) {
	for _, h := range k.holds.byID {
		all = append(all, h.Hold)
	}
	return all
}

// endLongHolds exempts containers that were held for as long as is allowed: the next plan releases
// them and does not hold them again.
func (k *Core) endLongHolds() {
	for id, h := range k.holds.byID {
		if _, exempt := k.leases.Exemption(id); exempt || h.Until.IsZero() || k.now.Before(h.Until) {
			continue
		}
		k.exempt(id, h.Tasks, fmt.Sprintf("it was held for %v, as long as is allowed (--max-hold)", k.now.Sub(h.Since).Round(time.Second)))
	}
}

// renew extends the holds whose reason the plan still sees.
func (k *Core) renew() {
	for id, h := range k.holds.byID {
		if _, busy := k.holds.flying[id]; busy {
			continue
		}
		w, waits := k.turns.waits[id]
		if !waits || h.doubtful || h.Expires.Sub(k.now) > k.o.HoldLease/2 {
			continue
		}
		if h.Expires.Equal(h.onRecord) && !k.now.Before(h.Expires) {
			continue // the guardian may be releasing it now
		}
		renewed := h.Hold
		renewed.Cause, renewed.Reason = string(w.Cause), w.Reason
		renewed.Expires = k.now.Add(k.o.HoldLease)
		if renewed.Expires.After(h.Until) {
			renewed.Expires = h.Until
		}
		if !renewed.Expires.After(h.Expires) {
			continue
		}
		k.out.Renew = append(k.out.Renew, Renewal{Hold: renewed, Before: h.Hold})
		h.Hold = renewed
	}
}

// NotRenewed undoes a renewal whose record could not be written: the hold ends with its former
// lease, if no further try succeeds before.
func (k *Core) NotRenewed(r Renewal, err error) {
	if h := k.holds.byID[r.Hold.ContainerID]; h != nil {
		h.Hold = r.Before
		if h.onRecord.Equal(h.Expires) {
			return // it was said at the first try
		}
		h.onRecord = h.Expires
	}
	k.log(slog.LevelError, "cannot renew a hold; it ends when its lease does", "container", r.Hold.Container, "err", err)
}

// expireHolds releases containers whose hold nothing has renewed, even without a plan.
func (k *Core) expireHolds() {
	for _, h := range k.holds.byID {
		if k.now.Before(h.Expires) {
			continue
		}
		reason := fmt.Sprintf("its lease ran out: the reason was not seen for %v", k.o.HoldLease)
		if h.Expires.Equal(h.onRecord) {
			reason = "its lease ran out, and its record could not be renewed"
		}
		if h.doubtful {
			reason = "its pause had failed, and it seems to run"
		}
		if e, ok := k.leases.Exemption(h.ContainerID); ok {
			reason = e.Reason
		}
		k.begin(plan.Action{
			Kind: plan.Unpause, ContainerID: h.ContainerID, Container: h.Container, Cause: plan.Cause(h.Cause),
			Reason: reason, GPUs: h.GPUs, Tasks: h.Tasks, Standing: plan.Ours,
		})
	}
}

// inspectHolds asks the engine about containers that we hold and that the snapshot does not show as
// paused: somebody unpaused them, they are gone, or the snapshot lags.
func (k *Core) inspectHolds() {
	const lag, every = 300 * time.Millisecond, 500 * time.Millisecond
	s := k.facts.snap
	if s == nil || !s.Health.EngineUp {
		return
	}
	for id, h := range k.holds.byID {
		if k.now.Sub(h.Since) < lag || k.now.Sub(h.inspected) < every {
			continue
		}
		i := slices.IndexFunc(s.Containers, func(c task.Container) bool { return c.ID == id })
		if i >= 0 && s.Containers[i].Paused && !h.doubtful {
			continue
		}
		h.inspected = k.now
		k.begin(plan.Action{Kind: Inspect, ContainerID: id, Container: h.Container})
	}
}

// doubt is how long a silent engine may still carry out a pause.
const doubt = 10 * time.Second

// onInspected handles the engine's answer about a container that we hold.
func (k *Core) onInspected(r Result) {
	h, ok := k.holds.byID[r.ContainerID]
	gone := isGone(r.Err)
	if s := k.memory.swaps; gone && s != nil {
		if _, out := s.out[r.ContainerID]; out {
			s.absent[r.ContainerID] = absence{ended: true}
		}
	}
	switch {
	case !ok, r.Err != nil && !gone:
		return
	case r.Err == nil && r.Status.Paused:
		h.doubtful = false // on record and stopped: an ordinary hold
	case h.doubtful && !gone:
		if k.now.Sub(h.Since) >= doubt {
			h.Expires = k.now // the next step releases it, and waits for a late pause
		}
	case gone:
		k.drop(h, "gone", "the container ended or was removed while it was paused")
	case r.Status.Started.After(h.Since):
		k.drop(h, "gone", "the container was started again while it was paused")
	case !r.OnRecord && !k.o.DryRun:
		k.exempt(h.ContainerID, h.Tasks, "the guardian released it")
		k.drop(h, "guardian", "the guardian released it")
	default:
		k.exempt(h.ContainerID, h.Tasks, "a person unpaused it")
		k.drop(h, "person", "a person unpaused it; it is not paused again for this task")
	}
}

// drop removes the record of a container that is not stopped.
func (k *Core) drop(h *hold, why, reason string) {
	k.out.Drop = append(k.out.Drop, Drop{h.ContainerID, why, reason})
}

// Dropped handles the removal of a record. After an error the record is still there, and the next
// inspection of the container tries again.
func (k *Core) Dropped(now time.Time, d Drop, err error) {
	k.now = now
	h, ok := k.holds.byID[d.ContainerID]
	if !ok {
		return
	}
	if err != nil {
		k.log(slog.LevelError, "cannot take a container off the record", "container", h.Container, "err", err)
		return
	}
	delete(k.holds.byID, d.ContainerID)
	k.count(HoldsLost, 1, d.Why)
	k.decide(decision.Decision{Kind: decision.Hold, Result: decision.Closed, Reason: d.Reason, Container: h.Container,
		ContainerID: h.ContainerID, GPUs: h.GPUs, Tasks: h.Tasks, Cause: h.Cause})
}
