package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// swaps are the containers that are swapped out: off their GPUs, with their memory in the host's.
type swaps struct {
	rates estimate.Swaps
	out   map[string]enforce.Swapped // on record, by container id
	busy  map[string]bool
	since map[string]time.Time // when it was last swapped
	can   map[string]ability
	// undone are the tries to swap out that failed and were undone, since the last that worked; mended
	// are the tries to bring back what a swap left in the middle.
	undone, mended map[string]backoff
	// absent are containers on record that the snapshot lacks.
	absent map[string]absence
}

// absence is what the engine says of a container that the snapshot lacks.
type absence struct {
	asked time.Time
	ended bool
}

// ability is the swapper's last answer about a container.
type ability struct {
	err error
	at  time.Time
}

func newSwaps() *swaps {
	return &swaps{out: map[string]enforce.Swapped{}, busy: map[string]bool{}, since: map[string]time.Time{}, can: map[string]ability{},
		undone: map[string]backoff{}, mended: map[string]backoff{}, absent: map[string]absence{}}
}

// askAgain is how long an answer counts.
const askAgain = 5 * time.Second

// fill adds what is known about swapping the container.
func (s *swaps) fill(m *plan.Memory, id string, now time.Time, longest time.Duration) {
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
		// Its expected memory counts too: otherwise there would seem to be room for it as soon as it
		// is out.
		for g, n := range r.Bytes {
			m.Needs[g] = max(m.Needs[g], n)
			held += n
		}
	}
	a, known := s.can[id]
	m.Can = known && a.err == nil
	m.Cost = s.rates.Cost(held)
}

// isOut reports whether we have swapped the container out, or are about to.
func (s *swaps) isOut(id string) bool {
	if s == nil {
		return false
	}
	_, out := s.out[id]
	return out || s.busy[id]
}

// Swapped takes over what is on record, which may be another actuator's.
func (k *Core) Swapped(now time.Time, list []enforce.Swapped) {
	k.now = now
	s := k.memory.swaps
	was := maps.Clone(s.out)
	clear(s.out)
	for _, r := range list {
		r.Since = Earlier(r.Since, now)
		if old, out := was[r.ContainerID]; out {
			r.Since = old.Since // not the record's time: the wall clock may have been set
		}
		s.out[r.ContainerID] = r
		if s.since[r.ContainerID].IsZero() {
			s.since[r.ContainerID] = r.Since
		}
	}
	maps.DeleteFunc(s.absent, func(id string, _ absence) bool { _, out := s.out[id]; return !out })
}

// scarce is the used share of a card from which the swapper is asked in advance which containers it
// can swap out: it cannot answer for a paused one.
const scarce = 0.8

// askSwappable asks which containers can be swapped out, while memory is scarce or a container is
// out for lack of it.
func (k *Core) askSwappable() {
	s := k.memory.swaps
	if s == nil || (len(k.memory.waits) == 0 && len(k.memory.barred) == 0 && len(s.out) == 0 && !k.anyScarce()) {
		return
	}
	for _, c := range k.facts.snap.Containers {
		if a := s.can[c.ID]; !k.managed(c) || c.Spec.NeverPause || c.Paused || s.isOut(c.ID) || len(c.MemoryUsed) == 0 || k.now.Sub(a.at) < askAgain {
			continue
		}
		k.begin(plan.Action{Kind: AskSwap, ContainerID: c.ID, Container: c.Name})
	}
	for id := range s.can {
		if _, ok := k.facts.snap.FindContainer(id); !ok {
			delete(s.can, id)
			delete(s.since, id)
			delete(s.undone, id)
		}
	}
}

func (k *Core) anyScarce() bool {
	return slices.ContainsFunc(k.facts.snap.GPUs, func(g task.GPU) bool { return memoryShare(g) >= scarce })
}

// onAskedSwap handles the swapper's answer.
func (k *Core) onAskedSwap(r Result) {
	if errors.Is(r.Err, enforce.ErrBusy) || errors.Is(r.Err, enforce.ErrGone) {
		return
	}
	k.memory.swaps.can[r.ContainerID] = ability{r.Err, k.now}
	if r.Err != nil {
		k.decideOnce(r.ContainerID+"/swap", decision.Decision{Kind: decision.Memory, Result: decision.Ignored, Error: r.Err.Error(),
			Reason: "it cannot be swapped out", Container: r.Container, ContainerID: r.ContainerID})
	}
}

