// Package plan turns an order of tasks, the capacity of the GPUs and what is
// true now into actions: pause this container, let that one go, each with its
// reason and with what must still be true when it is carried out.
//
// Pure: it imports the standard library, exporter/task and actuator/policy
// only. A plan that is carried out and made again
// contains nothing more.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// Standing says whether a container runs, and if not, whose doing that is.
type Standing string

// The standings.
const (
	Runs     Standing = "runs"
	Ours     Standing = "ours"     // we paused it
	Somebody Standing = "somebody" // it is paused, and not by us
)

// Cause is why a container is held. Each cause has its own way of ending.
type Cause string

// The causes.
const (
	Arbitrate Cause = "arbitrate" // the GPU is contended and another container is in turn
	Relieve   Cause = "relieve"   // the GPU's memory is nearly full
	Asked     Cause = "pause"     // an alert asked for this container to be paused
)

// GPU is one GPU as far as planning goes.
type GPU struct {
	UUID string
	// Utilization is 0–1, NaN where not known.
	Utilization float64
	// Memory is the share of the memory in use, 0–1.
	Memory float64
	// Fresh: utilisation and memory were sampled long enough after the last
	// action on this GPU to show its effect.
	Fresh bool
	// Arbitrated: the rule decides who runs. Otherwise everybody does.
	Arbitrated bool
	// Relieve: memory pressure was reported and is not known to be over.
	Relieve bool
	// Admitted lists the ids of the containers that the last plan let run here,
	// in the order in which they were admitted.
	Admitted []string
}

// Container is one container with what stands for and against holding it.
type Container struct {
	ID, Name string
	// Tasks are its unfinished tasks.
	Tasks    []task.Task
	Standing Standing
	// Cause of our hold; empty unless Standing is Ours.
	Cause Cause
	// Managed: it carries a laxity.* label. Never: it must not be held.
	Managed, Never bool
	// Exempt says why it is not to be held for as long as its present tasks
	// last (a person unpaused it, it was held as long as is allowed); else empty.
	Exempt string
	// Asked says why somebody wants this container paused; else empty.
	Asked string
}

// Input is everything that a plan depends on.
type Input struct {
	GPUs       []GPU
	Containers []Container
	Order      policy.Order
	Rule       Rule
}

// Kind of an action.
type Kind string

// The kinds of action.
const (
	Pause   Kind = "pause"
	Unpause Kind = "unpause"
)

// Action is one thing to do to one container.
type Action struct {
	Kind        Kind
	ContainerID string
	Container   string
	Cause       Cause
	Reason      string
	GPUs        []string // on which it has unfinished tasks, sorted
	// Preconditions: whoever carries the action out checks them again. The
	// container must stand like this, and for a Pause all these tasks (ids) must
	// be unfinished.
	Standing Standing
	Tasks    []string
}

// Plan is what to do, and what to hand in again as GPU.Admitted.
type Plan struct {
	Actions  []Action
	Admitted map[string][]string // by GPU
	// Waits says why each container that must not run must not, whether it is
	// stopped already or not; by container id.
	Waits map[string]Wait
}

// Wait is the reason for which a container must not run now.
type Wait struct {
	Cause  Cause
	Reason string
}

// Controllable reports whether the planner may hold the container at all.
func (c Container) Controllable() bool {
	return c.Managed && !c.Never && c.Exempt == "" && c.Standing != Somebody
}

// gpus returns the GPUs of the container's tasks, sorted.
func (c Container) gpus() []string {
	var all []string
	for _, t := range c.Tasks {
		for _, g := range t.GPUs {
			if g != task.UnknownGPU {
				all = append(all, g)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (c Container) taskIDs() []string {
	ids := make([]string, 0, len(c.Tasks))
	for _, t := range c.Tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// planner holds what one call of Make works out.
type planner struct {
	in    Input
	gpus  map[string]GPU
	queue []Container // those with unfinished tasks that can be held, in order
	waits map[string]Wait
	why   map[string]string // for those that may run: the reason
	taken map[string][]string
}

// Make makes a plan. It does not change its input, and depends on nothing else.
func Make(in Input) Plan {
	p := &planner{
		in:    in,
		gpus:  map[string]GPU{},
		waits: map[string]Wait{},
		why:   map[string]string{},
		taken: map[string][]string{},
	}
	for _, g := range in.GPUs {
		p.gpus[g.UUID] = g
	}
	for _, c := range in.Containers {
		if c.Controllable() && len(c.Tasks) > 0 {
			c.Tasks = policy.Sort(in.Order, c.Tasks)
			p.queue = append(p.queue, c)
		}
	}
	slices.SortStableFunc(p.queue, func(a, b Container) int {
		return cmp.Or(in.Order.Compare(a.Tasks[0], b.Tasks[0]), strings.Compare(a.ID, b.ID))
	})
	p.ask()
	p.relieve()
	p.arbitrate()
	return Plan{Actions: p.actions(), Admitted: p.admitted(), Waits: p.waits}
}

// ask keeps the containers that somebody wants paused, with or without tasks.
func (p *planner) ask() {
	for _, c := range p.in.Containers {
		if c.Asked != "" && c.Controllable() {
			p.waits[c.ID] = Wait{Asked, c.Asked}
		}
	}
}

// arbitrate lets the rule decide, container by container in one order for all
// GPUs. A container on several GPUs runs only if each of them takes it. Since
// the order is the same everywhere, the first container that may run at all
// runs: nobody waits in a circle.
func (p *planner) arbitrate() {
	gates := map[string]Gate{}
	for _, g := range p.in.GPUs {
		if g.Arbitrated {
			gates[g.UUID] = p.in.Rule.Open(g)
		}
	}
	for _, c := range p.queue {
		if _, stopped := p.waits[c.ID]; stopped {
			continue // asked for or relieved: it takes nobody's turn
		}
		on := c.gpus()
		ok, reason := true, ""
		for _, g := range on {
			if gate, arbitrated := gates[g]; arbitrated && ok {
				ok, reason = gate.May(c)
				reason += " on " + g
			}
		}
		for _, g := range on {
			gate, arbitrated := gates[g]
			switch {
			case !arbitrated:
			case ok:
				gate.Take(c)
				p.taken[g] = append(p.taken[g], c.ID)
			default:
				gate.Pass(c)
			}
		}
		if ok {
			p.why[c.ID] = reason
		} else {
			p.waits[c.ID] = Wait{Arbitrate, reason}
		}
	}
}

// admitted keeps the order of admission: those of before that still run, then
// the new ones.
func (p *planner) admitted() map[string][]string {
	all := map[string][]string{}
	for g, now := range p.taken {
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
		case stop && c.Standing == Runs:
			add(c, Pause, w.Cause, w.Reason)
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
	case p.why[c.ID] != "":
		return p.why[c.ID]
	default:
		return fmt.Sprintf("the reason for its hold (%s) is over", c.Cause)
	}
}
