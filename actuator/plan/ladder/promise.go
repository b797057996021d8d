package ladder

import (
	"fmt"
	"maps"
	"slices"

	"github.com/laxity/laxity/actuator/policy"
)

// Cut reduces shares and floor in proportion if they add up to more than 1, and reports that. It
// does not change its argument.
func Cut(shares map[string]float64, floor float64) (cut map[string]float64, cutFloor float64, report string) {
	sum := floor
	for _, id := range slices.Sorted(maps.Keys(shares)) { // the same order of additions each time
		sum += shares[id]
	}
	if sum <= 1+1e-9 {
		return shares, floor, ""
	}
	cut = map[string]float64{}
	for id, s := range shares {
		cut[id] = s / sum
	}
	what := "shares"
	if floor > 0 {
		what = "shares and the batch floor"
	}
	return cut, floor / sum, fmt.Sprintf("%s add up to %.0f %% of the GPU's time: each is cut to %.0f %% of it", what, 100*sum, 100/sum)
}

// tail is kept for processes that have a deadline and no promised part, if the promised parts leave
// nothing: a slice cannot be 0.
const tail = 0.02

// promise gives every process in the queue its assured part of the GPU's time: its share, or, where
// others of an earlier place come before it, an equal part of the floor.
func (p *planner) promise() {
	shares := map[string]float64{}
	heads := map[string]int{} // processes in the queue, by container
	for _, m := range slices.Concat(p.tops, p.queue) {
		if m.Share > 0 {
			shares[m.Container] = m.Share
		}
	}
	preceded, floors := map[policy.Place]int{}, 0.0
	first := policy.Last + 1
	if len(p.tops) > 0 {
		first = policy.OnTime
	}
	for _, m := range p.queue {
		heads[m.Container]++
		first = min(first, m.place)
		if m.Share == 0 && m.place >= policy.Behind && m.place > first {
			if preceded[m.place]++; preceded[m.place] == 1 {
				floors += p.floor()
			}
		}
	}
	shares, cutFloor, report := Cut(shares, floors)
	p.report = report
	floor := p.floor()
	if floors > 0 {
		floor *= cutFloor / floors
	}
	sum, others := 0.0, false
	for i := range p.queue {
		m := &p.queue[i]
		switch {
		case m.Share > 0:
			m.part = shares[m.Container] / float64(heads[m.Container])
			m.why = fmt.Sprintf("sure of %s", percent(shares[m.Container]))
		case preceded[m.place] > 0:
			m.part = floor / float64(preceded[m.place])
			m.why = fmt.Sprintf("comes last and gets %s all the same (--batch-floor)", percent(floor))
			if preceded[m.place] > 1 {
				m.why = fmt.Sprintf("one of %d that come last and get %s all the same (--batch-floor)", preceded[m.place], percent(floor))
			}
		default:
			others = true
		}
		sum += m.part
	}
	if others && sum > 1-tail {
		for i := range p.queue {
			p.queue[i].part *= (1 - tail) / sum
		}
	}
}

func (p *planner) floor() float64 {
	if p.in.Floor == 0 {
		return DefaultFloor
	}
	return p.in.Floor
}

// sure adds up the assured parts of the queue.
func (p *planner) sure() float64 {
	sum := 0.0
	for _, m := range p.queue {
		sum += m.part
	}
	if p.half {
		return max(sum, 0.5)
	}
	return sum
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }
