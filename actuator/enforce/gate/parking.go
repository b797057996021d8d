package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

// A container that the planner holds, and that waits at the gate for more than a
// moment, is parked: paused as a whole. A parent that looks after its children then
// stands still too; a shell cannot take a stopped child for suspended, nor leave it
// orphaned, and nobody in the container can continue it. Who is soon in turn is
// unparked early, and still stands at the gate.
//
// Whom the planner does not hold is not parked: the planner would take that pause for
// somebody else's, and nobody would end it before its lease does.
type parking struct {
	sync.Mutex // while the engine is asked
	paused     atomic.Bool
	hold       journal.Hold
	refused    bool        // somebody else's pause, or unpause: hands off for this stay
	unsure     atomic.Bool // our pause failed, and may come yet: it is on record
	stalled    atomic.Bool // paused while it started up, until the plan ends it
}

// strayAfter is how long a container may wait at the gate that the planner neither
// holds nor has put in line for as long as that. Then it is let go: nobody decides
// about it, and no reason is on record.
const strayAfter = 400 * time.Millisecond

// longestBack is how long a container may stand before its context in one piece.
const longestBack = policy.DefaultPatience

// follow parks and unparks, and passes on what the gate tells.
func (e *Enforcer) follow(ctx context.Context, g *Gate) {
	var parking sync.WaitGroup
	defer parking.Wait()
	rounds{
		every:   min(e.o.Moment/3, 25*time.Millisecond),
		changed: g.Changed(), tell: e.tell,
		woken: e.woken, look: func() bool { return e.look(ctx, g, &parking) },
	}.run(ctx)
}

func (e *Enforcer) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// look parks and unparks once, and reports whether it is to look again though
// nothing changes: somebody waits or is parked.
func (e *Enforcer) look(ctx context.Context, g *Gate, parking *sync.WaitGroup) (again bool) {
	now := time.Now()
	view := g.View()
	for id, v := range view {
		since, waits := v.Since, v.Phase == plan.Waiting && !v.Admitted
		e.mu.Lock()
		next, held, p := e.next[id], e.held[id], e.parked[id]
		decided := held || e.known[id] && now.Sub(e.lined) <= strayAfter
		e.mu.Unlock()
		if !v.Stands.IsZero() {
			since, waits, next = v.Stands, true, false
		}
		again = again || waits
		switch {
		case !v.Stands.IsZero() && (!decided && now.Sub(since) > strayAfter || now.Sub(since) > longestBack):
			g.Forth(id)
		case waits && !decided && now.Sub(since) > strayAfter:
			e.o.Logger.Warn("nobody decides about a container that waits at the launch gate; it is let go", "container", id)
			e.note(id, g.Admit(id))
		case waits && held && !next && v.Still && now.Sub(since) > e.o.Moment && (p == nil || !p.busy()):
			parking.Go(func() { e.park(ctx, id, since) })
		case p != nil && p.stalled.Load() && !waits: // the plan's, not ours
		case p != nil && (next || !waits) && !p.busy():
			if p.paused.Load() || p.unsure.Load() {
				parking.Go(func() { e.note(id, e.unpark(ctx, id)) })
			} else if !waits {
				e.mu.Lock()
				delete(e.parked, id)
				e.mu.Unlock()
			}
		}
	}
	return e.forget(view) || again
}

func (p *parking) reset() {
	p.refused = false
	p.unsure.Store(false)
	p.paused.Store(false)
	p.stalled.Store(false)
}

// busy reports whether the engine is being asked about the container.
func (p *parking) busy() bool {
	if !p.TryLock() {
		return true
	}
	p.Unlock()
	return false
}

// forget drops what is known of containers that are not gated any more and run.
// It reports whether any is left that has to be looked after: not those that are
// paused and not gated any more, which their unpause wakes us for.
func (e *Enforcer) forget(view map[string]View) (left bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, p := range e.parked {
		if _, gated := view[id]; gated || !p.TryLock() {
			left = true
			continue
		}
		if !p.paused.Load() && !p.unsure.Load() {
			delete(e.parked, id)
		}
		p.Unlock()
	}
	return left
}

func (e *Enforcer) place(id string) *parking {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.parked[id]
	if p == nil {
		p = &parking{}
		e.parked[id] = p
	}
	select {
	case e.woken <- struct{}{}:
	default:
	}
	return p
}

// park pauses a container that stands at the gate, or renews its pause.
func (e *Enforcer) park(ctx context.Context, id string, since time.Time) {
	p := e.place(id)
	p.Lock()
	defer p.Unlock()
	now := time.Now()
	if p.refused || !e.isHeld(id) || (p.paused.Load() && p.hold.Expires.Sub(now) > e.o.Lease/2) {
		return
	}
	if _, ours, err := e.o.Journal.Get(id); err != nil || (p.paused.Load() && !ours) {
		p.refused = true // the guardian let it go
		p.paused.Store(false)
		return
	}
	until := since.Add(e.o.Longest)
	if !now.Before(until) {
		return
	}
	h := journal.Hold{
		ContainerID: id, Container: id[:min(12, len(id))], Cause: string(plan.Arbitrate), Reason: "waits at the launch gate",
		Since: now, Until: until, Expires: now.Add(2 * e.o.Lease),
	}
	if p.paused.Load() { // a person may have unpaused it: then it stays so
		h.Since = p.hold.Since
		if s, err := e.Enforcer.Status(ctx, id); err == nil && !s.Paused {
			p.refused = true
			return
		}
	}
	if err := e.Enforcer.Pause(ctx, h); err != nil {
		if errors.Is(err, enforce.ErrForeign) || errors.Is(err, enforce.ErrGone) {
			p.refused = true
			return
		}
		p.unsure.Store(e.recorded(id))
		e.o.Logger.Warn("a container that waits at the launch gate cannot be paused", "container", id, "err", err)
		return
	}
	p.hold = h
	p.unsure.Store(false)
	p.paused.Store(true)
}

// stall pauses a container that has begun to start up.
func (e *Enforcer) stall(ctx context.Context, h journal.Hold) error {
	p := e.place(h.ContainerID)
	p.Lock()
	defer p.Unlock()
	if p.refused {
		return enforce.ErrForeign
	}
	if err := e.Enforcer.Pause(ctx, h); err != nil {
		return err
	}
	p.hold = h
	p.stalled.Store(true)
	p.paused.Store(true)
	return nil
}

// unpark unpauses a container if it is on record. What is stopped at the gate
// stays so.
func (e *Enforcer) unpark(ctx context.Context, id string) error {
	p := e.place(id)
	p.Lock()
	defer p.Unlock()
	if _, ours, err := e.o.Journal.Get(id); err == nil && !ours {
		p.reset()
		return nil
	}
	if err := e.Enforcer.Unpause(ctx, id); err != nil && !errors.Is(err, enforce.ErrForeign) {
		return err
	}
	p.reset()
	return nil
}
