package ladder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// Make makes a plan for one GPU. It changes neither argument, and depends on nothing else.
func Make(in Input, before State) Plan {
	p := &planner{in: in, state: before.clone(), out: map[string]Standing{}}
	p.state.bucket.fill(in.Now, p.rate())
	p.state.turn.pass(in.Now)
	closed := p.measure()
	p.sort()
	p.promise()
	if closed {
		p.weigh()
		p.crowd()
	}
	p.servers(p.full(closed))
	p.state.turn.remember(in.Now)
	if len(p.tops)+len(p.queue) > 1 { // places change as deadlines pass
		p.wake(in.Now.Add(window))
	}
	for _, t := range p.idle {
		p.out[t.ID] = Standing{Slice: DefaultSlice, Reason: "it has no task on this GPU"}
	}
	for _, t := range p.asked {
		p.out[t.ID] = p.keepOff(t)
	}
	return Plan{Changes: p.changes(), Standings: p.out, Again: p.again, Report: p.report, State: p.state}
}

// keepOff is the standing of a process that is asked to be off. It is renewed in time, so that kernels
// that were launched before do not run on.
func (p *planner) keepOff(t Tenant) Standing {
	s := Standing{Slice: t.Stands.slice(), Off: true, Until: t.Stands.Until, Reason: t.Asked}
	if renew := s.Until.Add(-MaxOff / 2); !t.Stands.Off || !p.in.Now.Before(renew) {
		s.Until = p.in.Now.Add(MaxOff)
	}
	p.wake(s.Until.Add(-MaxOff / 2))
	return s
}

// turnout is who of the queue computes now, and on which terms.
type turnout struct {
	wanting []member        // those that compute, or may
	on      map[string]bool // of these, who is on the GPU
	visits  bool            // the queue is off but for visits, in which it has that slice
	slice   time.Duration
	turns   bool // one of the queue is on at a time, or a few
	// budget is how long a request may wait for all of them.
	budget time.Duration
}

// here is how many are on the GPU.
func (t turnout) here() (n int) {
	for _, m := range t.wanting {
		if t.on[m.ID] {
			n++
		}
	}
	return n
}

// turnout decides it: visits beside a server whose gaps are too short, turns where all of the queue
// would take a request, or a gap of a server without a break, too long, where a server waits for the
// queue most of the time, or where slices that requests can wait for make no order; else everybody.
// So it is beside greedy processes that are not ours to act on: what one of the queue leaves while it is
// off, those would take, and not those that come first.
func (p *planner) turnout() turnout {
	t := turnout{wanting: p.queue, on: map[string]bool{}, budget: p.budget()}
	if len(p.tops) > 0 { // a process known to be busy elsewhere takes no turn here
		t.wanting = slices.DeleteFunc(slices.Clone(p.queue), func(m member) bool { return m.Wants == No })
	}
	if len(t.wanting) > 0 && p.steady() {
		if t.slice, t.visits = p.visit(t.wanting, t.on); t.visits {
			return t
		}
	}
	each := byDefault(len(t.wanting))
	if len(p.tops) > 0 && len(t.wanting) > 1 && !p.in.Greedy {
		long := each > t.budget || p.unbroken || p.slow() && p.crowded()
		if p.byOrder = !long && p.tooEven(t.wanting, p.atATime(t)); long || p.byOrder {
			if t.on = p.takeTurns(t.wanting); len(p.state.turn.on) > 0 {
				t.turns = true
				return t
			}
		}
		if long { // but no process may be off: requests wait for a part of their deadline
			p.report = cmp.Or(p.report, p.whyNoTurns(t.wanting))
			t.budget = max(each, 5*t.budget)
		}
		t.budget = p.atATime(t)
		if len(t.on) > 0 {
			return t
		}
	}
	p.state.turn = turn{past: p.state.turn.past, appetite: p.state.turn.appetite}.clone()
	for _, m := range t.wanting {
		t.on[m.ID] = true
	}
	return t
}

// atATime is how long a request may wait at a time: where it waits more than once, for as long as by default.
func (p *planner) atATime(t turnout) time.Duration {
	shared := slices.ContainsFunc(t.wanting, func(m member) bool { return m.Share > 0 })
	if shared || !p.unbroken && !p.slow() {
		return t.budget
	}
	return min(t.budget, byDefault(len(t.wanting)))
}

// sizes are the slices of the queue's processes that are on, in its order. gapsDo: what requests leave
// suffices for one of them.
func (p *planner) sizes(t turnout, gapsDo bool) []time.Duration {
	here := t.here()
	switch {
	case len(p.tops) == 0 && len(p.queue) == 1:
		return []time.Duration{DefaultSlice}
	case len(p.tops) == 0:
		return divide(p.queue, p.weighted(), 0, p.second())
	case t.visits:
		return slices.Repeat([]time.Duration{t.slice}, len(p.queue))
	case here == 1 && gapsDo:
		return slices.Repeat([]time.Duration{short}, len(p.queue))
	case t.turns || here < 2:
		return slices.Repeat([]time.Duration{DefaultSlice}, len(p.queue))
	default:
		beyond := p.beyond(t.wanting)
		sizes := divide(beyond, beyond, t.budget, 0)
		all := slices.Repeat([]time.Duration{DefaultSlice}, len(p.queue))
		for i, m := range p.queue {
			if at := slices.IndexFunc(t.wanting, func(o member) bool { return o.ID == m.ID }); at >= 0 {
				all[i] = sizes[at]
			}
		}
		return all
	}
}

