package ladder

import (
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

const (
	// long is the slice of the server that comes first: longer than its requests. While it
	// has none it takes nothing.
	long = time.Second
	// short is the slice of the only other one that wants the GPU beside servers: a
	// request waits no longer than that and a switch. Two of it at once would do nothing
	// but switch, so nobody has it beside another one of those in the queue.
	short = 100 * time.Microsecond
	// lesser is the slice of those that are not first while a process computes that is not
	// ours to act on: two thirds of DefaultSlice, so that switches take little more than by default.
	lesser = DefaultSlice * 2 / 3 / time.Microsecond * time.Microsecond

	// round is the least time in which each of those with a part gets it once, where that
	// is left to us: switches then take a few percent. Nobody waits longer than roundMost.
	round, roundMost = 20 * time.Millisecond, time.Second
	// above is how much of a round comes before each slice of somebody that was promised
	// no part: together these slices take a small part of it.
	above = 100 * time.Millisecond
)

// rungs is the ladder where nobody was promised a part. Whoever is in a host phase or
// copies leaves the GPU to the next, so the first ones matter; among the last ones
// slices as by default do not thrash when they alone want the GPU.
var rungs = []time.Duration{10 * time.Second, 100 * time.Millisecond, 10 * time.Millisecond}

// divide makes slices for those in the queue, all of whom may want the GPU at once. All of
// them and the switches between take no longer than budget, unless it is 0. Where nobody is
// promised a part, second is the slice of the second.
func divide(queue []member, budget, second time.Duration) []time.Duration {
	least, promised, unpromised := 1.0, false, 0
	for i, m := range queue {
		if m.part > 0 {
			least = min(least, m.part)
		} else if i > 0 && !m.beside {
			unpromised++
		}
		promised = promised || m.part > 0 || m.beside
	}
	if !promised && budget == 0 {
		return ladder(queue, second)
	}
	switches := time.Duration(len(queue)) * SwitchCost
	whole := max(time.Duration(float64(DefaultSlice)/least), time.Duration(unpromised)*above, round)
	whole = min(whole, roundMost)
	if budget > 0 {
		whole = min(whole, budget-switches)
	}
	return apportion(queue, whole, DefaultSlice)
}

// ladder of slices; second is that of the second in the queue.
func ladder(queue []member, second time.Duration) []time.Duration {
	all := make([]time.Duration, len(queue))
	for i := range all {
		switch all[i] = DefaultSlice; {
		case i == 1:
			all[i] = second
		case i == 0 || i < len(rungs) && queue[0].place > policy.OnTime:
			all[i] = rungs[i]
		}
	}
	return all
}

const (
	// fills is the part of the time that the first in the queue uses, at least, if it gives the GPU
	// away seldom.
	fills = 0.9
	// lent is the slice of the second in the queue then.
	lent = 64 * time.Millisecond
)

// second is the slice of the second in the queue. A program that waits for each of its kernels
// gives the GPU away after each, and waits for the second's whole slice every time. One with
// a deadline that can be met is not to wait for longer than by default then; so the second
// has a long slice only while the first fills the GPU. It counts when the first is in a host
// phase: what it leaves is then for the second, that is next, and not for all alike.
func (p *planner) second() time.Duration {
	if len(p.queue) == 0 {
		return 0
	}
	first, l := p.queue[0], &p.state.load
	if first.place > policy.OnTime {
		return rungs[1]
	}
	use, measured := l.use[first.ID]
	switch {
	case measured && use >= fills && !l.waits[first.ID]:
		l.lent = first.ID
		return lent
	case l.lent == first.ID && use < fills:
		l.lent, l.waits[first.ID] = "", true
	}
	return DefaultSlice
}

// apportion divides the whole: to each its part, at least the least, and what is left
// to the first and to those that are beside it.
func apportion(queue []member, whole, least time.Duration) []time.Duration {
	if len(queue) == 0 {
		return nil
	}
	all := make([]time.Duration, len(queue))
	first := queue[0].place
	heads, rest := 0, whole
	head := func(i int) bool { return i == 0 || queue[i].beside && queue[i].place == first }
	for i, m := range queue {
		all[i] = time.Duration(m.part * float64(whole))
		if head(i) {
			heads++
		} else {
			all[i] = max(all[i], least)
		}
		rest -= all[i]
	}
	for i := range queue {
		if head(i) {
			all[i] = max(all[i]+max(rest, 0)/time.Duration(heads), least)
		}
	}
	for i := range all { // the interface counts microseconds
		all[i] = all[i].Round(time.Microsecond)
	}
	return all
}
