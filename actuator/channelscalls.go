package actuator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/internal/rm"
)

// divideResult is what came of a GPU's changes.
type divideResult struct {
	gpu     string
	changes []outcome
}

type outcome struct {
	tenant *tenant // the loop's
	kind   string
	stands ladder.Standing // if it succeeds
	err    error
	// unsettled: its own program may yet set the slice.
	unsettled bool
}

// call is one change on its way.
type call struct {
	outcome
	target channels.Target
}

// Kinds of changes, as the metric has them.
const (
	setSlice   = "slice"
	switchOff  = "off"
	switchOn   = "on"
	restoreAll = "restore" // on, and its own slice
)

func kindOf(c ladder.Change) string {
	switch {
	case c.Set:
		return setSlice
	case c.Switch && c.Standing.Off:
		return switchOff
	case c.Switch:
		return switchOn
	default:
		return restoreAll
	}
}

// after is how somebody stands after a change. A slice as by default is its own one.
func after(s ladder.Standing, c ladder.Change) ladder.Standing {
	switch {
	case c.Set && c.Standing.Slice == ladder.DefaultSlice:
		s.Slice = 0
	case c.Set:
		s.Slice = c.Standing.Slice
	case c.Switch:
		s.Off, s.Until = c.Standing.Off, c.Standing.Until
	default:
		return ladder.Standing{}
	}
	s.Rank, s.Reason = c.Standing.Rank, c.Standing.Reason
	return s
}

// carryOutChanges does so beside the loop, one after another. A change that neither sets
// nor switches puts a process's own slice back.
func (l *loop) carryOutChanges(ctx context.Context, gpu string, changes []ladder.Change) {
	if len(changes) == 0 || l.o.DryRun {
		return
	}
	k := l.channels
	k.gpu(gpu).busy = true
	calls := make([]call, len(changes))
	at := map[*tenant]ladder.Standing{} // in the middle of the changes
	for i, c := range changes {
		t := k.tenants[c.Tenant]
		s, ok := at[t]
		if !ok {
			s = t.stands
		}
		at[t] = after(s, c)
		calls[i] = call{
			outcome: outcome{tenant: t, kind: kindOf(c), stands: at[t]},
			target:  channels.Target{Container: t.container, Processes: []rm.Process{t.process}},
		}
	}
	go func() {
		r := divideResult{gpu: gpu}
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
	if c.kind == restoreAll {
		c.err = do.Restore(ctx, c.target.Processes...)
		return
	}
	s := channels.Standing{Slice: c.stands.Slice, Off: c.stands.Off, Reason: c.stands.Reason}
	if s.Off {
		s.Lease = max(c.stands.Until.Sub(now()), time.Millisecond)
	}
	r, err := do.Apply(ctx, c.target, s)
	if err == nil && len(r.Groups) == 0 {
		err = channels.ErrNoGroup
	}
	c.unsettled, c.err = r.Unsettled, err
}

const (
	// How soon a process that has no channels yet, or whose slice may yet change, is looked
	// at again, at first and at most.
	againSoon, againLate = 25 * time.Millisecond, 200 * time.Millisecond
	// The same after a call that failed.
	failedSoon, failedLate = 250 * time.Millisecond, 5 * time.Second
)

// finishDivide takes note of what came of a GPU's changes.
func (l *loop) finishDivide(r divideResult) {
	now := l.o.Now()
	l.channels.gpus[r.gpu].busy = false
	for _, c := range r.changes {
		t := c.tenant
		matter := fmt.Sprintf("%s/%d/order", t.container, t.process.PID)
		switch {
		case errors.Is(c.err, channels.ErrGone) && c.kind == restoreAll:
			t.later(now, againSoon, againLate) // until it has ended: then it is off the record, too
		case errors.Is(c.err, channels.ErrGone):
			t.gone = true
		case errors.Is(c.err, channels.ErrNoGroup):
			t.stands = ladder.Standing{}
			t.later(now, againSoon, againLate)
		case c.err == nil && c.unsettled:
			t.stands.Off, t.stands.Until = c.stands.Off, c.stands.Until
			t.later(now, againSoon, againLate)
		case c.err != nil:
			t.doubtful = true
			t.later(now, failedSoon, failedLate)
			l.decideOnce(matter, decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: "what was changed of it is put back, and it is tried again later",
				Error: c.err.Error(), Container: t.name, ContainerID: t.container, GPUs: []string{r.gpu}})
		default:
			t.stands, t.doubtful = c.stands, false
			if c.kind != restoreAll { // one that fails again and again is put back in between
				t.retry = backoff{}
				delete(l.said, matter)
			}
			l.metrics.Changes.WithLabelValues(c.kind).Inc()
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
