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
	"github.com/laxity/laxity/exporter/task"
)

// look is the kind of a flight that changes nothing: it asks the engine.
const look plan.Kind = "look"

// flight is something that is being done to one container. There is at most one
// for each.
type flight struct {
	kind plan.Kind
	gpus []string
}

// result is how a flight came out.
type result struct {
	action  plan.Action
	hold    journal.Hold
	status  enforce.Status // of a look
	swap    enforce.SwapResult
	started time.Time
	// arrived is when the snapshot came that the action rests on; zero where it
	// rests on none.
	arrived time.Time
	err     error
	// recorded: after a pause that failed, the container is still on record.
	recorded bool
}

// errOvertaken means that what an action rests on is no longer so.
var errOvertaken = errors.New("overtaken: its tasks are finished")

// actionTimeout bounds one action with all its attempts.
const actionTimeout = 30 * time.Second

// begin sets an action going, unless something is being done to the container
// already or the last attempt failed just now.
func (l *loop) begin(ctx context.Context, now time.Time, a plan.Action) {
	if _, busy := l.flying[a.ContainerID]; busy || now.Before(l.retry[a.ContainerID].next) {
		return
	}
	if h := l.holds[a.ContainerID]; h != nil && h.doubtful && a.Kind == plan.Unpause && now.Sub(h.Since) < doubt {
		return // its pause may come yet; a look tells
	}
	c := l.Config()
	swaps := a.Kind == plan.SwapOut || a.Kind == plan.SwapIn
	if swaps && !l.channels.setAside(a.ContainerID, now) {
		return // a checkpoint waits for what its channels do: they are on before
	}
	if swaps {
		l.mem.swaps.busy[a.ContainerID] = true
		l.breaker.acts = append(l.breaker.acts, now)
	}
	arrived := l.planned
	h := journal.Hold{
		ContainerID: a.ContainerID, Container: a.Container, Cause: string(a.Cause), Reason: a.Reason,
		GPUs: a.GPUs, Tasks: a.Tasks, Since: now, Until: now.Add(c.MaxHold),
	}
	h.Expires = now.Add(min(l.o.HoldLease, c.MaxHold))
	l.flying[a.ContainerID] = flight{kind: a.Kind, gpus: a.GPUs}
	go func() {
		// Not ctx: a shutdown must not cut an action in the middle. It waits.
		limit := actionTimeout
		if swaps {
			limit = swapTimeout
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		r := result{action: a, hold: h, started: l.o.Now(), arrived: arrived}
		l.carryOut(ctx, a, &r)
		l.results <- r
	}()
}

// carryOut runs beside the loop and touches nothing of it.
func (l *loop) carryOut(ctx context.Context, a plan.Action, r *result) {
	switch a.Kind {
	case plan.Pause:
		if r.err = l.stillTrue(a); r.err == nil {
			r.err = l.enforcer.Pause(ctx, r.hold)
		}
		if r.err != nil {
			_, r.recorded, _ = l.journal.Get(a.ContainerID)
		}
	case plan.Unpause:
		r.err = l.enforcer.Unpause(ctx, a.ContainerID)
	case plan.SwapOut:
		if r.err = l.stillTrue(a); r.err == nil {
			r.swap, r.err = l.swap(ctx, a)
		}
	case plan.SwapIn:
		r.swap, r.err = l.swap(ctx, a)
	case inquire:
		r.err = l.mem.swaps.Can(ctx, a.ContainerID)
	default:
		r.status, r.err = l.enforcer.Status(ctx, a.ContainerID)
	}
}

// stillTrue checks a pause's precondition against the youngest snapshot. How the
// container stands, the enforcer checks at the engine.
func (l *loop) stillTrue(a plan.Action) error {
	s := l.snapshot.Load()
	for _, id := range a.Tasks {
		if !slices.ContainsFunc(s.Tasks, func(t task.Task) bool { return t.ID == id && t.State.Unfinished() }) {
			return errOvertaken
		}
	}
	return nil
}

// finish takes note of how a flight came out.
func (l *loop) finish(r result) {
	delete(l.flying, r.action.ContainerID)
	now := l.o.Now()
	if r.action.Kind == inquire {
		l.answered(r, now)
		return
	}
	if r.action.Kind == look {
		l.labelled(r.action.ContainerID, r.status, r.err, now)
		l.looked(r, now)
		return
	}
	for _, g := range r.action.GPUs {
		l.lastAct[g] = now
	}
	d := decision.Decision{
		Kind: decision.Kind(r.action.Kind), Result: decision.Done, Reason: r.action.Reason, Policy: l.Config().Policy,
		Container: r.action.Container, ContainerID: r.action.ContainerID, GPUs: r.action.GPUs, Tasks: r.action.Tasks,
		Cause: string(r.action.Cause), Seconds: now.Sub(r.started).Seconds(),
	}
	if l.o.DryRun {
		d.Result = decision.DryRun
	}
	switch r.action.Kind {
	case plan.Pause:
		l.finishPause(r, now, &d)
	case plan.SwapOut, plan.SwapIn:
		l.finishSwap(r, now, &d)
	default:
		l.finishUnpause(r, now, &d)
	}
	l.metrics.Actions.WithLabelValues(string(r.action.Kind), string(d.Result)).Inc()
	l.metrics.ActionSeconds.WithLabelValues(string(r.action.Kind)).Observe(d.Seconds)
	if !r.arrived.IsZero() && d.Result == decision.Done {
		l.metrics.Latency.WithLabelValues(string(r.action.Kind)).Observe(now.Sub(r.arrived).Seconds())
	}
	matter := d.ContainerID + "/" + string(d.Kind)
	switch d.Result {
	case decision.Failed, decision.Ignored:
		l.decideOnce(matter, d)
	default:
		delete(l.said, matter)
		l.decide(d)
	}
}

func (l *loop) finishPause(r result, now time.Time, d *decision.Decision) {
	id := r.action.ContainerID
	switch {
	case r.err == nil:
		l.holds[id] = &hold{Hold: r.hold}
		delete(l.retry, id)
		delete(l.freed, id)
		return
	case errors.Is(r.err, errOvertaken), errors.Is(r.err, enforce.ErrGone), errors.Is(r.err, enforce.ErrForeign):
		d.Result, d.Error = decision.Ignored, r.err.Error()
	default:
		d.Result, d.Error = decision.Failed, r.err.Error()
	}
	if r.recorded {
		l.holds[id] = &hold{Hold: r.hold, doubtful: true}
	}
	if !errors.Is(r.err, errOvertaken) {
		l.later(id, now)
	}
}

func (l *loop) finishUnpause(r result, now time.Time, d *decision.Decision) {
	id := r.action.ContainerID
	if r.err != nil && !errors.Is(r.err, enforce.ErrForeign) {
		d.Result, d.Error = decision.Failed, r.err.Error()
		l.later(id, now)
		return
	}
	if r.err != nil {
		d.Result, d.Error = decision.Ignored, r.err.Error()
	}
	delete(l.holds, id)
	delete(l.retry, id)
	l.freed[id] = now
}

// later keeps a failing action from being tried again at once.
func (l *loop) later(id string, now time.Time) {
	b := l.retry[id]
	b.later(now, 250*time.Millisecond, 5*time.Second)
	l.retry[id] = b
}

// letGoAll ends the actuator: it waits for what is under way, then lets go
// everything on record.
func (l *loop) letGoAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), actionTimeout)
	defer cancel()
	for len(l.flying) > 0 {
		l.finish(<-l.results) // each ends by its timeout
	}
	l.settleChannels()
	err := l.resumeAll(ctx)
	swapped := err
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if err = l.letGoOnce(ctx); err == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	l.save()
	l.keepHistory(l.o.Now(), true)
	l.publish(l.o.Now())
	if err = errors.Join(err, swapped); err != nil {
		return fmt.Errorf("containers are still paused and on record; the guardian goes on letting them go: %w", err)
	}
	return nil
}

func (l *loop) letGoOnce(ctx context.Context) error {
	holds, err := l.journal.List()
	if err != nil {
		return err
	}
	if l.o.DryRun {
		for _, h := range l.holds {
			holds = append(holds, h.Hold)
		}
	}
	for _, h := range holds {
		id := h.ContainerID
		l.flying[id] = flight{kind: plan.Unpause}
		a := plan.Action{Kind: plan.Unpause, ContainerID: id, Container: h.Container, Cause: plan.Cause(h.Cause),
			Reason: "the actuator ends", GPUs: h.GPUs, Tasks: h.Tasks}
		go func() {
			started := l.o.Now()
			l.results <- result{action: a, started: started, err: l.enforcer.Unpause(ctx, id)}
		}()
	}
	for range holds {
		r := <-l.results
		if !errors.Is(r.err, enforce.ErrForeign) {
			err = errors.Join(err, r.err)
		}
		l.finish(r)
	}
	return err
}
