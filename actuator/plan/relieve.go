package plan

import (
	"fmt"
	"slices"
)

// Memory pressure ends at a lower share than it begins, so that a container's own pause does not
// release it.
const (
	PressureBegins = 0.95
	PressureEnds   = 0.90
)

// relieve stops, on each GPU under memory pressure, the least urgent container that was admitted
// last, as P3 does. A pause frees no memory, but keeps it from taking more. It stops one at a time,
// with a fresh sample in between, and never the last that computes.
func (p *planner) relieve() {
	for _, g := range p.in.GPUs {
		if !g.Relieve {
			continue
		}
		p.keepRelieved(g)
		if g.Memory < PressureBegins || !g.Fresh {
			continue
		}
		if c, ok := p.victim(g); ok {
			p.waits[c.ID] = Wait{Relieve, fmt.Sprintf("memory use of %s is %.1f %%, and it is last in order", g.UUID, 100*g.Memory)}
		}
	}
}

// keepRelieved keeps containers stopped that were stopped for memory pressure, until it is over.
// But the first in order continues when no other is left to run.
func (p *planner) keepRelieved(g GPU) {
	if g.Memory < PressureEnds {
		return
	}
	// Another container that is not held for memory runs, or takes turns.
	others := slices.ContainsFunc(p.queue, func(c entry) bool { return c.Cause != Relieve && p.computes(c, g) })
	for _, c := range p.queue {
		if c.Cause != Relieve || !p.computes(c, g) {
			continue
		}
		if !others {
			others = true
			continue
		}
		p.waits[c.ID] = Wait{Relieve, fmt.Sprintf("memory use of %s is %.1f %%", g.UUID, 100*g.Memory)}
	}
}

// computes reports whether the container can use the GPU if it is not stopped. One that waits for
// memory cannot: where all others were stopped, nobody would ever free what it waits for.
func (p *planner) computes(c entry, g GPU) bool {
	return !c.NoMemory && c.Memory.Starved == "" && p.waits[c.ID].Reason == "" && slices.Contains(c.on, g.UUID)
}

// victim is the last in order of those that run on the GPU and were not stopped above; never the
// first. A container that was swapped out and is back stays: the card is as full as before, and the
// swaps would never end.
func (p *planner) victim(g GPU) (last entry, ok bool) {
	first := true
	for _, c := range p.queue {
		if c.Standing != Runs || !p.computes(c, g) {
			continue
		}
		if !first && c.Memory.Since.IsZero() {
			last, ok = c, true
		}
		first = false
	}
	return last, ok
}
