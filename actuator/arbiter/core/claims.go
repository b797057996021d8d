package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// risk is the part of a server's requests that may be late.
const risk = 0.001

// How long it takes until another process computes: channels off (p99 on an H200), or a pause after
// the wait for preemption.
const (
	blockingOff   = 4 * time.Millisecond
	blockingPause = 270 * time.Millisecond
)

// occupant is a container with processes or tasks on a GPU.
type occupant struct {
	c     task.Container
	p     plan.Container
	users []user // those on the GPU
}

// deadline reports whether its deadline counts.
func (o occupant) deadline() bool { return o.c.Spec.Deadline > 0 && !o.p.Batch }

// server reports whether its tasks are requests with a deadline that counts.
func (o occupant) server() bool { return o.p.Server && o.c.Spec.Deadline > 0 }

// occupants lists who is on each GPU.
func (k *Core) occupants(in plan.Input) map[string][]occupant {
	on := map[string][]occupant{}
	for i, c := range k.facts.snap.Containers {
		p := in.Containers[i]
		for _, u := range usersOf(k.facts.snap, c, p.Tasks) {
			for _, g := range u.gpus {
				if n := len(on[g]); n == 0 || on[g][n-1].c.ID != c.ID {
					on[g] = append(on[g], occupant{c: c, p: p})
				}
				o := &on[g][len(on[g])-1]
				o.users = append(o.users, u)
			}
		}
	}
	return on
}

// claimant is a task, or a process of a server, with a deadline on a GPU.
type claimant struct {
	key      claimKey
	id, name string // of the container
	start    time.Time
	known    bool // its need is known
	demand   admission.Demand
	late     bool // reported as late: it is not just starting
}

// claimants lists those on a GPU whose deadlines count, the earliest start first.
func (k *Core) claimants(on []occupant, gpu string) []claimant {
	var all []claimant
	for _, o := range on {
		switch {
		case !o.deadline() && !slices.ContainsFunc(o.p.Tasks, task.Task.HasDeadline), o.p.Batch:
		case o.server():
			all = append(all, k.serverClaims(o, gpu)...)
		default:
			for _, t := range o.p.Tasks {
				if t.HasDeadline() && slices.Contains(t.GPUs, gpu) {
					all = append(all, k.taskClaim(o, t, gpu))
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b claimant) int {
		return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.key.id, b.key.id))
	})
	return all
}

func (k *Core) taskClaim(o occupant, t task.Task, gpu string) claimant {
	c, p := o.c, o.p
	is := claimant{key: claimKey{t.ID, gpu, c.Spec.Deadline}, id: c.ID, name: c.Name, start: t.Start.Time}
	left := t.Deadline.Sub(k.now)
	e, known := p.Estimates[t.ID]
	// A task that is first seen after half of its time, after a restart for instance, is not just
	// starting.
	is.late, is.known = left < t.Deadline.Sub(t.Start.Time)/2, known && left > 0
	is.demand = admission.Demand{Name: c.Name, Need: onGPU(e.Remaining, p, gpu), Alone: e.Remaining, Beside: k.history.Beside(kindOfContainer(c)), Within: left}
	return is
}

// onGPU is the part of a task's remaining time that it computes on the GPU, if known.
func onGPU(remaining time.Duration, p plan.Container, gpu string) time.Duration {
	part, known := p.Mean[gpu]
	if !known {
		if part, known = p.Demand[gpu]; !known {
			part = 1
		}
	}
	return time.Duration(min(part, 1) * float64(remaining))
}

// serverClaims returns the processes of a server. Each counts from its first verdict.
func (k *Core) serverClaims(o occupant, gpu string) (all []claimant) {
	kind := kindOfContainer(o.c)
	need, every, usual, known := k.history.Requests(kind)
	for _, u := range o.users {
		key := claimKey{fmt.Sprintf("%s/%d", o.c.ID, u.pid), gpu, o.c.Spec.Deadline}
		start := k.now
		if v, judged := k.admitted.verdicts[key]; judged {
			start = v.since
		}
		all = append(all, claimant{key: key, id: o.c.ID, name: o.c.Name, start: start, known: known,
			demand: admission.Demand{Name: o.c.Name, Need: need, Beside: k.history.Beside(kind), Within: o.c.Spec.Deadline.Duration(), Server: true, Every: every, Usual: usual}})
	}
	return all
}

func kindOfContainer(c task.Container) estimate.Kind {
	return estimate.Kind{Image: c.Image, CommandID: c.CommandID}
}

// promises is the part of a GPU that deadlines cannot use.
type promises struct {
	part  float64 // of its time
	over  string  // why it is more than 1
	alien int     // processes that we must not act on
}

// promised adds up shares, the batch floor and the use of containers that we must not act on. more
// is the share of a newcomer.
func (k *Core) promised(on []occupant, gpu string, more float64) promises {
	claimed := map[string]float64{}
	out := promises{part: k.config.BatchFloor + more}
	if more > 0 {
		claimed[""] = more
	}
	for _, o := range on {
		switch {
		case !o.p.Managed || o.p.Never:
			out.alien++
			if !o.deadline() { // otherwise its deadline counts
				out.part += o.c.SMUtilization[gpu]
			}
		case o.c.Spec.Share > 0:
			claimed[o.c.ID] = o.c.Spec.Share
			if !o.deadline() {
				out.part += o.c.Spec.Share
			}
		}
	}
	if len(claimed) > 0 {
		_, _, out.over = ladder.Cut(claimed, k.config.BatchFloor)
	}
	return out
}

// gpuOf is a GPU with those on it whose needs are known.
func (k *Core) gpuOf(on []occupant, gpu string, all []claimant) admission.GPU {
	p := k.promised(on, gpu, 0)
	g := admission.GPU{Promised: p.part, Blocking: blockingPause, Round: k.round(on), Switch: ladder.SwitchCost, Risk: risk, Slice: ladder.ServerSlice}
	if k.divides() {
		g.Blocking = blockingOff
	}
	if p.alien > 0 || !k.divides() {
		g.Slice = func(int, time.Duration) time.Duration { return ladder.DefaultSlice }
	}
	for _, c := range all {
		if c.known {
			g.Admitted = append(g.Admitted, c.demand)
		}
	}
	return g
}

// round is how long all processes that are no servers compute in one round, each for its slice.
func (k *Core) round(on []occupant) time.Duration {
	all, shortest := time.Duration(0), time.Duration(0)
	for _, o := range on {
		for _, u := range o.users {
			switch d := o.c.Spec.Deadline.Duration(); {
			case o.server() && (shortest == 0 || d < shortest):
				shortest = d
			case !o.server() && u.task != nil:
				all += ladder.DefaultSlice + ladder.SwitchCost
			}
		}
	}
	if k.divides() && shortest > 0 {
		return min(all, ladder.Budget(shortest))
	}
	return all
}
