package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/policy"
)

// entry is one container in the queue.
type entry struct {
	Container
	first policy.Job
	on    []string // its GPUs
	// incumbent: it was admitted on every arbitrated GPU that it uses, and runs.
	incumbent bool
}

// planner holds what one call of Make works out.
type planner struct {
	in    Input
	gpus  map[string]GPU
	queue []entry // those with unfinished tasks that can be held, in order
	waits map[string]Wait
	turns turns
	// reserved says why somebody lets another one go first.
	reserved map[string]string
	// barred: may not begin to hold memory. swap, restore: to be swapped out or in.
	// The reason, by container id.
	barred, swap, restore map[string]string
	// back: must not create a context yet. The reason, by container id.
	back map[string]string
}

// turns is the outcome of asking the rule about one sequence of containers.
type turns struct {
	why    map[string]string // for those that may run: the reason
	refuse map[string]string // for the others
	taken  map[string][]string
	line   map[string][]string
}

// Make makes a plan. It does not change its input, and depends on nothing else.
func Make(in Input) Plan {
	p := &planner{in: in, gpus: map[string]GPU{}, waits: map[string]Wait{}, back: map[string]string{}}
	for _, g := range in.GPUs {
		p.gpus[g.UUID] = g
	}
	for _, c := range in.Containers {
		if c.Controllable() && len(c.Tasks) > 0 {
			p.queue = append(p.queue, p.entry(c))
		}
	}
	slices.SortStableFunc(p.queue, func(a, b entry) int {
		return cmp.Or(in.Order.Compare(a.first, b.first), strings.Compare(a.ID, b.ID))
	})
	p.ask()
	p.relieve()
	p.memory()
	p.admitStarts()
	preempted, by := p.arbitrate()
	return Plan{
		Actions: p.actions(), Admitted: p.admitted(), Line: p.turns.line, Waits: p.waits,
		Preempted: preempted, PreemptedBy: by, Barred: p.barred, Back: p.back,
	}
}

func (p *planner) entry(c Container) entry {
	e := entry{Container: c, first: c.Job(p.in.Order, p.in.Now), on: c.gpus()}
	for _, g := range e.on {
		if gpu := p.gpus[g]; gpu.Arbitrated {
			e.incumbent = slices.Contains(gpu.Admitted, c.ID)
			if !e.incumbent {
				break
			}
		}
	}
	e.incumbent = e.incumbent && c.Standing == Runs
	return e
}

// ask keeps the containers that somebody wants paused, with or without tasks.
func (p *planner) ask() {
	for _, c := range p.in.Containers {
		if c.Asked != "" && c.Controllable() {
			p.waits[c.ID] = Wait{Asked, c.Asked}
		}
	}
}

// arbitrate lets the rule decide, container by container in one sequence for all
// GPUs, and once more where one that runs is to be stopped for another.
func (p *planner) arbitrate() (preempted, by string) {
	var queue []entry
	for _, e := range p.queue {
		if _, stopped := p.waits[e.ID]; !stopped { // asked for or relieved: it takes nobody's turn
			queue = append(queue, e)
		}
	}
	p.reserved = p.reserve(queue)
	p.turns = p.settle(queue, nil)
	if c, victims := p.challenge(queue); len(victims) > 0 {
		t := p.settle(queue, victims)
		if _, ok := t.why[c.ID]; ok { // else nothing is won by it
			p.turns = t
			for _, v := range victims {
				if reason, ok := t.refuse[v.ID]; ok {
					t.refuse[v.ID] = reason + ": " + c.why
					preempted, by = v.ID, c.ID
				}
			}
		}
	}
	for id, reason := range p.turns.refuse {
		p.waits[id] = Wait{Arbitrate, reason}
	}
	for _, e := range p.queue { // they are behind all that wait at a launch
		for _, g := range e.on {
			if p.back[e.ID] != "" && p.gpus[g].Arbitrated {
				p.turns.line[g] = append(p.turns.line[g], e.ID)
			}
		}
	}
	return preempted, by
}

