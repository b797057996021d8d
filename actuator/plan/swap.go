package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// worthwhile is how many times longer than the swap itself the wait must be
	// that it saves, where no deadline is at stake.
	worthwhile = 4
	// atHome is how many times longer than a swap takes one stays that came back.
	atHome = 10
)

// evict swaps out the containers that must go whatever that costs.
func (p *planner) evict() {
	for _, c := range p.in.Containers {
		if c.Memory.Evict != "" && c.Memory.Can && !c.Memory.Out && !c.Memory.Busy && c.Controllable() {
			p.swapOut(c, c.Memory.Evict)
		}
	}
	for _, c := range p.in.Containers { // whoever is stopped to relieve the memory frees it, too, where it can
		if w := p.waits[c.ID]; w.Cause == Relieve && c.Memory.Can && !c.Memory.Out && !c.Memory.Busy && c.Standing != Somebody {
			p.swapOut(c, w.Reason)
		}
	}
}

func (p *planner) swapOut(c Container, reason string) {
	p.swap[c.ID] = reason
	p.waits[c.ID] = Wait{OfMemory, reason}
}

// swapping reports whether a swap is under way: its outcome must be seen before the next one.
func (p *planner) swapping() bool {
	return len(p.swap) > 0 || len(p.restore) > 0 ||
		slices.ContainsFunc(p.in.Containers, func(c Container) bool { return c.Memory.Busy })
}

// makeRoom swaps out the last containers in order, if e can then begin or come back, and that gains
// more than it costs.
func (p *planner) makeRoom(e entry, left map[string]int64) {
	need := p.expected(e.Container)
	if len(e.Tasks) == 0 && !e.Memory.Overdue || len(need) == 0 {
		return
	}
	all := p.residents(need)
	have := maps.Clone(left)
	var victims []entry
	for _, v := range slices.Backward(all) {
		if fitsIn(have, need) {
			break
		}
		if p.movable(e, v) {
			victims = append(victims, v)
			give(have, p.expected(v.Container))
		}
	}
	if len(victims) == 0 || !fitsIn(have, need) {
		return
	}
	// A small container that was picked first may be unnecessary beside a large one.
	slices.Reverse(victims)
	victims = slices.DeleteFunc(victims, func(v entry) bool {
		without := maps.Clone(have)
		take(without, p.expected(v.Container))
		if !fitsIn(without, need) {
			return false
		}
		have = without
		return true
	})
	var cost time.Duration
	for _, v := range victims {
		cost += v.Memory.Cost
	}
	if e.Memory.Out {
		cost += e.Memory.Cost / 2
	}
	wait, known := p.untilFree(all, left, need)
	if why, ok := p.worthSwapping(e, victims, cost, wait, known); ok {
		for _, v := range victims {
			p.swapOut(v.Container, fmt.Sprintf("its memory is for %s: %s", e.Name, why))
		}
	}
}

// residents are the containers that hold memory of these GPUs, in order.
func (p *planner) residents(need map[string]uint64) []entry {
	var out []entry
	for _, c := range p.in.Containers {
		here := false
		for g := range need {
			here = here || c.Memory.Held[g] > 0
		}
		if e, ok := p.memoryEntry(c); ok && here && c.Managed && !c.Memory.Out {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, p.before)
	return out
}

// movable reports whether v may be swapped out for e.
func (p *planner) movable(e, v entry) bool {
	_, stopped := p.waits[v.ID]
	stays := v.Memory.Cost
	if !e.first.Urgent() {
		stays = max(atHome*v.Memory.Cost, MemoryPatience)
	}
	home := v.Memory.Since
	if home.IsZero() && len(v.Tasks) > 0 {
		home = v.first.Start.Time
	}
	may := v.Controllable() || e.Memory.Overdue && v.Memory.Returned && v.Managed && !v.Never && v.Standing != Somebody
	return may && v.Memory.Can && !v.Memory.Busy && v.Memory.Starved == "" && !stopped &&
		p.before(e, v) < 0 && p.in.Now.Sub(home) >= stays
}

// worthSwapping compares what e gains with the cost of the swaps, out and in.
func (p *planner) worthSwapping(e entry, victims []entry, cost, wait time.Duration, known bool) (string, bool) {
	if known && wait <= cost {
		return "", false // its turn comes sooner
	}
	if e.Memory.Overdue { // who took its memory gives it back, or it would be out for ever
		return "it was swapped out for as long as is allowed", true
	}
	if e.first.Urgent() {
		slack := e.first.Deadline.Sub(p.in.Now)
		if e.first.Known {
			slack -= e.first.Remaining
		}
		late := known && wait <= slack
		if late || cost > slack { // it can wait, or is late in either case
			return "", false
		}
		for _, v := range victims {
			if p.loses(v, cost+e.first.Remaining, e.first.Known) {
				return "", false
			}
		}
		return fmt.Sprintf("it would miss its deadline in %.1f s, and swapping takes %.1f s", e.first.Deadline.Sub(p.in.Now).Seconds(), cost.Seconds()), true
	}
	waited := time.Duration(0)
	if !e.Memory.Waits.IsZero() {
		waited = p.in.Now.Sub(e.Memory.Waits)
	}
	enough := max(worthwhile*cost, MemoryPatience)
	if waited < enough || (known && wait < worthwhile*cost) || slices.ContainsFunc(victims, func(v entry) bool { return v.first.Urgent() }) {
		return "", false
	}
	return fmt.Sprintf("it has waited for %.0f s, and swapping takes %.1f s", waited.Seconds(), cost.Seconds()), true
}

// loses reports whether v would miss a deadline that it would meet if it continued.
func (p *planner) loses(v entry, away time.Duration, known bool) bool {
	if !v.first.Urgent() || v.first.Deadline.Before(p.in.Now) {
		return false
	}
	slack := v.first.Deadline.Sub(p.in.Now)
	if v.first.Known {
		slack -= v.first.Remaining
	}
	return slack >= 0 && (!known || slack < away)
}

// untilFree is how long it takes until enough residents have ended, one after another in order.
// known is false if that cannot be told.
func (p *planner) untilFree(residents []entry, left map[string]int64, need map[string]uint64) (wait time.Duration, known bool) {
	have := maps.Clone(left)
	for _, r := range residents {
		if fitsIn(have, need) {
			return wait, true
		}
		if !r.first.Known {
			return 0, false
		}
		wait += r.first.Remaining
		give(have, p.expected(r.Container))
	}
	return wait, fitsIn(have, need)
}
