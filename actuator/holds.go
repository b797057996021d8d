package actuator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// adopt takes over what a former actuator left on record, where the lease it
// rests on is still open and a guardian watches; everything else is let go by
// the first step. As a rule there is nothing: a guardian has let it all go.
func (l *loop) adopt(ctx context.Context) {
	if l.o.DryRun {
		return // what is on record is another's
	}
	holds, err := l.journal.List()
	if err != nil {
		l.log.Error("cannot read the journal", "err", err)
	}
	now := l.o.Now()
	for _, h := range holds {
		h.Since = earlier(h.Since, now)
		h.Expires = now.Add(min(h.Expires.Sub(now), l.o.HoldLease))
		h.Until = now.Add(min(h.Until.Sub(now), l.Config().MaxHold))
		kept := h.Expires.After(now) && l.guard.mayHold() && l.leaseOf(h)
		if kept {
			s, err := l.enforcer.Status(ctx, h.ContainerID)
			kept = err == nil && s.Paused
		}
		d := decision.Decision{Kind: decision.Hold, Result: decision.Kept, Container: h.Container, ContainerID: h.ContainerID,
			GPUs: h.GPUs, Cause: h.Cause, Reason: "a former actuator paused it and the reason still holds"}
		if !kept {
			h.Expires = now // the first step lets it go
			d.Result, d.Reason = decision.Closed, "a former actuator paused it; it is let go"
		}
		l.holds[h.ContainerID] = &hold{Hold: h}
		l.decide(d)
	}
}

// leaseOf reports whether an open lease asks for the hold.
func (l *loop) leaseOf(h journal.Hold) bool {
	switch plan.Cause(h.Cause) {
	case plan.Asked:
		return l.wished(state.WishPause, h.ContainerID)
	case plan.Relieve:
		return slices.ContainsFunc(h.GPUs, func(g string) bool { return l.wished(state.WishRelieve, g) })
	default:
		return slices.ContainsFunc(h.GPUs, l.arbitrated)
	}
}

// overdue exempts what was held as long as is allowed, so that the next plan lets
// it go and does not hold it again.
func (l *loop) overdue(now time.Time) {
	for id, h := range l.holds {
		if _, exempt := l.book.Exemption(id); exempt || h.Until.IsZero() || now.Before(h.Until) {
			continue
		}
		l.exempt(id, h.Tasks, now, fmt.Sprintf("it was held for %v, as long as is allowed (--max-hold)", now.Sub(h.Since).Round(time.Second)))
	}
}

// renew moves the end of those holds on whose reason the plan sees.
func (l *loop) renew(now time.Time) {
	for id, h := range l.holds {
		if _, busy := l.flying[id]; busy {
			continue
		}
		w, waits := l.waits[id]
		if !waits || h.doubtful || h.Expires.Sub(now) > l.o.HoldLease/2 {
			continue
		}
		renewed := h.Hold
		renewed.Cause, renewed.Reason = string(w.Cause), w.Reason
		renewed.Expires = now.Add(l.o.HoldLease)
		if renewed.Expires.After(h.Until) {
			renewed.Expires = h.Until
		}
		if !renewed.Expires.After(h.Expires) {
			continue
		}
		if !l.o.DryRun {
			if _, err := l.journal.Renew(renewed); err != nil {
				l.log.Error("cannot renew a hold; it ends when its lease does", "container", h.Container, "err", err)
				continue
			}
		}
		h.Hold = renewed
	}
}

// exempt keeps the container from being held for as long as its present tasks,
// and these, last.
func (l *loop) exempt(id string, tasks []string, now time.Time, reason string) {
	l.book.Exempt(state.Exemption{ContainerID: id, Tasks: l.presentTasks(id, tasks), Reason: reason, Since: now})
}

// expire lets go what nothing has renewed, whatever the plan says or cannot say.
func (l *loop) expire(ctx context.Context, now time.Time) {
	for _, h := range l.holds {
		if now.Before(h.Expires) {
			continue
		}
		reason := fmt.Sprintf("its lease ran out: the reason was not seen for %v", l.o.HoldLease)
		if h.doubtful {
			reason = "its pause had failed, and it seems to run"
		}
		if e, ok := l.book.Exemption(h.ContainerID); ok {
			reason = e.Reason
		}
		l.begin(ctx, now, plan.Action{
			Kind: plan.Unpause, ContainerID: h.ContainerID, Container: h.Container, Cause: plan.Cause(h.Cause),
			Reason: reason, GPUs: h.GPUs, Tasks: h.Tasks, Standing: plan.Ours,
		})
	}
}

// inspectHolds asks the engine about containers that we hold and the snapshot
// does not show as paused: somebody unpaused them, or they are gone, or the
// snapshot lags.
func (l *loop) inspectHolds(ctx context.Context, now time.Time) {
	const lag, every = 300 * time.Millisecond, 500 * time.Millisecond
	if l.snap == nil || !l.snap.Health.EngineUp {
		return
	}
	for id, h := range l.holds {
		if now.Sub(h.Since) < lag || now.Sub(h.looked) < every {
			continue
		}
		i := slices.IndexFunc(l.snap.Containers, func(c task.Container) bool { return c.ID == id })
		if i >= 0 && l.snap.Containers[i].Paused && !h.doubtful {
			continue
		}
		h.looked = now
		l.begin(ctx, now, plan.Action{Kind: look, ContainerID: id, Container: h.Container})
	}
}

// doubt is how long an engine that did not answer may still carry a pause out.
const doubt = 10 * time.Second

// looked takes note of what the engine says of a container that we hold.
func (l *loop) looked(r result, now time.Time) {
	h, ok := l.holds[r.action.ContainerID]
	gone := errors.Is(r.err, enforce.ErrGone)
	switch {
	case !ok, r.err != nil && !gone:
		return
	case r.err == nil && r.status.Paused:
		h.doubtful = false // on record and stopped: a hold like any other
		return
	case h.doubtful && !gone:
		if now.Sub(h.Since) >= doubt {
			h.Expires = now // the next step lets it go, which waits for a pause that comes late
		}
	case gone:
		l.drop(h, "gone", "the container ended or was removed while it was paused")
	case r.status.Started.After(h.Since):
		l.drop(h, "gone", "the container was started again while it was paused")
	default:
		_, recorded, err := l.journal.Get(h.ContainerID)
		if !recorded && err == nil && !l.o.DryRun {
			l.exempt(h.ContainerID, h.Tasks, now, "the guardian let it go")
			l.drop(h, "guardian", "the guardian let it go")
			return
		}
		l.exempt(h.ContainerID, h.Tasks, now, "a person unpaused it")
		l.drop(h, "person", "a person unpaused it; it is not paused again for this task")
	}
}

// drop takes a container off the record that is not stopped.
func (l *loop) drop(h *hold, metric, reason string) {
	if !l.o.DryRun {
		if err := l.journal.Remove(h.ContainerID); err != nil {
			l.log.Error("cannot take a container off the record", "container", h.Container, "err", err)
			return // seen again by the next look
		}
	}
	delete(l.holds, h.ContainerID)
	l.metrics.Lost.WithLabelValues(metric).Inc()
	l.decide(decision.Decision{Kind: decision.Hold, Result: decision.Closed, Reason: reason, Container: h.Container,
		ContainerID: h.ContainerID, GPUs: h.GPUs, Tasks: h.Tasks, Cause: h.Cause})
}
