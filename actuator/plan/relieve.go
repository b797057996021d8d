package plan

import (
	"fmt"
	"slices"
)

// Memory pressure begins and ends at different shares, so that a container is
// not released by the effect of its own pause.
const (
	PressureBegins = 0.95
	PressureEnds   = 0.90
)

// relieve stops, on each GPU under memory pressure, the last admitted and least
// urgent container: pausing frees no memory, but keeps it from taking more. One
// at a time, with a fresh sample in between, and never the last that runs.
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

// keepRelieved holds on to what was stopped for this reason until the pressure
// is over; but the first in order goes on when nobody else is left to run.
func (p *planner) keepRelieved(g GPU) {
	if g.Memory < PressureEnds {
		return
	}
	here := func(c entry) bool {
		return !c.NoMemory && p.waits[c.ID].Reason == "" && slices.Contains(c.on, g.UUID)
	}
	// Somebody who is not held for memory runs, or comes in turn.
	others := slices.ContainsFunc(p.queue, func(c entry) bool { return c.Cause != Relieve && here(c) })
	for _, c := range p.queue {
		if c.Cause != Relieve || !here(c) {
			continue
		}
		if !others {
			others = true
			continue
		}
		p.waits[c.ID] = Wait{Relieve, fmt.Sprintf("memory use of %s is %.1f %%", g.UUID, 100*g.Memory)}
	}
}

// victim is the last in order of those that run on the GPU and were not stopped
// above; never the first. Whoever has been swapped out before and is back stays: the
// card is as full as before, and it would go out and in for ever.
func (p *planner) victim(g GPU) (last entry, ok bool) {
	first := true
	for _, c := range p.queue {
		if c.NoMemory || c.Standing != Runs || p.waits[c.ID].Reason != "" || !slices.Contains(c.on, g.UUID) {
			continue
		}
		if !first && c.Memory.Since.IsZero() {
			last, ok = c, true
		}
		first = false
	}
	return last, ok
}
