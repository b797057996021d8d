package ladder

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Make makes a plan for one GPU. It changes neither argument, and depends on nothing else.
func Make(in Input, before State) Plan {
	p := &planner{in: in, state: before.clone(), out: map[string]Standing{}}
	p.state.bucket.fill(in.Now, p.rate())
	closed := p.measure()
	p.sort()
	p.promise()
	p.hold()
	if closed {
		p.weigh()
	}
	p.servers(p.full(closed))
	if len(p.tops)+len(p.queue) > 1 { // places change as deadlines pass
		p.wake(in.Now.Add(window))
	}
	for _, t := range p.idle {
		p.out[t.ID] = Standing{Slice: DefaultSlice, Reason: "it has no task on this GPU"}
	}
	return Plan{Changes: p.changes(), Standings: p.out, Again: p.again, Report: p.report, State: p.state}
}

// hold keeps those off that somebody wants off.
func (p *planner) hold() {
	for _, t := range p.held {
		until := p.heldUntil(t)
		p.wake(until)
		p.out[t.ID] = Standing{Slice: t.Stands.slice(), Off: true, Until: until, Reason: "off the GPU: " + t.Asked}
	}
}

// servers gives everybody its slice: those whose requests come first, and those in the queue.
func (p *planner) servers(full bool) {
	wanting := p.queue
	if len(p.tops) > 0 { // who is known to be busy elsewhere takes nobody's turn
		wanting = slices.DeleteFunc(slices.Clone(p.queue), func(m member) bool { return m.Wants == No })
	}
	budget := p.budget()
	var sizes []time.Duration
	on := map[string]bool{}
	each := time.Duration(len(wanting)) * (DefaultSlice + SwitchCost)
	turns := len(p.tops) > 0 && len(wanting) > 1 && each > budget
	length, visits := time.Duration(0), false
	if len(wanting) > 0 && p.steady() {
		length, visits = p.visit(wanting, on)
	}
	switch {
	case visits:
	case turns:
		if on = p.takeTurns(wanting); len(p.state.turn.on) > 0 {
			break
		}
		// Nobody may be off. Then requests wait for some of their deadline.
		p.report = cmp.Or(p.report, p.whyNoTurns(wanting))
		turns, budget = false, max(each, 5*budget)
	default:
		p.state.turn = turn{}.clone()
		for _, m := range wanting {
			on[m.ID] = true
		}
	}
	here := 0
	for _, m := range wanting {
		if on[m.ID] {
			here++
		}
	}
	switch {
	case p.foreign > 0:
		sizes = p.modest()
	case len(p.tops) == 0 && len(p.queue) == 1:
		sizes = []time.Duration{DefaultSlice}
	case len(p.tops) == 0:
		sizes = divide(p.weighted(), 0, p.second())
	case visits:
		sizes = slices.Repeat([]time.Duration{length}, len(p.queue))
	case turns || here < 2:
		size := DefaultSlice
		if here == 1 && !full {
			size = short
		}
		sizes = slices.Repeat([]time.Duration{size}, len(p.queue))
	default:
		sizes = divide(p.beyond(p.queue), budget, 0)
	}
	together := time.Duration(0)
	for i, m := range p.queue {
		s := Standing{Rank: len(p.tops) + i + 1, Slice: sizes[i]}
		isOn, wants := on[m.ID]
		switch {
		case !wants:
			s.Slice = DefaultSlice
		case !isOn && p.in.Now.Before(p.offUntil(m)):
			s.Slice, s.Off, s.Until = m.Stands.slice(), true, p.offUntil(m)
			p.wake(s.Until)
		case !isOn: // it has been off for as long as it may, and its turn is late
			s.Slice = DefaultSlice
			together += s.Slice
		default:
			together += s.Slice
		}
		s.Reason = p.why(m, s, wants, wanting)
		p.out[m.ID] = s
	}
	p.top(full, visits, together, here)
}

// offUntil is when one that is off in turns has been so for as long as it may.
func (p *planner) offUntil(m member) time.Time { return p.state.turn.off[m.ID].Add(p.maxOff()) }

// budget is how long a request may wait for the others: a tenth of the shortest deadline.
func (p *planner) budget() time.Duration {
	if len(p.tops) == 0 {
		return 0
	}
	return max(p.tops[0].Deadline/10-time.Duration(p.foreign)*(DefaultSlice+SwitchCost), time.Microsecond)
}

// top gives the servers their slices. Those in the queue that are on have so much together,
// and are so many.
func (p *planner) top(full, visits bool, together time.Duration, here int) {
	for i, m := range p.tops {
		s := Standing{Rank: i + 1, Slice: long}
		others := ""
		switch {
		case p.foreign > 0:
			s.Slice = DefaultSlice
		case len(p.tops)+len(p.queue) == 1:
			s.Slice = DefaultSlice
		case visits: // alone on the GPU; a visitor is not to wait for a long kernel
			s.Slice = DefaultSlice
			others = "; others are off but for visits"
		case full:
			sure := p.sure()
			all := time.Duration(float64(together)*(1-sure)/sure) - time.Duration(here+len(p.tops))*SwitchCost
			s.Slice = min(max(all/time.Duration(len(p.tops)), DefaultSlice), long).Round(time.Microsecond)
			others = fmt.Sprintf("; others are sure of %s in between", percent(sure))
		case i > 0:
			s.Slice = min(max(p.tops[0].Deadline/4, DefaultSlice), long)
		}
		s.Reason = p.whyTop(i, s) + others
		p.out[m.ID] = s
	}
}

// modest makes slices for those in the queue while somebody computes whose part is not ours:
// each no longer than by default, so that nobody waits longer for its turn.
func (p *planner) modest() []time.Duration {
	most := 0.0
	for _, m := range p.queue {
		most = max(most, m.part)
	}
	all := make([]time.Duration, len(p.queue))
	for i, m := range p.queue {
		all[i] = lesser
		switch {
		case i == 0 && len(p.tops) == 0:
			all[i] = DefaultSlice
		case m.Share > 0:
			all[i] = min(max(time.Duration(m.part/most*float64(DefaultSlice)), lesser), DefaultSlice).Round(time.Microsecond)
		}
	}
	return all
}
