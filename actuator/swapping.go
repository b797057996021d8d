package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// swapKeeper is the loop's part about containers that are swapped out.
type swapKeeper struct {
	enforce.Swapper
	rates estimate.Swaps
	out   map[string]enforce.Swapped // on record, by container id
	busy  map[string]bool
	since map[string]time.Time // of the last swap
	can   map[string]ability
	// Totals for metrics are kept there.
}

// ability is what the swapper last said of a container.
type ability struct {
	err error
	at  time.Time
}

func newSwapKeeper(s enforce.Swapper) *swapKeeper {
	return &swapKeeper{Swapper: s, out: map[string]enforce.Swapped{}, busy: map[string]bool{}, since: map[string]time.Time{}, can: map[string]ability{}}
}

const (
	// swapTimeout bounds a swap with all its steps; each has a limit of its own.
	swapTimeout = 5 * time.Minute
	// askAgain is how long an answer counts whether a container can be swapped.
	askAgain = 5 * time.Second
)

// inquire is the kind of a flight that asks whether a container can be swapped.
const inquire plan.Kind = "ask"

// fill adds what is known of swapping the container.
func (s *swapKeeper) fill(m *plan.Memory, id string, now time.Time, longest time.Duration) {
	if s == nil {
		return
	}
	var held uint64
	for _, n := range m.Held {
		held += n
	}
	m.Busy, m.Since = s.busy[id], s.since[id]
	if r, ok := s.out[id]; ok {
		m.Out, m.Held, held = true, map[string]uint64{}, 0
		m.Overdue = now.Sub(r.Since) >= longest
		// What it is expected to hold counts, too: else there seems to be room for it as
		// soon as it is out.
		for g, n := range r.Bytes {
			m.Needs[g] = max(m.Needs[g], n)
			held += n
		}
	}
	a, known := s.can[id]
	m.Can = known && a.err == nil
	m.Cost = s.rates.Cost(held)
}

// isOut reports whether the container is swapped out by us, or on the way.
func (s *swapKeeper) isOut(id string) bool {
	if s == nil {
		return false
	}
	_, out := s.out[id]
	return out || s.busy[id]
}

// reread takes what is on record, which another actuator may have left.
func (l *loop) rereadSwaps() {
	s := l.mem.swaps
	if s == nil {
		return
	}
	list, err := s.Swapped()
	if err != nil {
		l.log.Error("cannot read which containers are swapped out", "err", err)
		return
	}
	was, now := maps.Clone(s.out), l.o.Now()
	clear(s.out)
	for _, r := range list {
		r.Since = earlier(r.Since, now)
		if old, out := was[r.ContainerID]; out {
			r.Since = old.Since // not the record's: the wall clock may have been set
		}
		s.out[r.ContainerID] = r
		if s.since[r.ContainerID].IsZero() {
			s.since[r.ContainerID] = r.Since
		}
	}
}

// scarce is the share of a card in use from which on it is good to know who could
// be swapped out: one that was paused cannot be asked.
const scarce = 0.8

// askSwappable asks, while memory is scarce or somebody is out for want of it, who could
// be swapped out.
func (l *loop) askSwappable(ctx context.Context, now time.Time) {
	s := l.mem.swaps
	if s == nil || (len(l.mem.waits) == 0 && len(l.mem.barred) == 0 && len(s.out) == 0 && !l.anyScarce()) {
		return
	}
	for _, c := range l.snap.Containers {
		if a := s.can[c.ID]; !l.managed(c) || c.Spec.NeverPause || c.Paused || s.isOut(c.ID) || len(c.MemoryUsed) == 0 || now.Sub(a.at) < askAgain {
			continue
		}
		l.begin(ctx, now, plan.Action{Kind: inquire, ContainerID: c.ID, Container: c.Name})
	}
	for id := range s.can {
		if _, ok := l.snap.FindContainer(id); !ok {
			delete(s.can, id)
			delete(s.since, id)
		}
	}
}

func (l *loop) anyScarce() bool {
	return slices.ContainsFunc(l.snap.GPUs, func(g task.GPU) bool { return memoryShare(g) >= scarce })
}

// answered takes note of what the swapper says of a container.
func (l *loop) answered(r result, now time.Time) {
	if errors.Is(r.err, enforce.ErrBusy) || errors.Is(r.err, enforce.ErrGone) {
		return
	}
	l.mem.swaps.can[r.action.ContainerID] = ability{r.err, now}
	if r.err != nil {
		l.decideOnce(r.action.ContainerID+"/swap", decision.Decision{Kind: decision.Memory, Result: decision.Ignored, Error: r.err.Error(),
			Reason: "it cannot be swapped out", Container: r.action.Container, ContainerID: r.action.ContainerID})
	}
}

