package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/internal/rm"
)

// divideResult is what came of a GPU's changes.
type divideResult struct {
	gpu     string
	tenants []*tenant // the loop's: all that were to be changed
	changes []outcome // those that were made
}

type outcome struct {
	tenant *tenant // the loop's
	kind   string
	stands ladder.Standing // if it succeeds
	err    error
	// unsettled: its own program may yet set the slice.
	unsettled bool
	// own: it had set a slice of its own since.
	own bool
}

// call is one change on its way.
type call struct {
	outcome
	target channels.Target
}

// change is what is to be done to one process.
type change struct {
	tenant, kind string
	standing     ladder.Standing // of slice, off and on
}

// Kinds of changes, as the metric has them.
const (
	setSlice  = "slice"
	switchOff = "off"
	switchOn  = "on"
	restore   = "restore" // on, and its own slice
	lookAt    = "look"    // it stands as before, new contexts as well
)

func kindOf(c ladder.Change) string {
	switch {
	case c.Set:
		return setSlice
	case c.Standing.Off:
		return switchOff
	default:
		return switchOn
	}
}

// after is how somebody stands after a change. A slice as by default is its own one.
func after(s ladder.Standing, c change) ladder.Standing {
	switch c.kind {
	case setSlice:
		if s.Slice = c.standing.Slice; s.Slice == ladder.DefaultSlice {
			s.Slice = 0
		}
	case switchOff, switchOn:
		s.Off, s.Until = c.standing.Off, c.standing.Until
	case restore:
		return ladder.Standing{}
	case lookAt:
		return s
	}
	s.Rank, s.Reason = c.standing.Rank, c.standing.Reason
	return s
}

// carryOutChanges does so beside the loop, one after another.
func (l *loop) carryOutChanges(ctx context.Context, gpu string, changes []change) {
	if len(changes) == 0 || l.o.DryRun {
		return
	}
	k := l.channels
	k.gpu(gpu).busy = true
	calls := make([]call, len(changes))
	at := map[*tenant]ladder.Standing{} // in the middle of the changes
	for i, c := range changes {
		t := k.tenants[c.tenant]
		s, ok := at[t]
		if !ok {
			s = t.stands
		}
		at[t], t.flying = after(s, c), true
		calls[i] = call{
			outcome: outcome{tenant: t, kind: c.kind, stands: at[t]},
			target:  channels.Target{Container: t.container, Processes: []rm.Process{t.process}},
		}
	}
	go func() {
		r := divideResult{gpu: gpu, tenants: slices.Collect(maps.Keys(at))}
		failed := map[*tenant]bool{}
		for _, c := range calls {
			if failed[c.tenant] || ctx.Err() != nil { // at the end everything is put back
				continue
			}
			// A shutdown must not cut a change in the middle.
			c.carryOut(context.WithoutCancel(ctx), k.do, l.o.Now)
			failed[c.tenant] = c.err != nil
			r.changes = append(r.changes, c.outcome)
		}
		k.results <- r
	}()
}

// callTimeout bounds one change. A call that hangs is the driver's.
const callTimeout = time.Second

// carryOut runs beside the loop and touches nothing of it.
func (c *call) carryOut(ctx context.Context, do Channels, now func() time.Time) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.kind == restore {
		c.err = do.Restore(ctx, c.target.Processes...)
		return
	}
	s := channels.Standing{Slice: c.stands.Slice, Off: c.stands.Off, Reason: c.stands.Reason}
	if s.Off {
		s.Lease = max(c.stands.Until.Sub(now()), time.Millisecond)
	}
	apply := do.Apply
	if c.kind == lookAt {
		apply = do.Look
	}
	r, err := apply(ctx, c.target, s)
	if err == nil && len(r.Groups) == 0 {
		err = channels.ErrNoGroup
	}
	c.unsettled, c.own, c.err = r.Unsettled, len(r.Changed) > 0, err
}

const (
	// How soon a process that has no channels yet, or whose slice may yet change, is looked
	// at again, at first and at most.
	againSoon, againLate = 25 * time.Millisecond, 200 * time.Millisecond
	// The same after a call that failed.
	failedSoon, failedLate = 250 * time.Millisecond, 5 * time.Second
	// How soon it is looked for new contexts, at first and at most. It takes up to 50 ms of the
	// driver's time.
	lookSoon, lookLate = 500 * time.Millisecond, 10 * time.Second
)

// justBegun says why somebody is left as it is that has no channels yet, or whose own
// program may yet set its slice.
const justBegun = "it has only just begun to use the GPU"

// finishDivide takes note of what came of a GPU's changes.
func (l *loop) finishDivide(r divideResult) {
	now := l.o.Now()
	l.channels.gpus[r.gpu].busy = false
	for _, t := range r.tenants {
		t.flying = false
	}
	for _, c := range r.changes {
		t := c.tenant
		l.log.Debug("order carried out", "gpu", r.gpu, "container", t.name, "pid", t.process.PID, "change", c.kind,
			"slice", c.stands.Slice, "off", c.stands.Off, "reason", c.stands.Reason, "unsettled", c.unsettled, "err", c.err)
		matter := fmt.Sprintf("%s/%d/order", t.container, t.process.PID)
		switch {
		case errors.Is(c.err, channels.ErrGone) && c.kind == restore:
			t.retry.later(now, againSoon, againLate) // until it has ended: then it is off the record, too
		case errors.Is(c.err, channels.ErrGone):
			t.gone = true
		case errors.Is(c.err, channels.ErrNoGroup):
			t.stands, t.left = ladder.Standing{}, justBegun
			t.retry.later(now, againSoon, againLate)
		case c.err == nil && c.unsettled:
			t.stands.Off, t.stands.Until, t.left = c.stands.Off, c.stands.Until, justBegun
			t.retry.later(now, againSoon, againLate)
		case c.err != nil:
			t.doubtful, t.left = true, c.err.Error()
			t.retry.later(now, failedSoon, failedLate)
			l.decideOnce(matter, decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: "what was changed of it is put back, and it is tried again later",
				Error: c.err.Error(), Container: t.name, ContainerID: t.container, GPUs: []string{r.gpu}})
		case c.kind == lookAt:
			t.look.later(now, lookSoon, lookLate)
		case c.kind == restore: // what fails again and again is put back in between
			t.stands, t.doubtful = c.stands, false
			l.metrics.Changes.WithLabelValues(c.kind).Inc()
		default:
			if t.stands, t.retry, t.left = c.stands, (backoff{}), ""; t.look.wait == 0 {
				t.look.later(now, lookSoon, lookLate)
			}
			delete(l.said, matter)
			l.metrics.Changes.WithLabelValues(c.kind).Inc()
		}
		if c.own {
			l.decideOnce(matter+"/own", decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: "it changed its own time slice; the one by the order is set again, and at the end its own one",
				Container: t.name, ContainerID: t.container, GPUs: []string{r.gpu}})
		}
	}
}

// restoreTimeout bounds the restoring at the end.
const restoreTimeout = 5 * time.Second

// settleChannels waits for what is under way, then puts everything back.
func (l *loop) settleChannels() {
	if l.channels == nil {
		return
	}
	for l.channels.busy() {
		l.finishDivide(<-l.channels.results) // each call ends by its timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if left, err := l.channels.do.RestoreAll(ctx); err != nil || left > 0 {
		l.log.Warn("cannot put back all time slices and channels; the guardian goes on", "processes", left, "err", err)
	}
}