// onSwapped handles the end of a swap.
func (k *Core) onSwapped(r Result, d *decision.Decision) {
	s, id := k.memory.swaps, r.ContainerID
	delete(s.busy, id)
	delete(s.absent, id)
	direction := string(r.Kind)
	if r.Kind == plan.SwapOut && r.Standing == plan.Ours && !r.OnRecord {
		delete(k.holds.byID, id) // released before the swap
	}
	if r.SwappedKnown {
		k.Swapped(k.now, r.Swapped)
	}
	switch {
	case r.Err == nil:
		s.since[id] = k.now
		delete(k.holds.retry, id)
		for _, n := range r.Swap.Bytes {
			d.Bytes += n
		}
		k.count(SwapBytes, float64(d.Bytes), direction)
		k.count(SwapSeconds, r.Swap.Seconds(), direction)
		if r.Kind == plan.SwapOut {
			delete(s.undone, id)
			s.rates.Out(d.Bytes, time.Duration(r.Swap.CheckpointSeconds*float64(time.Second)))
		} else {
			s.rates.In(d.Bytes, time.Duration(r.Swap.RestoreSeconds*float64(time.Second)))
			k.holds.freed[id] = k.now
		}
		return
	case errors.Is(r.Err, ErrOvertaken), errors.Is(r.Err, enforce.ErrNoRoom), errors.Is(r.Err, enforce.ErrBusy), errors.Is(r.Err, enforce.ErrGone), errors.Is(r.Err, enforce.ErrForeign):
		d.Result, d.Error = decision.Ignored, r.Err.Error()
	case errors.Is(r.Err, enforce.ErrCannotSwap): // perhaps only for a moment: an allocation is just being denied
		d.Result, d.Error = decision.Ignored, r.Err.Error()
		s.can[id] = ability{r.Err, k.now.Add(askAgain)}
	case errors.Is(r.Err, enforce.ErrUndone): // it stood still for nothing: its kernels do not end, say
		d.Result, d.Error = decision.Failed, r.Err.Error()
		b := s.undone[id]
		b.later(k.now, time.Minute, time.Hour)
		s.undone[id], s.can[id] = b, ability{r.Err, b.next}
	default: // wait before the next try, and record the failure
		d.Result, d.Error = decision.Failed, r.Err.Error()
		s.can[id] = ability{r.Err, k.now.Add(time.Minute)}
	}
	k.holds.later(id, k.now)
}

// mendSwaps brings back what a swap left in the middle, whatever the plan says of room: such a container may stand
// still with its memory on the card. The swapper sees by itself how much room it needs.
func (k *Core) mendSwaps() {
	s := k.memory.swaps
	if s == nil || !k.leadership.leads {
		return
	}
	maps.DeleteFunc(s.mended, func(id string, _ backoff) bool { _, out := s.out[id]; return !out })
	for _, id := range slices.Sorted(maps.Keys(s.out)) {
		b := s.mended[id]
		if s.out[id].Stage == enforce.Suspended || s.busy[id] || k.now.Before(b.next) {
			continue
		}
		b.later(k.now, time.Second, 30*time.Second)
		s.mended[id] = b
		k.begin(plan.Action{Kind: plan.SwapIn, ContainerID: id, Container: s.out[id].Container, Cause: plan.OfMemory,
			Reason: "its swap was left in the middle"})
	}
}

// bringAllBack swaps everybody in when facts have been missing for as long as a hold stands without them: nobody
// can say for whom they are out. The swapper sees by itself whether there is room.
func (k *Core) bringAllBack() {
	s := k.memory.swaps
	if s == nil || !k.leadership.leads {
		return
	}
	if k.memory.blindSince.IsZero() {
		k.memory.blindSince = k.now
	}
	if k.now.Sub(k.memory.blindSince) < k.o.HoldLease {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(s.out)) {
		if !s.busy[id] {
			k.begin(plan.Action{Kind: plan.SwapIn, ContainerID: id, Container: s.out[id].Container, Cause: plan.OfMemory,
				Reason: "nobody can say for whom it is out: " + k.unusable()})
		}
	}
}

// inspectSwaps asks the engine about swapped containers that the snapshot lacks, as inspectHolds does: an exporter
// that has only just begun may not know them yet. One that has ended is swapped in, which takes it off the record.
func (k *Core) inspectSwaps() {
	const every = 500 * time.Millisecond
	s := k.memory.swaps
	if s == nil || !k.leadership.leads {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(s.out)) {
		a := plan.Action{Kind: Inspect, ContainerID: id, Container: s.out[id].Container}
		_, there := k.facts.snap.FindContainer(id)
		switch absent := s.absent[id]; {
		case there:
			delete(s.absent, id)
			continue
		case s.busy[id]:
			continue
		case absent.ended:
			a.Kind, a.Cause, a.Reason = plan.SwapIn, plan.OfMemory, "it has ended"
		case k.now.Sub(absent.asked) < every:
			continue
		default:
			s.absent[id] = absence{asked: k.now}
		}
		k.begin(a)
	}
}

// outForLong is how the reason of an exemption by endLongSwaps begins.
const outForLong = "it was swapped out for "

// endLongSwaps swaps containers in that were out for as long as is allowed. An exemption of one without a task would
// end at once, and be written to disk at each step; a plan brings it back all the same.
func (k *Core) endLongSwaps() {
	if k.memory.swaps == nil || k.facts.snap == nil {
		return
	}
	for id, r := range k.memory.swaps.out {
		if _, exempt := k.leases.Exemption(id); exempt || k.now.Sub(r.Since) < k.config.MaxHold {
			continue
		}
		if k.unfinished(id) == 0 && !k.wished(lease.Pause, id) {
			continue
		}
		k.exempt(id, nil,
			fmt.Sprintf("%s%v, as long as is allowed (--max-hold)", outForLong, k.now.Sub(r.Since).Round(time.Second)))
	}
}
