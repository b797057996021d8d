package ladder

import (
	"cmp"
	"time"
)

// tasting holds the start of the measurement, each process's GPU time at that start, and how long
// each has been on since. alone: with no other process that takes turns.
type tasting struct {
	began     time.Time
	got       map[string]time.Duration
	on, alone map[string]time.Duration
}

// tasteFor is how long a measurement takes: the device's utilisation is at least a second old, and
// a turn much shorter.
const tasteFor = 4 * time.Second

// stale is how long after turns began the utilisation still shows the time before.
const stale = 2 * time.Second

// appetite is 1 if unknown, and beside a server without a break: what a process does not use of its
// turn then are the server's kernels and the switches, and a second one would add to both. But one that
// uses next to nothing adds nothing.
func (p *planner) appetite(id string) float64 {
	a := cmp.Or(p.state.turn.appetite[id], 1)
	if p.unbroken && a > nothing {
		return 1
	}
	return a
}

// nothing is the appetite up to which a process takes nothing that matters: a notebook, a helper.
const nothing = 0.1

// spent is the part of a turn that switches may take. Idle time beyond it counts as gaps.
const spent = 0.25

const (
	// grown is how many times its appetite a process must use beside others for all appetites to be out
	// of date: it uses what it wants at most.
	grown = 2
	// satedMost is after how many measurements with several on, and little unused, one is alone again:
	// perhaps it fills its turns now.
	satedMost = 2
)

// taste notes what each process is owed at the end of a turn and, from time to time, how much of
// its turns each process used.
func (p *planner) taste(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.began)
	if len(t.on) == 0 || took <= 0 {
		return
	}
	all, whole := p.gained(t.got)
	useful := all
	if !whole {
		useful = took
	}
	t.useful = min(max(float64(useful)/float64(took), 0.5), 1)
	for _, m := range moving {
		if before, ok := t.got[m.ID]; ok {
			most := time.Duration(3 * m.part * float64(p.maxOff()))
			t.owed[m.ID] = min(max(t.owed[m.ID]+time.Duration(m.part*float64(useful))-m.Got+before, 0), most)
		}
	}
	if t.since.IsZero() {
		t.since = t.began
	}
	if p.in.Now.Sub(t.since) < stale {
		return
	}
	if t.tasting.began.IsZero() {
		t.tasting = tasting{began: t.began, got: t.got, on: map[string]time.Duration{}, alone: map[string]time.Duration{}}
	}
	for _, id := range t.on {
		if t.tasting.on[id] += took; len(t.on) == 1 {
			t.tasting.alone[id] += took
		}
	}
	if p.in.Now.Sub(t.tasting.began) >= tasteFor {
		if whole {
			p.tasted(moving)
		}
		t.tasting = tasting{}
	}
}

// gained is what all processes got since then, and whether that covers all that compute.
func (p *planner) gained(since map[string]time.Duration) (all time.Duration, whole bool) {
	whole = true
	for _, o := range p.in.Tenants {
		before, ok := since[o.ID]
		if whole = whole && (ok && o.Measured || o.Wants == No); ok {
			all += o.Got - before
		}
	}
	return all, whole
}

// tasted computes the appetites.
func (p *planner) tasted(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.tasting.began)
	all, _ := p.gained(t.tasting.got)
	left := float64(took-all) > spent*float64(took)
	requests := 0.0 // the part of the time that requests took
	for _, m := range p.tops {
		if before, ok := t.tasting.got[m.ID]; ok {
			requests += float64(m.Got-before) / float64(took)
		}
	}
	several, outdated := false, false
	for _, m := range moving {
		before, ok := t.tasting.got[m.ID]
		on, was := t.tasting.on[m.ID], p.appetite(m.ID)
		if !ok || on == 0 {
			continue
		}
		is := min(max(float64(m.Got-before)/max(float64(on)*(1-requests), 1), 0.05), 1)
		switch {
		case t.tasting.alone[m.ID] < on*4/5: // others may have filled its gaps: first see what it does alone
			several, outdated = true, outdated || is > grown*was+0.05
			t.appetite[m.ID] = min(1.1*was, 1)
		case left:
			t.appetite[m.ID] = is
		case t.tasting.alone[m.ID] == on:
			t.appetite[m.ID] = 1
		}
	}
	if t.sated++; left || !several {
		t.sated = 0
	}
	if outdated || t.sated > satedMost { // they may have loaded their data then
		clear(t.appetite)
		t.sated = 0
	}
}
