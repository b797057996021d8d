package ladder

import (
	"cmp"
	"slices"
	"time"
)

// tasting is what was seen of turns since the appetites were computed: each process's GPU time, how long each
// was on, and alone: with no other process that takes turns.
type tasting struct {
	began           time.Time
	seen, lost      time.Duration // the time that was looked at, and what switches took of it if that is known
	used, on, alone map[string]time.Duration
}

func (t tasting) clone() tasting {
	t.used, t.on, t.alone = copied(t.used), copied(t.on), copied(t.alone)
	return t
}

// add adds the time between from and to, in which the processes that take turns were on as the stints say.
func (t *tasting) add(past []stint, from, to time.Time, moving []member, used map[string]time.Duration) {
	if t.began.IsZero() {
		t.began = from
	}
	t.seen += to.Sub(from)
	for id, d := range used {
		t.used[id] += d
	}
	for _, m := range moving {
		on, alone := during(past, m.ID, from, to)
		t.on[m.ID] += on
		t.alone[m.ID] += alone
	}
}

// How long a measurement takes. Context switches are read once a second; the device's utilisation is at least a
// second old, and a turn much shorter.
const (
	tasteExact   = 2 * time.Second
	tasteSampled = 4 * time.Second
)

// leastTaste is how long a process must have been on for its appetite to be told.
const leastTaste = 20 * time.Millisecond

// stale is how long after turns began the utilisation still shows the time before, where context switches are not read.
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

// spent is the part of a turn that switches may take where they are not read. Idle time beyond it counts as gaps.
const spent = 0.25

const (
	// grown is how many times its appetite a process must use beside others for all appetites to be out
	// of date: it uses what it wants at most.
	grown = 2
	// satedMost is for how long several are on, with little unused, before one is alone again: perhaps it
	// fills its turns now. Each time that it does not, it takes twice as long, satedLast at most.
	satedMost = 18 * time.Second
	satedLast = 3 * time.Minute
)

// taste computes, from time to time, how much of its turns each process used. Where context switches are read,
// that is the part of the readings in which it was on; else what it got by the end of each turn.
func (p *planner) taste(moving []member) {
	t, s, lasts := &p.state.turn, p.in.Switches, tasteSampled
	if p.exact(moving) {
		lasts = tasteExact
	}
	if used, fresh := p.read(); fresh && p.exact(moving) && !t.since.IsZero() && !s.From.Before(t.since.Add(settled)) {
		t.tasting.add(t.past, s.From, s.to(), moving, used)
		t.tasting.lost += time.Duration(s.Rate * SwitchCost.Seconds() * float64(s.For))
		p.earn(moving, used)
	}
	if took := p.in.Now.Sub(t.tasting.began); !t.tasting.began.IsZero() && took >= lasts {
		p.tasted(moving, took)
		t.tasting = tasting{}.clone()
	}
}

// read returns what each process used of the last reading of context switches, if that is new and whole.
func (p *planner) read() (used map[string]time.Duration, fresh bool) {
	s, t := p.in.Switches, &p.state.turn
	if s.For == 0 || s.From.Equal(t.read) {
		return nil, false
	}
	t.read, used = s.From, map[string]time.Duration{}
	for _, o := range p.in.Tenants {
		if !o.Exact && o.Wants != No {
			return nil, false
		}
		used[o.ID] = time.Duration(o.Used * float64(s.For))
	}
	return used, true
}

// exact reports whether the use of members is told by readings of context switches.
func (p *planner) exact(members []member) bool {
	return p.in.Switches.For > 0 && !slices.ContainsFunc(members, func(m member) bool { return !m.Exact })
}

// tasted computes the appetites.
func (p *planner) tasted(moving []member, took time.Duration) {
	t, w := &p.state.turn, p.state.turn.tasting
	most := spent
	if p.exact(moving) {
		most = gaps
	}
	left := float64(w.seen-sum(w.used)-w.lost) > most*float64(w.seen)
	requests := float64(w.lost) / float64(w.seen) // the part of the time that requests took, and switches
	for _, m := range p.tops {
		requests += float64(w.used[m.ID]) / float64(w.seen)
	}
	several, outdated := false, false
	for _, m := range moving {
		on, was := w.on[m.ID], p.appetite(m.ID)
		if on < leastTaste {
			continue
		}
		is := min(max(float64(w.used[m.ID])/max(float64(on)*(1-requests), 1), 0.05), 1)
		switch {
		case w.alone[m.ID] < on*4/5: // others may have filled its gaps: first see what it does alone
			several, outdated = true, outdated || is > grown*was+0.05
			if left && is <= nothing { // while time was left over: nobody took it from it
				t.appetite[m.ID] = is
			} else if left {
				t.appetite[m.ID] = min(1.1*was, 1)
			}
		case left:
			t.appetite[m.ID] = is
		case w.alone[m.ID] == on:
			t.appetite[m.ID] = 1
		}
	}
	if t.sated += took; left || !several {
		t.sated = 0
	}
	gappy := func(m member) bool { return p.appetite(m.ID) < 1-gaps }
	switch trust := max(t.trust, satedMost); {
	case outdated: // they may have loaded their data then
		clear(t.appetite)
		t.sated, t.trust = 0, 0
	case t.sated >= trust:
		clear(t.appetite)
		t.sated, t.trust = 0, min(2*trust, satedLast)
	case !several && !slices.ContainsFunc(moving, gappy):
		t.trust = 0
	}
}
