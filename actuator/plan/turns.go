package plan

import (
	"cmp"
	"slices"

	"github.com/laxity/laxity/actuator/policy"
)

// turns is the outcome of asking the rule about one sequence of containers.
type turns struct {
	why    map[string]string // for those that may run: the reason
	beside map[string][]string
	refuse map[string]string // for the others
	taken  map[string][]string
	queue  map[string][]string
}

// settle asks the rule until every container that keeps its turn is admitted. A container that the
// rule takes out again waits in its place like the others.
func (p *planner) settle(queue, victims []entry) turns {
	out := map[string]bool{}
	for _, v := range victims {
		out[v.ID] = true
	}
	for {
		t := p.open(p.sequence(queue, out))
		n := len(out)
		for _, e := range queue {
			if _, refused := t.refuse[e.ID]; refused && e.incumbent {
				out[e.ID] = true
			}
		}
		if len(out) == n {
			return t
		}
	}
}

// sequence puts running containers that keep their turn first, and those without memory to compute
// with last. Class batch keeps its turn against batch only. Within each group the order of the
// policy holds. Containers in out have lost their turn.
func (p *planner) sequence(queue []entry, out map[string]bool) []entry {
	const (
		kept = iota
		waits
		keptBatch
		waitsBatch
		starved
	)
	group := func(e entry) int {
		g := waits
		if p.in.Preemption != nil && e.incumbent && !out[e.ID] {
			g = kept
		}
		switch {
		case e.Memory.Starved != "":
			return starved
		case p.yields(e):
			return g + keptBatch
		default:
			return g
		}
	}
	seq := slices.Clone(queue)
	slices.SortStableFunc(seq, func(a, b entry) int {
		ga, gb := group(a), group(b)
		if ga == gb && (ga == kept || ga == keptBatch) { // in the order of admission, so that the next plan asks in the same sequence
			return a.Since.Compare(b.Since)
		}
		return cmp.Compare(ga, gb)
	})
	return seq
}

// open asks the rule. A container on several GPUs runs only if each of them admits it. The sequence
// is the same on every GPU, so the first container that may run at all does run: no deadlock.
func (p *planner) open(seq []entry) turns {
	t := turns{why: map[string]string{}, beside: map[string][]string{}, refuse: map[string]string{}, taken: map[string][]string{}, queue: map[string][]string{}}
	admissions := map[string]Admission{}
	for _, g := range p.in.GPUs {
		if g.Arbitrated {
			admissions[g.UUID] = p.admission(g)
		}
	}
	for _, e := range seq {
		if why := p.in.Beside[e.ID]; why != "" {
			t.why[e.ID] = why
			for _, g := range e.on {
				if _, arbitrated := admissions[g]; arbitrated {
					t.beside[g] = append(t.beside[g], e.ID)
				}
			}
			continue
		}
		reason, ok := "", true
		for _, g := range e.on {
			if a, arbitrated := admissions[g]; arbitrated && ok {
				ok, reason = a.May(e.Container) // any of the reasons will do
				reason += " on " + g
			}
		}
		for _, g := range e.on {
			a, arbitrated := admissions[g]
			switch {
			case !arbitrated:
			case ok:
				a.Take(e.Container)
				t.taken[g] = append(t.taken[g], e.ID)
			default:
				a.Pass(e.Container)
				t.queue[g] = append(t.queue[g], e.ID)
			}
		}
		if ok {
			t.why[e.ID] = reason
		} else {
			t.refuse[e.ID] = reason
		}
	}
	return t
}

// yields reports whether e gives way at once to every task with a deadline, even one that can wait.
func (p *planner) yields(e entry) bool {
	return p.in.Preemption != nil && !p.in.Preemption.Never && !e.first.Urgent()
}

// displaces returns the container with a deadline that has just taken the turn of e, which yields.
func (p *planner) displaces(e entry, queue []entry) (entry, bool) {
	if !e.incumbent || !p.yields(e) {
		return entry{}, false
	}
	i := slices.IndexFunc(queue, func(c entry) bool {
		return p.turns.why[c.ID] != "" && !c.incumbent && !p.yields(c) && p.in.Beside[c.ID] == "" && p.meet(c, e)
	})
	if i < 0 {
		return entry{}, false
	}
	return queue[i], true
}

// precedence says, for people, why others come before e, if the order of the deadlines does not
// explain it; else empty.
func (p *planner) precedence(e entry, queue []entry) string {
	if e.place < policy.Behind {
		return ""
	}
	for _, c := range queue {
		if c.ID == e.ID || p.turns.why[c.ID] == "" || !p.meet(c, e) || c.place >= e.place {
			continue
		}
		if e.place == policy.Last {
			return ": tasks with deadlines come before those without, and before class batch"
		}
		return ": its own deadline cannot be met any more, and those that can meet theirs come first"
	}
	return ""
}
