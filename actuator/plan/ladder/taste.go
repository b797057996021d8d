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

// owe notes what each process is owed at the end of a turn.
func (p *planner) owe(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.began)
	if len(t.on) == 0 || took <= 0 {
		return
	}
	all, whole := p.gained(t.got)
	if exact(moving) {
		all, whole = p.earned(moving, took), true
	}
	useful := sum(all)
	if !whole {
		useful = took
	}
	t.useful = min(max(float64(useful)/float64(took), 0.5), 1)
	for _, m := range moving {
		if got, ok := all[m.ID]; ok {
			most := time.Duration(3 * m.part * float64(p.maxOff()))
			t.owed[m.ID] = min(max(t.owed[m.ID]+time.Duration(m.part*float64(useful))-got, 0), most)
		}
	}
	if whole && !exact(moving) && p.in.Now.Sub(t.since) >= stale {
		t.tasting.add(t.past, t.began, p.in.Now, moving, all)
	}
}

// earnings are what a process used of the time that it was on, in the last readings of context switches. Less
// than a tenth of a second may have been read, so what it got since is not known from its use alone.
type earnings struct{ used, on time.Duration }

// earningsOf is the time that earnings are of, at most.
const earningsOf = 500 * time.Millisecond

func (e earnings) add(used, on time.Duration) earnings {
	if e.used, e.on = e.used+used, e.on+on; e.on > earningsOf {
		e.used = time.Duration(float64(e.used) * float64(earningsOf) / float64(e.on))
		e.on = earningsOf
	}
	return e
}

// earned is what processes got in a turn, as far as is known: requests, and those that were on.
func (p *planner) earned(moving []member, took time.Duration) map[string]time.Duration {
	t, all, requests := &p.state.turn, map[string]time.Duration{}, 0.0
	for _, m := range p.tops {
		if e := t.earns[m.ID]; e.on > 0 {
			requests += float64(e.used) / float64(e.on)
			all[m.ID] = time.Duration(float64(e.used) / float64(e.on) * float64(took))
		}
	}
	for _, m := range moving {
		e := t.earns[m.ID]
		switch {
		case !slices.Contains(t.on, m.ID):
			all[m.ID] = 0
		case e.on > 0:
			all[m.ID] = time.Duration(float64(e.used) / float64(e.on) * float64(took))
		default:
			all[m.ID] = time.Duration(max(0, 1-requests) * float64(took))
		}
	}
	return all
}

// taste computes, from time to time, how much of its turns each process used. Where context switches are read,
// that is the part of a reading in which it was on; else what it got by the end of each turn.
func (p *planner) taste(moving []member) {
	t := &p.state.turn
	if used, fresh := p.read(); fresh && exact(moving) && !p.in.Switches.From.Before(t.since.Add(settled)) {
		t.tasting.add(t.past, p.in.Switches.From, p.in.Switches.to(), moving, used)
		for _, m := range slices.Concat(moving, p.tops) {
			on, _ := during(t.past, m.ID, p.in.Switches.From, p.in.Switches.to())
			if has(p.tops, m.ID) {
				on = p.in.Switches.For
			}
			if on > 0 {
				t.earns[m.ID] = t.earns[m.ID].add(used[m.ID], on)
			}
		}
		t.tasting.lost += time.Duration(p.in.Switches.Rate * SwitchCost.Seconds() * float64(p.in.Switches.For))
	}
	length := tasteSampled
	if exact(moving) {
		length = tasteExact
	}
	if took := p.in.Now.Sub(t.tasting.began); !t.tasting.began.IsZero() && took >= length {
		p.tasted(moving, took)
		t.tasting = tasting{}.clone()
	}
}

// read returns what each process used of the last reading of context switches, if that is new and whole.
func (p *planner) read() (used map[string]time.Duration, fresh bool) {
	s, t := p.in.Switches, &p.state.turn
	if s.From.IsZero() || s.From.Equal(t.read) {
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

func exact(members []member) bool {
	return !slices.ContainsFunc(members, func(m member) bool { return !m.Exact })
}

func sum(all map[string]time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

// gained is what each process got since then, and whether that covers all that compute.
func (p *planner) gained(since map[string]time.Duration) (all map[string]time.Duration, whole bool) {
	all, whole = map[string]time.Duration{}, true
	for _, o := range p.in.Tenants {
		before, ok := since[o.ID]
		if whole = whole && (ok && o.Measured || o.Wants == No); ok {
			all[o.ID] = o.Got - before
		}
	}
	return all, whole
}

// tasted computes the appetites.
func (p *planner) tasted(moving []member, took time.Duration) {
	t, w := &p.state.turn, p.state.turn.tasting
	most := spent
	if exact(moving) {
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
			if left {
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
	fills := func(m member) bool { return p.appetite(m.ID) >= 1-gaps }
	switch {
	case outdated, !several && !slices.ContainsFunc(moving, func(m member) bool { return !fills(m) }):
		t.trust = 0
	}
	if t.trust = max(t.trust, satedMost); outdated || t.sated >= t.trust { // they may have loaded their data then
		clear(t.appetite)
		t.sated, t.trust = 0, min(2*t.trust, satedLast)
	}
}
