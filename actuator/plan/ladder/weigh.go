package ladder

import (
	"cmp"
	"math"
	"slices"
)

const (
	// gain is the part of a missing share that is corrected per second: small, since the device's
	// utilisation is at least a second old.
	gain = 0.3
	// weightMost bounds the factor by which a part is multiplied or divided.
	weightMost = 4
	// closeEnough is the difference from a share that is not corrected.
	closeEnough = 0.005
	// idlesBelow is the part of its share below which a process seems not to want it: it is not
	// given more.
	idlesBelow = 1.0 / 3
)

// weigh corrects the parts of processes with a share by what they got in the window before. A
// program that waits for its kernels gives up the rest of its slice at the end of each one. So
// slices in the proportion of the shares give too little to the processes with the longest slices.
// What a process leaves of its share belongs to the others in proportion, so those are compared with
// each other. What is not measured exactly is not corrected: on an H100 corrections by the driver's
// samples made shares of 10, 30 and 60 % to 9, 45 and 46 %.
func (p *planner) weigh() {
	l := &p.state.load
	all := 0.0
	for _, m := range p.queue {
		use, measured := l.use[m.ID]
		if !measured || !m.Exact {
			return
		}
		all += use
	}
	if len(p.tops) > 0 || len(p.queue) < 2 || all < 0.5 {
		return
	}
	parts, got, others := 0.0, 0.0, false
	for _, m := range p.queue {
		switch use := l.use[m.ID] / all; {
		case m.part == 0:
			others = others || use > closeEnough
		case use >= m.part*idlesBelow:
			parts += m.part
			got += use
		}
	}
	if others { // who has no part has what is left
		parts, got = 1, 1
	}
	for _, m := range p.queue {
		use := l.use[m.ID] / all
		if m.Share == 0 || m.part == 0 || use < m.part*idlesBelow {
			continue
		}
		has, due := use/got, m.part/parts
		if math.Abs(has-due) < closeEnough {
			continue
		}
		w := p.weight(m.ID) * math.Pow(due/has, gain)
		l.weights[m.ID] = min(max(w, 1.0/weightMost), weightMost)
	}
}

func (p *planner) weight(id string) float64 {
	return cmp.Or(p.state.load.weights[id], 1)
}

// weighted is the queue with corrected parts, from which slices are made. The sum of the shares
// does not change, so that the floor of the others stays.
func (p *planner) weighted() []member {
	queue := slices.Clone(p.queue)
	was, is := 0.0, 0.0
	for i, m := range queue {
		if m.Share > 0 {
			was += m.part
			queue[i].part *= p.weight(m.ID)
			is += queue[i].part
		}
	}
	for i, m := range queue {
		if m.Share > 0 && is > 0 {
			queue[i].part *= was / is
		}
	}
	return queue
}
