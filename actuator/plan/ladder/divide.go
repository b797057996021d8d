package ladder

import (
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

const (
	// long is the slice of the first server: longer than its requests. Between requests it takes
	// nothing.
	long = time.Second
	// short is the slice of the only other process that wants the GPU beside servers: a request
	// waits for no more than that and a switch. Two processes with it would do nothing but switch,
	// so no two in the queue have it.
	short = 100 * time.Microsecond
	// lesser is the slice of processes after the first while one computes that we must not act on:
	// two thirds of DefaultSlice, so that switches take little more than by default.
	lesser = DefaultSlice * 2 / 3 / time.Microsecond * time.Microsecond

	// round is the least time in which each process with a part gets it once, if we may choose:
	// switches then take a few percent. No process waits longer than roundMost.
	round, roundMost = 20 * time.Millisecond, time.Second
	// above is how much of a round comes before each slice of a process without a promised part, so
	// that these slices take a small part of the round.
	above = 100 * time.Millisecond
)

// rungs is the ladder if no part is promised. A process in a host phase, or copying, leaves the GPU
// to the next one, so the first rungs matter. The last processes have the default slice, with which
// they do not thrash when they alone want the GPU.
var rungs = []time.Duration{10 * time.Second, 100 * time.Millisecond, 10 * time.Millisecond}

// ServerSlice is the slice of the n-th server, from 0, ordered by the deadlines of their requests;
// shortest is the first one's. Beside a process that we must not act on it is DefaultSlice.
func ServerSlice(n int, shortest time.Duration) time.Duration {
	if n == 0 {
		return long
	}
	return min(max(shortest/4, DefaultSlice), long)
}

// Budget is how long, at most, a request waits in one round for all processes that are no servers;
// shortest is the shortest deadline.
func Budget(shortest time.Duration) time.Duration { return shortest / 10 }

// divide makes slices for the processes in the queue, all of which may want the GPU at once, from their
// corrected parts. All slices and the switches between them fit into budget, unless it is 0. If no
// part is promised, second is the slice of the second.
//
// The round is as long as the promised parts say, not the corrected ones. A program that gives the GPU
// away before its slice is over gets no more by a longer one: then the others' must be shorter.
func divide(queue, corrected []member, budget, second time.Duration) []time.Duration {
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
	return apportion(corrected, whole, func(m member) time.Duration {
		if budget == 0 && m.Share > 0 {
			return lesser
		}
		return DefaultSlice
	})
}

// firstLeast is the least part, of what others are not sure of, that slices must give to the first for them to
// make an order.
const firstLeast = 0.75

// tooEven reports whether slices within a budget give the first, whose deadline can be met, less than that, and turns
// would give it more. Its container's other processes count with it. Whoever stays on in turns has half of each.
func (p *planner) tooEven(wanting []member, budget time.Duration) bool {
	first := wanting[0]
	if first.place > policy.OnTime {
		return false
	}
	all, sum, its := divide(wanting, wanting, budget, 0), 0.0, 0.0
	due, here := 1.0, 1.0
	for i, m := range wanting {
		sum += all[i].Seconds()
		switch m.Container {
		case first.Container:
			its += all[i].Seconds()
		default:
			due -= m.part
		}
		if !m.moves() {
			here++
		}
	}
	return its < min(firstLeast*due, 1/here)*sum
}

// ladder makes a ladder of slices; second is the slice of the second in the queue.
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
	// fills is the least part of the time that the first in the queue uses if it seldom gives the
	// GPU away.
	fills = 0.9
	// lent is the slice of the second in the queue then.
	lent = 64 * time.Millisecond
	// unused is the most that a first in the queue uses of a reading's time in which it did not want the GPU.
	unused = 0.1
)

// second is the slice of the second in the queue. A program that waits for each of its kernels
// gives the GPU away after each, and then waits for the second's whole slice. With a deadline that
// it can meet it must not wait longer than by default. So the second has a long slice only while
// the first fills the GPU. The slice takes effect in the first's host phases: then the second,
// which is next, has the GPU, not all processes alike. When the first fills the GPU no longer, the
// reading after that one tells whether it waits, or has no more work there: many a task ends with a
// second in which it copies its results. A reading is one of the context switches; where these are not
// read it is a window of GPU time, which tells the same a second later. So do the samples that stand in for a
// reading without a switch; but then whoever computes has not given the GPU away.
func (p *planner) second() time.Duration {
	if len(p.queue) == 0 {
		return 0
	}
	first, l := p.queue[0], &p.state.load
	if first.place > policy.OnTime {
		return rungs[1]
	}
	use, measured := l.use[first.ID]
	enough, reading := fills, l.at
	if first.Exact {
		use, measured, reading = first.Used, true, p.in.Switches.From
		if p.in.Switches.Rate == 0 {
			enough = unused
		}
	}
	switch {
	case measured && use >= enough && !l.waits[first.ID]:
		l.lent, l.doubt = first.ID, time.Time{}
		return lent
	case l.lent != first.ID:
	case l.doubt.IsZero():
		l.doubt = reading
		return lent
	case l.doubt.Equal(reading), measured && use < unused:
		return lent
	default:
		l.lent, l.waits[first.ID] = "", true
	}
	return DefaultSlice
}

// apportion divides the whole: each gets its part, but at least its least; the first, and those
// beside it, get the rest.
func apportion(queue []member, whole time.Duration, least func(member) time.Duration) []time.Duration {
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
			all[i] = max(all[i], least(m))
		}
		rest -= all[i]
	}
	for i, m := range queue {
		if head(i) {
			all[i] = max(all[i]+max(rest, 0)/time.Duration(heads), least(m))
		}
	}
	for i := range all { // the driver's interface counts microseconds
		all[i] = all[i].Round(time.Microsecond)
	}
	return all
}
