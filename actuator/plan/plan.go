// Package plan turns an order of tasks, the capacity of the GPUs and the present facts into
// actions: pause this container, release that one. Each action has its reason and the conditions
// that must still hold when it is carried out.
//
// It decides which containers may compute and which is next in the queue. How the others are held
// is up to the enforcer.
//
// Pure: it imports the standard library, exporter/task and actuator/policy only. A plan that was
// carried out and is made again is empty.
package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// Standing says whether a container runs, and if not, who stopped it.
type Standing string

// The standings.
const (
	Runs     Standing = "runs"
	Ours     Standing = "ours"     // we keep it from computing
	Somebody Standing = "somebody" // it is paused, but not by us
)

// Cause is why a container is held. Each cause ends in its own way.
type Cause string

// The causes.
const (
	Arbitrate Cause = "arbitrate" // the GPU is contended and it is another container's turn
	Relieve   Cause = "relieve"   // the GPU's memory is nearly full
	Asked     Cause = "pause"     // an alert asked for this container to be paused
	OfMemory  Cause = "memory"    // its GPU memory is needed, or there is none for it
)

// GPU is what a plan depends on of one GPU.
type GPU struct {
	UUID string
	// Utilization is 0–1, NaN where not known.
	Utilization float64
	// Memory is the share of the memory in use, 0–1.
	Memory float64
	// Room is how many bytes the containers that are planned for can hold together; 0: memory is not
	// planned.
	Room uint64
	// Fresh: utilisation and memory were sampled late enough to show the effect of the last action
	// on this GPU.
	Fresh bool
	// Arbitrated: the rule decides which containers run. Otherwise all run.
	Arbitrated bool
	// Greedy: containers that are not ours to hold take what one that is held leaves, or may: they use a
	// good part of the GPU.
	Greedy bool
	// Relieve: memory pressure was reported and may not be over.
	Relieve bool
	// Admitted lists the ids of the containers that the last plan admitted here, in the order of
	// admission.
	Admitted []string
}

// Estimate is what history says of one task if it runs undisturbed.
type Estimate struct {
	// Remaining is how long it still computes, estimated high (a high quantile). Least is the same,
	// estimated low.
	Remaining, Least time.Duration
	// Total is how long it computes in all, estimated high.
	Total time.Duration
}

// Container is one container, with what speaks for and against holding it.
type Container struct {
	ID, Name string
	// Tasks are its unfinished tasks.
	Tasks    []task.Task
	Standing Standing
	// Cause of our hold; empty unless Standing is Ours.
	Cause Cause
	// Since is when we began to hold it, or when it was last released. Zero: unknown, long ago.
	Since time.Time
	// Managed: it carries one of Laxity's labels. Never: it must not be held.
	Managed, Never bool
	// Exempt says why it must not be held while its present tasks last (a person unpaused it, or it
	// was held for as long as is allowed); else empty.
	Exempt string
	// Asked says why a person or an alert wants this container paused; else empty.
	Asked string

	// Batch: its class is batch.
	Batch bool
	// Server: its tasks are requests (laxity.release=busy) with a deadline. They are not held for
	// others, and others are not held for them: see README.md.
	Server bool
	// NoMemory: none of its tasks uses GPU memory yet. It is not held for others, and others are not
	// held for it.
	NoMemory bool
	// Expedite says why it goes to the front; else empty.
	Expedite string
	// Estimates are by task id; a task without one has no history.
	Estimates map[string]Estimate
	// Demand is the share of each GPU (by UUID) that it uses at its busiest when it runs alone, 0–1.
	// Mean is the same as a mean over its whole length. A GPU is absent if that was not learned yet.
	Demand, Mean map[string]float64
	Memory       Memory
}