// settle asks the rule until all that keep their turn may: one that the rule
// takes out again waits in its place like the others.
func (p *planner) settle(queue, victims []entry) turns {
	out := map[string]bool{}
	for _, v := range victims {
		out[v.ID] = true
	}
	for {
		t := p.open(sequence(queue, p.in.Preemption != nil, out))
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

// sequence puts those first that run already, if they keep their turn, and those
// last that do not want the GPU at the moment. Within each group the order of
// the policy stays. Those in out have lost their turn.
func sequence(queue []entry, keep bool, out map[string]bool) []entry {
	group := func(e entry) int {
		switch {
		case e.Phase.passive() || e.Memory.Starved != "":
			return 2
		case keep && e.incumbent && !out[e.ID]:
			return 0
		default:
			return 1
		}
	}
	seq := slices.Clone(queue)
	slices.SortStableFunc(seq, func(a, b entry) int {
		ga, gb := group(a), group(b)
		if ga == 0 && gb == 0 { // in the order of admission, so that the next plan asks in the same sequence
			return a.Since.Compare(b.Since)
		}
		return cmp.Compare(ga, gb)
	})
	return seq
}

// open asks the rule. A container on several GPUs runs only if each of them
// takes it. Since the sequence is the same everywhere, the first container that
// may run at all runs: nobody waits in a circle.
func (p *planner) open(seq []entry) turns {
	t := turns{why: map[string]string{}, refuse: map[string]string{}, taken: map[string][]string{}, line: map[string][]string{}}
	gates := map[string]Gate{}
	for _, g := range p.in.GPUs {
		if g.Arbitrated {
			gates[g.UUID] = p.in.Rule.Open(g)
		}
	}
	for _, e := range seq {
		reason, reserved := p.reserved[e.ID]
		ok := !reserved
		for _, g := range e.on {
			if gate, arbitrated := gates[g]; arbitrated && ok {
				ok, reason = gate.May(e.Container) // the last one's reason is as good as any
				reason += " on " + g
			}
		}
		for _, g := range e.on {
			gate, arbitrated := gates[g]
			switch {
			case !arbitrated:
			case ok:
				gate.Take(e.Container)
				t.taken[g] = append(t.taken[g], e.ID)
			default:
				gate.Pass(e.Container)
				t.line[g] = append(t.line[g], e.ID)
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

// admitted keeps the order of admission: those of before that still run, then
// the new ones.
func (p *planner) admitted() map[string][]string {
	all := map[string][]string{}
	for g, now := range p.turns.taken {
		var list []string
		for _, id := range p.gpus[g].Admitted {
			if slices.Contains(now, id) {
				list = append(list, id)
			}
		}
		for _, id := range now {
			if !slices.Contains(list, id) {
				list = append(list, id)
			}
		}
		all[g] = list
	}
	return all
}

func (p *planner) actions() []Action {
	var acts []Action
	add := func(c Container, k Kind, cause Cause, reason string) {
		acts = append(acts, Action{
			Kind: k, ContainerID: c.ID, Container: c.Name, Cause: cause, Reason: reason,
			GPUs: c.gpus(), Standing: c.Standing, Tasks: c.taskIDs(),
		})
	}
	for _, c := range p.in.Containers {
		w, stop := p.waits[c.ID]
		// It does not want the GPU at the moment, and is stopped where it does: its
		// host phases are nobody's loss.
		passes := w.Cause == Arbitrate && c.Phase.passive()
		switch {
		case c.Memory.Busy:
		case p.swap[c.ID] != "":
			add(c, SwapOut, w.Cause, w.Reason)
		case p.restore[c.ID] != "":
			add(c, SwapIn, OfMemory, p.restore[c.ID])
		case c.Memory.Out:
		case stop && c.Standing == Runs && !passes:
			add(c, Pause, w.Cause, w.Reason)
		case passes && c.Standing == Ours && (c.Cause == Arbitrate || c.Cause == Start):
			add(c, Unpause, c.Cause, "it goes on up to its next launch")
			acts[len(acts)-1].ToLaunch = true
		case !stop && c.Standing == Ours:
			add(c, Unpause, c.Cause, p.whyGo(c))
		}
	}
	// Let go first: it must never wait behind a pause.
	slices.SortStableFunc(acts, func(a, b Action) int { return strings.Compare(string(b.Kind), string(a.Kind)) })
	return acts
}

func (p *planner) whyGo(c Container) string {
	switch {
	case c.Exempt != "":
		return c.Exempt
	case !c.Managed || c.Never:
		return "its labels do not allow it to be held"
	case len(c.Tasks) == 0:
		return "it has no unfinished task"
	case p.turns.why[c.ID] != "":
		return p.turns.why[c.ID]
	default:
		return fmt.Sprintf("the reason for its hold (%s) is over", c.Cause)
	}
}
