package memory

import (
	"context"
	"math"

	"github.com/laxity/laxity/internal/cudaprobe"
)

// counters are what a slot had counted before its container came.
type counters struct{ passed, opened uint64 }

// calls are the allocations under way; of none where they cannot be read.
func (g *Guard) calls() []cudaprobe.Call {
	calls, err := g.kernel.Calls()
	g.note(err)
	return calls
}

// read reads the ledger. Whoever has read the calls under way before may add the
// two: what has returned in between shows in the ledger.
func (g *Guard) read(ctx context.Context) {
	usage, err := g.o.Ledger(ctx)
	if err != nil {
		if g.blind == nil {
			g.o.Logger.Error("nobody knows who holds how much GPU memory: allocations pass", "err", err)
		}
		g.blind = err
		return
	}
	g.blind, g.usage = nil, usage
}

// held is what a container holds on one of its GPUs: what the ledger says of its
// processes, and what the ledger does not show: calls under way, and managed
// memory. What pools have given out counts if it is more than the ledger shows:
// allocations that are recorded into a graph get their memory only later.
func (g *Guard) held(c *container, gpu int, calls []cudaprobe.Call) uint64 {
	var shown, given, managed, underWay uint64
	for pid, bytes := range g.usage[c.GPUs[gpu]] {
		if c.processes[pid] != nil {
			shown += bytes
		} else if id, ok, err := g.o.Container(pid); err == nil && ok && id == c.ID {
			shown += bytes
		}
	}
	if len(c.GPUs) == 1 { // else nobody knows on which one
		for pid := range c.processes {
			pool, err := g.kernel.PoolOf(pid)
			g.note(err)
			given += pool.Used
			managed += pool.Managed
		}
	}
	for _, call := range calls {
		if p := g.processes[call.PID]; p == nil || p.of != c || call.Held || call.Pooled {
			continue
		}
		if slot, ok := call.Slot(); !ok || slot == c.slots[gpu] {
			underWay += call.Bytes
		}
	}
	return sum(max(shown, given), managed, underWay)
}

// sum adds, and stops at the largest number.
func sum(all ...uint64) (total uint64) {
	for _, n := range all {
		if total+n < total {
			return math.MaxUint64
		}
		total += n
	}
	return total
}

// refresh gives a container's slots new budgets. calls must have been read before
// the ledger, and the slots' spent before the calls: so whatever was let through
// is counted at least once.
func (g *Guard) refresh(c *container, calls []cudaprobe.Call) {
	for i, slot := range c.slots {
		budget := cudaprobe.Budget{Limit: c.Limit}
		ceiling := min(g.o.Decider.Ceiling(c.ID, c.GPUs[i], c.Limit), c.most())
		held := g.held(c, i, calls)
		budget.Ceiling = c.spent[i]
		switch {
		case g.usage == nil || g.blind != nil: // all is asked about
			budget.Limit = 0
		case ceiling > held:
			budget.Ceiling = sum(budget.Ceiling, ceiling-held)
		}
		g.note(g.kernel.SetBudget(slot, budget))
	}
	over := g.usage != nil && g.over(c, calls)
	for pid, p := range c.processes {
		var shown uint64
		for _, gpu := range c.GPUs {
			shown += g.usage[gpu][pid]
		}
		p.most = max(p.most, shown)
		trimmed := p.most - shown
		if over {
			trimmed = math.MaxUint64 // its pools have more than they may: nothing more for nothing
		}
		g.note(g.kernel.Note(pid, shown > 0, trimmed))
	}
}

// most is what the container may hold on one GPU.
func (c *container) most() uint64 {
	if c.Limit == 0 {
		return math.MaxUint64
	}
	return c.Limit
}

// over reports whether a container holds so much more than its limit that its
// pools may not even give out what they should have.
func (g *Guard) over(c *container, calls []cudaprobe.Call) bool {
	for i := range c.GPUs {
		if g.held(c, i, calls) > sum(c.most(), g.o.Context) {
			return true
		}
	}
	return false
}

// look at what the slots have spent, before anything else is read; it reports
// whether that has changed.
func (g *Guard) count(c *container) (changed bool) {
	for i, slot := range c.slots {
		spent, _, _, err := g.kernel.Spent(slot)
		g.note(err)
		changed = changed || spent != c.spent[i]
		c.spent[i] = spent
	}
	return changed
}
