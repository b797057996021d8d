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
	place policy.Place
	on    []string // its GPUs
	// incumbent: every arbitrated GPU that it uses admitted it, and it runs.
	incumbent bool
}

// planner is the working state of one call of Make.
type planner struct {
	in    Input
	gpus  map[string]GPU
	queue []entry // containers with unfinished tasks that may be held, in order
	waits map[string]Wait
	turns turns
	// barred: must not begin to hold memory. swap, restore: to be swapped out or in. Each maps a
	// container id to the reason.
	barred, swap, restore map[string]string
}

// Make makes a plan. It does not change its input, and depends on nothing else.
func Make(in Input) Plan {
	p := &planner{in: in, gpus: map[string]GPU{}, waits: map[string]Wait{}}
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
	preempted := p.arbitrate()
	return Plan{
		Actions: p.actions(), Admitted: p.admitted(), Beside: p.turns.beside, Queue: p.turns.queue, Waits: p.waits,
		Preempted: preempted, Barred: p.barred,
	}
}

func (p *planner) entry(c Container) entry {
	first := c.Job(p.in.Order)
	e := entry{Container: c, first: first, place: p.place(first), on: c.gpus()}
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

// ask keeps the containers paused that a person or an alert wants paused, with or without tasks.
func (p *planner) ask() {
	for _, c := range p.in.Containers {
		if c.Asked != "" && c.Controllable() {
			p.waits[c.ID] = Wait{Asked, c.Asked}
		}
	}
}

// arbitrate asks the rule about each container, in one sequence for all GPUs. It asks once more if
// a running container is to be stopped for another.
func (p *planner) arbitrate() (preempted string) {
	var queue []entry
	for _, e := range p.queue {
		if _, stopped := p.waits[e.ID]; !stopped && !e.Server && !e.NoMemory { // a container that is stopped on request or for memory takes no turn
			queue = append(queue, e)
		}
	}
	p.turns = p.settle(queue, nil)
	if c, victims := p.challenge(queue); len(victims) > 0 {
		t := p.settle(queue, victims)
		if _, ok := t.why[c.ID]; ok { // otherwise nothing is gained
			p.turns = t
			for _, v := range victims {
				if reason, ok := t.refuse[v.ID]; ok {
					t.refuse[v.ID] = reason + ": " + c.why
					preempted = v.ID
				}
			}
		}
	}
	for _, e := range queue {
		if reason, refused := p.turns.refuse[e.ID]; refused {
			p.waits[e.ID] = Wait{Arbitrate, reason + p.precedence(e, queue)}
			if _, ok := p.displaces(e, queue); ok {
				preempted = e.ID
			}
		}
	}
	return preempted
}

// admitted keeps the order of admission: first those admitted before that still run, then the new
// ones.
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
		switch {
		case c.Memory.Busy:
		case p.swap[c.ID] != "":
			add(c, SwapOut, w.Cause, w.Reason)
		case p.restore[c.ID] != "":
			add(c, SwapIn, OfMemory, p.restore[c.ID])
		case c.Memory.Out:
		case stop && c.Standing == Runs:
			add(c, Pause, w.Cause, w.Reason)
		case !stop && c.Standing == Ours:
			add(c, Unpause, c.Cause, p.whyGo(c))
		}
	}
	// Release first: a release must never wait behind a pause.
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
	case c.Server:
		return "requests are not held for others"
	case p.turns.why[c.ID] != "":
		return p.turns.why[c.ID]
	default:
		return fmt.Sprintf("the reason for its hold (%s) is over", c.Cause)
	}
}