// servers gives every process its slice: servers, whose requests come first, and the queue.
func (p *planner) servers(full bool) {
	t := p.turnout()
	l, gapsDo := &p.state.load, !full || p.resting()
	l.full = l.full && !t.visits
	if len(p.tops) == 0 || t.here() != 1 || len(p.foreign) > 0 || t.visits || !gapsDo {
		l.since = time.Time{}
	} else if l.since.IsZero() {
		l.since = p.in.Now
	}
	var sizes []time.Duration
	var modest time.Duration
	if len(p.foreign) > 0 {
		sizes, modest = p.modest()
	} else {
		sizes = p.sizes(t, gapsDo)
	}
	together := time.Duration(0)
	for i, m := range p.queue {
		s := Standing{Rank: len(p.tops) + i + 1, Slice: sizes[i]}
		isOn, wants := t.on[m.ID]
		switch {
		case !wants:
			s.Slice = DefaultSlice
		case !isOn && p.in.Now.Before(p.offUntil(m)):
			s.Slice, s.Off, s.Until = m.Stands.slice(), true, p.offUntil(m)
			p.wake(s.Until)
		case !isOn: // it has been off for as long as is allowed, and its turn is late
			s.Slice = DefaultSlice
			together += s.Slice
		default:
			together += max(s.Slice, DefaultSlice)
		}
		s.Reason = p.why(m, s, wants, t.wanting)
		p.out[m.ID] = s
	}
	p.top(full, t.visits, together, t.here(), modest)
}

// offUntil is when a process that is off in turns must be on again.
func (p *planner) offUntil(m member) time.Time { return p.state.turn.off[m.ID].Add(MaxOff) }

// budget is how long a request may wait for all others: a tenth of the shortest deadline.
func (p *planner) budget() time.Duration {
	if len(p.tops) == 0 {
		return 0
	}
	return max(Budget(p.tops[0].Deadline), time.Microsecond)
}

// byDefault is how long n processes take with the default slice and a switch each.
func byDefault(n int) time.Duration { return time.Duration(n) * (DefaultSlice + SwitchCost) }

// top gives the servers their slices. together is the sum of the slices of the queue's processes
// that are on, here their number. modest is a server's slice beside a process that is not ours; 0: there is none.
func (p *planner) top(full, visits bool, together time.Duration, here int, modest time.Duration) {
	for i, m := range p.tops {
		s := Standing{Rank: i + 1, Slice: long}
		others := ""
		switch {
		case modest > 0:
			s.Slice = modest
		case len(p.tops)+len(p.queue) == 1:
			s.Slice = DefaultSlice
		case visits: // alone on the GPU; a visitor must not wait for a long kernel
			s.Slice = DefaultSlice
			others = "; others are off but for visits"
		case full:
			sure := p.sure()
			all := time.Duration(float64(together)*(1-sure)/sure) - time.Duration(here+len(p.tops))*SwitchCost
			s.Slice = min(max(all/time.Duration(len(p.tops)), DefaultSlice), long).Round(time.Microsecond)
			others = fmt.Sprintf("; others are sure of %s in between", percent(sure))
		case i > 0:
			s.Slice = ServerSlice(i, p.tops[0].Deadline)
		}
		s.Reason = p.whyTop(i, s) + others
		p.out[m.ID] = s
	}
	p.note()
}

// note notes since when the servers have had their slices.
func (p *planner) note() {
	sizes := map[string]time.Duration{}
	for _, m := range p.tops {
		sizes[m.ID] = p.out[m.ID].Slice
	}
	if l := &p.state.load; !maps.Equal(sizes, l.sizes) {
		l.older, l.sizes, l.sized = p.sizesThen(), sizes, p.in.Now
	}
}

// sizesThen are the servers' slices of the time whose switches were read last.
func (p *planner) sizesThen() map[string]time.Duration {
	l := p.state.load
	known := l.sizes
	if p.in.Switches.From.Before(l.sized) {
		known = l.older
	}
	sizes := map[string]time.Duration{}
	for _, m := range p.tops {
		sizes[m.ID] = cmp.Or(known[m.ID], m.Stands.slice())
	}
	return sizes
}

// modest makes slices while a process computes whose part is not ours: for the queue, and for servers.
// Together they are no longer than by default, so that it waits no longer for its turn. Half of what those
// of later places leave goes to servers, to those whose deadline can be met and, without servers, to the
// first: all of it would be more than they leave where they have gaps.
func (p *planner) modest() (queue []time.Duration, server time.Duration) {
	most := 0.0
	for _, m := range p.queue {
		most = max(most, m.part)
	}
	queue = make([]time.Duration, len(p.queue))
	first := func(i int) bool { return p.queue[i].place <= policy.OnTime || i == 0 && len(p.tops) == 0 }
	left, heirs := time.Duration(0), len(p.tops)
	for i, m := range p.queue {
		switch queue[i] = lesser; {
		case first(i):
			queue[i] = DefaultSlice
			heirs++
		case m.Share > 0:
			queue[i] = min(max(time.Duration(m.part/most*float64(DefaultSlice)), lesser), DefaultSlice).Round(time.Microsecond)
		}
		if m.Wants != No { // else it leaves nothing: it computes elsewhere, or is paused
			left += DefaultSlice - queue[i]
		}
	}
	more := (left / 2 / time.Duration(max(heirs, 1))).Round(time.Microsecond)
	for i := range queue {
		if first(i) {
			queue[i] += more
		}
	}
	return queue, DefaultSlice + more
}
