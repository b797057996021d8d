package ladder

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// window is how long a process must lack its part from gaps before it is given turns.
const window = time.Second

// demotion is how long a server that took the card loses its place; then it gets another chance.
const demotion = 10 * time.Second

const (
	// slowAfter is after which part of its deadline a request is slow, a quarter: it computes for long, or has
	// many kernels, each of which waited for the others' slices.
	slowAfter = 4
	// slowFor is how long a slow request counts.
	slowFor = time.Minute
	// waiting is the part of its time that a server computes or waits for the others, for these to take turns.
	waiting = 0.35
)

// chance is how long the server then keeps its place whatever it does: its use shows late.
const chance = 2 * window

// load is what each process got of the GPU.
type load struct {
	at  time.Time                // start of the present window
	got map[string]time.Duration // GPU time of each at that start
	use map[string]float64       // part of the GPU in the window before, 0–1
	// full: requests leave the others less than their assured parts.
	full bool
	// demoted are the servers that have lost their place, and since when.
	demoted map[string]time.Time
	// gave is when each server last gave the GPU away before its slice was over.
	gave map[string]time.Time
	// steady are the servers that compute without a break. gappy are those that turned out not to, by
	// the driver's samples, and until when steadiness is not tried again.
	steady map[string]steadiness
	gappy  map[string]time.Time
	// since is when one process of the queue came to be on beside servers, with a slice that leaves it
	// no more than gaps; zero: none is.
	since time.Time
	// sizes are the servers' slices, sized is since when they are as they are, and older are those before.
	sizes, older map[string]time.Duration
	sized        time.Time
	// lent is the first in the queue while the second has a long slice beside it. doubt is the reading
	// (planner.second) by which it did not fill the GPU; zero: it does. waits are those that
	// had to wait for that slice: they get no such second again.
	lent  string
	doubt time.Time
	waits map[string]bool
	// slow are the servers with requests that lasted for a good part of their deadline, and when one did
	// last. crowding is since when each has waited most of the time, window after window; crowded are those that
	// did so for longer than one, and when they did last: use is told late, and roughly.
	slow, crowding, crowded map[string]time.Time
	// weights multiply the parts of processes with a share, so that they get their shares.
	weights map[string]float64
}

// steadiness is what is known of a server that computes without a break.
type steadiness struct {
	since time.Time
	// exact: context switches told it.
	exact bool
	// use is the part of the GPU that it used once it was alone; 0: not known yet.
	use float64
}

func (l load) clone() load {
	l.slow, l.crowding, l.crowded = copied(l.slow), copied(l.crowding), copied(l.crowded)
	l.waits, l.weights = copied(l.waits), copied(l.weights)
	l.demoted, l.gave, l.steady, l.gappy = copied(l.demoted), copied(l.gave), copied(l.steady), copied(l.gappy)
	return l
}

func (l load) forget(gone func(id string) bool) {
	forget(l.slow, gone)
	forget(l.crowding, gone)
	forget(l.crowded, gone)
	forget(l.waits, gone)
	forget(l.weights, gone)
	forget(l.demoted, gone)
	forget(l.gave, gone)
	forget(l.steady, gone)
	forget(l.gappy, gone)
}

// measure closes the window when it is over, and reports whether it did.
func (p *planner) measure() bool {
	l, now := &p.state.load, p.in.Now
	passed := now.Sub(l.at)
	if !l.at.IsZero() && passed < window {
		return false
	}
	got, use := map[string]time.Duration{}, map[string]float64{}
	for _, t := range p.in.Tenants {
		if !t.Measured {
			continue
		}
		got[t.ID] = t.Got
		if before, ok := l.got[t.ID]; ok {
			use[t.ID] = (t.Got - before).Seconds() / passed.Seconds()
		}
	}
	l.at, l.got, l.use = now, got, use
	return true
}

// late reports whether a server has lost its place: its requests are late by more than the policy
// allows, and it takes most of the card. A long busy interval alone does not prove that: requests
// in close succession are one interval, however short each is.
func (p *planner) late(t Tenant) bool {
	l := &p.state.load
	if !t.HasTask || p.place(t.Job) <= policy.OnTime {
		delete(l.demoted, t.ID)
		return false
	}
	since, lost := l.demoted[t.ID]
	back := since.Add(demotion)
	again := back.Add(chance)
	if lost && !p.in.Now.Before(again) {
		delete(l.demoted, t.ID)
		lost = false
	}
	switch {
	case p.gives(t):
		delete(l.demoted, t.ID)
		return false
	case lost && p.in.Now.Before(back):
		p.wake(back)
		return true
	case lost:
		p.wake(again)
		return false
	}
	if l.use[t.ID] <= 0.5 || !p.rivals(t) {
		return false
	}
	l.demoted[t.ID] = p.in.Now
	p.wake(p.in.Now.Add(demotion))
	return true
}

