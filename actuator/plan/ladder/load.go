package ladder

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// window is after how long somebody counts as not having got its part from gaps.
const window = time.Second

// demotion is for how long a server that took the card loses its place: then it may show
// whether it still does.
const demotion = 10 * time.Second

// chance is for how long it then keeps its place whatever it does: what it uses shows later.
const chance = 2 * window

// load is what each process had of the GPU.
type load struct {
	at  time.Time                // begin of the present window
	got map[string]time.Duration // then
	use map[string]float64       // part of the GPU in the window before, 0–1
	// full: requests leave the others less than these are sure of.
	full bool
	// demoted are the servers that have lost their place, since when.
	demoted map[string]time.Time
	// steady are the servers that compute without a break, since when; gappy are those that
	// do not after all, until when that is not tried again.
	steady, gappy map[string]time.Time
	// lent is the first in the queue for as long as the second has a long slice beside it. waits
	// are those that had to wait for that, and get no such second any more.
	lent  string
	waits map[string]bool
	// weights are what the parts of those with a share are multiplied by, so that they get them.
	weights map[string]float64
}

func (l load) clone() load {
	l.waits, l.weights = copied(l.waits), copied(l.weights)
	l.demoted, l.steady, l.gappy = copied(l.demoted), copied(l.steady), copied(l.gappy)
	return l
}

func (l load) forget(gone func(id string) bool) {
	forget(l.waits, gone)
	forget(l.weights, gone)
	forget(l.demoted, gone)
	forget(l.steady, gone)
	forget(l.gappy, gone)
}

// measure closes the window when it is over. It reports whether it did.
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

// late reports whether a server has lost its place: its requests are late by more than
// the policy allows, and it takes most of the card. A long busy interval alone does not
// say so: requests that follow each other closely are one interval, however short each is.
func (p *planner) late(t Tenant) bool {
	l := &p.state.load
	if !t.HasTask || p.place(t.Job) <= policy.OnTime {
		delete(l.demoted, t.ID)
		return false
	}
	if since, lost := l.demoted[t.ID]; lost {
		back := since.Add(demotion)
		again := back.Add(chance)
		switch {
		case p.in.Now.Before(back):
			p.wake(back)
			return true
		case p.in.Now.Before(again):
			p.wake(again)
			return false
		}
		delete(l.demoted, t.ID)
	}
	if l.use[t.ID] <= 0.5 || !p.rivals(t) {
		return false
	}
	l.demoted[t.ID] = p.in.Now
	p.wake(p.in.Now.Add(demotion))
	return true
}

// rivals reports whether somebody else on the GPU has a claim that a server without a break
// would take: work with a deadline. Class batch has its floor, and no more beside a server.
func (p *planner) rivals(t Tenant) bool {
	return slices.ContainsFunc(p.in.Tenants, func(o Tenant) bool {
		return o.ID != t.ID && o.Labelled && !o.Never && (o.Server || o.HasTask && p.place(o.Job) < policy.Last)
	})
}

// full reports whether requests leave those in the queue less than these are sure of, for a
// window; closed: a window has just ended. Where that is not measured, a server that has
// been busy for that long counts as one that does.
func (p *planner) full(closed bool) bool {
	l := &p.state.load
	for _, m := range p.tops {
		p.half = p.half || m.HasTask && !m.Measured && p.place(m.Job) > policy.OnTime
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
	case closed && !l.full:
		l.full = queue < 0.9*sure && tops > 0.5*(1-sure)
	case closed:
		l.full = tops >= 0.9*(1-sure) // else they would leave that by themselves
	}
	return l.full
}

// used adds up what the members used in the window before, and says whether that is
// measured of all of them.
func (p *planner) used(members []member) (sum float64, known bool) {
	known = true
	for _, m := range members {
		sum += p.state.load.use[m.ID]
		known = known && m.Measured
	}
	return sum, known
}

// busy reports whether a server has been busy with one request, or with requests that
// follow each other, for a window.
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