// Input is everything that a plan depends on.
type Input struct {
	Now        time.Time
	GPUs       []GPU
	Containers []Container
	Order      policy.Order
	Rule       Rule
	// Preemption says when a running container is stopped for one that comes before it in order.
	// nil: always and at once, as P3 does.
	Preemption *Preemption
	// Beside says why containers run beside those whose turn it is, by id: see Floor.
	Beside map[string]string
}

// Kind of an action.
type Kind string

// The kinds of action.
const (
	Pause   Kind = "pause"
	Unpause Kind = "unpause"
	SwapOut Kind = "swap-out" // off its GPUs, and frozen
	SwapIn  Kind = "swap-in"
)

// Action is one thing to do to one container.
type Action struct {
	Kind        Kind
	ContainerID string
	Container   string
	Cause       Cause
	Reason      string
	GPUs        []string // on which it has unfinished tasks, sorted
	// Preconditions, which the caller checks again before the action. The container must have this
	// Standing, and for a Pause all these tasks (ids) must be unfinished.
	Standing Standing
	Tasks    []string
}

// Plan is what to do, and what to pass in again as GPU.Admitted.
type Plan struct {
	Actions []Action
	// Admitted are the containers that may compute on each arbitrated GPU, by UUID, in the order of
	// admission.
	Admitted map[string][]string
	// Beside are the containers that may compute there as well, and take no turn.
	Beside map[string][]string
	// Queue are the containers that wait for each arbitrated GPU, by UUID, the next one first. An
	// enforcer may prepare it.
	Queue map[string][]string
	// Waits says why each container must not run now, by id, whether it is stopped already or not.
	Waits map[string]Wait
	// Preempted is the container that this plan stops for another one; empty if none.
	Preempted string
	// Barred says why containers must not begin to hold GPU memory now, by id.
	Barred map[string]string
}

// May returns the containers that may compute on each arbitrated GPU, by UUID: those whose turn it
// is, and those beside them.
func (p Plan) May() map[string][]string {
	all := maps.Clone(p.Admitted)
	for g, ids := range p.Beside {
		all[g] = slices.Concat(all[g], ids)
	}
	return all
}

// Wait is the reason why a container must not run now.
type Wait struct {
	Cause  Cause
	Reason string
}

// Controllable reports whether the planner may hold the container at all.
func (c Container) Controllable() bool {
	return c.Managed && !c.Never && c.Exempt == "" && c.Standing != Somebody
}

// Uses reports whether the container has a task on the GPU.
func (c Container) Uses(gpu string) bool { return slices.Contains(c.gpus(), gpu) }

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

// Job is the first of the container's tasks in order, with what is left to do for all of them,
// since they share the GPU. The container must have tasks.
func (c Container) Job(o policy.Order) policy.Job {
	var left, least time.Duration
	known := true
	for _, t := range c.Tasks {
		e, ok := c.Estimates[t.ID]
		known = known && ok
		left, least = left+e.Remaining, least+e.Least
	}
	var first policy.Job
	for i, t := range c.Tasks {
		j := c.JobOf(t)
		j.Remaining, j.Least, j.Known = left, least, known
		if i == 0 || o.Compare(j, first) < 0 {
			first = j
		}
	}
	return first
}

// JobOf is one of the container's tasks, with what is left to do for it.
func (c Container) JobOf(t task.Task) policy.Job {
	e, known := c.Estimates[t.ID]
	return policy.Job{Task: t, Batch: c.Batch, Remaining: e.Remaining, Least: e.Least, Known: known, Request: c.Server, Expedited: c.Expedite != ""}
}

// waited is how long we have kept the container from computing without a break.
func (c Container) waited(now time.Time) time.Duration {
	if c.Standing != Ours || c.Cause != Arbitrate || c.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(c.Since))
}

// brief reports whether all of the container's work takes no longer than d.
func (c Container) brief(d time.Duration) bool {
	var total time.Duration
	for _, t := range c.Tasks {
		e, ok := c.Estimates[t.ID]
		if !ok {
			return false
		}
		total += e.Total
	}
	return total <= d
}