// slow reports whether requests of a server last, or lasted a short while ago, for a good part of their deadline.
// The budget is one wait: who gives the GPU away after each of many kernels waits as many times. So it may be,
// too, if requests come in close succession: they are one interval.
func (p *planner) slow() bool {
	l, now, found := &p.state.load, p.in.Now, false
	for _, m := range p.tops {
		if at := m.Job.Start.Time.Add(m.Deadline / slowAfter); m.HasTask && now.Before(at) {
			p.wake(at)
		} else if m.HasTask {
			l.slow[m.ID] = now
		}
		found = found || now.Sub(l.slow[m.ID]) < slowFor
	}
	return found
}

// crowd notes, at the end of a window, which servers computed or waited for the others most of it. So often as
// one came onto the GPU it had waited for all that may be there.
func (p *planner) crowd() {
	l, each := &p.state.load, byDefault(len(p.queue))
	if len(p.state.turn.on) > 0 {
		each = short + SwitchCost // for the one that is on
	}
	for _, m := range p.tops {
		use, measured := l.use[m.ID]
		since, before := l.crowding[m.ID]
		switch {
		case !measured || !m.Exact || m.Stay == 0 || use*(each+m.Stay).Seconds() < waiting*m.Stay.Seconds():
			delete(l.crowding, m.ID)
		case !before:
			l.crowding[m.ID] = p.in.Now
		case p.in.Now.Sub(since) >= window:
			l.crowded[m.ID] = p.in.Now
		}
	}
}

// crowded reports whether a server did so a short while ago.
func (p *planner) crowded() bool {
	return slices.ContainsFunc(p.tops, func(m member) bool {
		return p.in.Now.Sub(p.state.load.crowded[m.ID]) < slowFor
	})
}

// rivals reports whether other work with a deadline has a claim on the time that a server without a break
// takes: a task whose deadline can be met, or a request of another server that is late. Class batch has its floor, and no
// further claim beside a server.
func (p *planner) rivals(t Tenant) bool {
	return slices.ContainsFunc(p.in.Tenants, func(o Tenant) bool {
		if o.ID == t.ID || !o.Labelled || o.Never || !o.HasTask || o.Wants == No {
			return false
		}
		if o.Server {
			return p.in.Now.Sub(o.Job.Start.Time) > o.Deadline && !p.gives(o)
		}
		return p.place(o.Job) < policy.Last
	})
}

// gives reports whether a server gives the GPU away long before its slice is over, after each of many short kernels
// (a decode loop), or did a short while ago: its context stays as long as nobody else comes. Other servers
// wait for one of these kernels at most, so it need not lose its place for them.
func (p *planner) gives(t Tenant) bool {
	l := &p.state.load
	// One that lost its place may have had a slice as short as that.
	if _, lost := l.demoted[t.ID]; !lost && t.Exact && t.Stay > 0 && t.Stay < DefaultSlice*9/10 {
		l.gave[t.ID] = p.in.Now
	}
	at, once := l.gave[t.ID]
	return once && p.in.Now.Sub(at) < slowFor
}

// halves reports whether a server is late by more than the policy allows and keeps its place, so that the others must
// be sure of half: its use is not measured, or it gives the GPU away beside a task whose deadline can be met.
func (p *planner) halves(m member) bool {
	claims := func(o member) bool { return o.place < policy.Last && o.Wants != No }
	return m.HasTask && p.place(m.Job) > policy.OnTime && (!m.Measured || p.gives(m.Tenant) && slices.ContainsFunc(p.queue, claims))
}

// full reports whether, for a window, requests leave the others in the queue less than their
// assured parts. closed: a window has just ended. If that is not measured, a server that has been
// busy for a window counts as taking too much.
func (p *planner) full(closed bool) bool {
	l := &p.state.load
	for _, m := range p.tops {
		p.half = p.half || p.halves(m)
	}
	sure := p.sure()
	if len(p.tops) == 0 || len(p.queue) == 0 || sure == 0 {
		l.full = false
		return false
	}
	tops, known := p.used(p.tops)
	queue, also := p.used(p.queue)
	switch {
	case !known || !also:
		l.full = p.busy()
	case p.half:
		l.full = true
	case p.yields():
		l.full = false
	case closed && !l.full && !p.in.Switches.From.IsZero() && p.in.Switches.From.Before(l.sized): // that was before
	case closed && !l.full:
		l.full = queue < 0.9*sure && tops > 0.5*(1-sure)
	case closed:
		l.full = tops >= 0.9*(1-sure) // else the requests leave that without us
	}
	return l.full
}

// used adds up what the members used in the window before, and reports whether that was measured
// for all.
func (p *planner) used(members []member) (sum float64, known bool) {
	known = true
	for _, m := range members {
		sum += p.state.load.use[m.ID]
		known = known && m.Measured
	}
	return sum, known
}

// busy reports whether a server has been busy for a window, with one request or with several in
// succession.
func (p *planner) busy() bool {
	full := false
	for _, m := range p.tops {
		if !m.HasTask || m.Wants == No {
			continue
		}
		if at := m.Job.Start.Time.Add(window); p.in.Now.Before(at) {
			p.wake(at)
		} else {
			full = true
		}
	}
	return full
}