// swap carries a swap out. What we hold is let go first: a frozen process can
// neither be locked nor checkpointed.
func (l *loop) swap(ctx context.Context, a plan.Action) (enforce.SwapResult, error) {
	s := l.mem.swaps
	if a.Kind == plan.SwapOut {
		if a.Standing == plan.Ours {
			if err := l.enforcer.Unpause(ctx, a.ContainerID); err != nil && !errors.Is(err, enforce.ErrForeign) {
				return enforce.SwapResult{}, fmt.Errorf("let it go before it is swapped out: %w", err)
			}
		}
		return s.Suspend(ctx, a.ContainerID, a.Container, a.Reason)
	}
	defer l.mem.ledger.Back(a.ContainerID)
	return s.Resume(ctx, a.ContainerID, func(need map[string]uint64) error { return l.mem.ledger.Reserve(a.ContainerID, need) })
}

// finishSwap takes note of how a swap came out.
func (l *loop) finishSwap(r result, now time.Time, d *decision.Decision) {
	s, id := l.mem.swaps, r.action.ContainerID
	delete(s.busy, id)
	direction := string(r.action.Kind)
	if r.action.Kind == plan.SwapOut && r.action.Standing == plan.Ours {
		delete(l.holds, id) // it was let go for that
	}
	l.rereadSwaps()
	switch {
	case r.err == nil:
		s.since[id] = now
		delete(l.retry, id)
		for _, n := range r.swap.Bytes {
			d.Bytes += n
		}
		l.metrics.SwapBytes.WithLabelValues(direction).Add(float64(d.Bytes))
		l.metrics.SwapSeconds.WithLabelValues(direction).Observe(r.swap.Seconds())
		if r.action.Kind == plan.SwapOut {
			s.rates.Out(d.Bytes, time.Duration(r.swap.CheckpointSeconds*float64(time.Second)))
		} else {
			s.rates.In(d.Bytes, time.Duration(r.swap.RestoreSeconds*float64(time.Second)))
			l.freed[id] = now
		}
		return
	case errors.Is(r.err, enforce.ErrNoRoom), errors.Is(r.err, enforce.ErrBusy), errors.Is(r.err, enforce.ErrGone), errors.Is(r.err, enforce.ErrForeign):
		d.Result, d.Error = decision.Ignored, r.err.Error()
	case errors.Is(r.err, enforce.ErrCannotSwap): // that may be of this moment only: an allocation is just being denied
		d.Result, d.Error = decision.Ignored, r.err.Error()
		s.can[id] = ability{r.err, now.Add(askAgain)}
	default: // not to be tried again at once, and said
		d.Result, d.Error = decision.Failed, r.err.Error()
		s.can[id] = ability{r.err, now.Add(time.Minute)}
	}
	l.later(id, now)
}

// outForLong is how the reason of an exemption begins that overdueSwaps makes.
const outForLong = "it was swapped out for "

// overdueSwaps brings back what was out for as long as is allowed.
func (l *loop) overdueSwaps(now time.Time) {
	if l.mem.swaps == nil {
		return
	}
	for id, r := range l.mem.swaps.out {
		if _, exempt := l.book.Exemption(id); exempt || now.Sub(r.Since) < l.Config().MaxHold {
			continue
		}
		l.exempt(id, nil, now,
			fmt.Sprintf("%s%v, as long as is allowed (--max-hold)", outForLong, now.Sub(r.Since).Round(time.Second)))
	}
}

// resumeAll brings back everything that is swapped out, at the end of the
// actuator.
func (l *loop) resumeAll(ctx context.Context) error {
	s := l.mem.swaps
	if s == nil {
		return nil
	}
	list, err := s.Swapped()
	for _, r := range list {
		result, rerr := s.Resume(ctx, r.ContainerID, nil)
		d := decision.Decision{Kind: decision.SwapIn, Result: decision.Done, Reason: "the actuator ends", Container: r.Container,
			ContainerID: r.ContainerID, Cause: string(plan.OfMemory), Seconds: result.Seconds()}
		if rerr != nil {
			d.Result, d.Error = decision.Failed, rerr.Error()
			err = errors.Join(err, fmt.Errorf("container %s stays swapped out: %w", r.Container, rerr))
		}
		l.decide(d)
	}
	return err
}
