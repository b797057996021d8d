package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// tenant is a process on a GPU that may be acted on.
type tenant struct {
	process         Process
	gpu             string
	container, name string
	stands          ladder.Standing
	// gone: it has ended, or is about to, though the snapshot may still list it.
	gone bool
	// doubtful: a call failed, so that it is not known how it stands. It is put back first.
	doubtful bool
	// flying: a change of it is being carried out.
	flying bool
	// retry is when it is tried again after a call failed; until then it is left as it is, and
	// left says why.
	retry backoff
	left  string
	// look is when it is looked at for contexts that it made since.
	look backoff
}

// changed reports whether something is, or may be, not its own.
func (t *tenant) changed() bool {
	return t.flying || t.doubtful || t.stands.Off || t.stands.Slice != 0
}

// due reports whether it may be acted on again.
func (t *tenant) due(now time.Time) bool { return !now.Before(t.retry.next) }

// tenantsOf lists the processes on each GPU.
func (k *Core) tenantsOf(in plan.Input) map[string][]ladder.Tenant {
	all := map[string][]ladder.Tenant{}
	s, v := k.facts.snap, k.division
	v.usage.measure(s)
	for i, c := range s.Containers {
		p := in.Containers[i]
		users := usersOf(s, c, p.Tasks)
		ours := p.Managed && !p.Never && p.Exempt == "" && !severalGPUs(users)
		if k.memory.swaps.isOut(c.ID) || k.now.Before(v.aside[c.ID]) {
			ours = false
		}
		for _, u := range users {
			for _, gpu := range u.gpus {
				t := k.tenant(c, p, u, ours)
				v.usage.report(&t, gpu, len(c.Processes), k.now)
				all[gpu] = append(all[gpu], t)
			}
		}
	}
	for gpu, n := range s.Health.Unattributed {
		for i := range n {
			all[gpu] = append(all[gpu], ladder.Tenant{ID: fmt.Sprintf("host/%d", i), Name: "a process of the host"})
		}
	}
	return all
}

// user is a process of a container that uses GPUs.
type user struct {
	pid  int
	gpus []string
	task *task.Task // its unfinished one; nil: it has none
}

// usersOf are the container's processes that use CUDA, those whose task has just begun among
// them.
func usersOf(s *task.Snapshot, c task.Container, tasks []task.Task) []user {
	var all []user
	for _, p := range c.Processes {
		all = append(all, user{pid: p.PID, gpus: p.GPUs})
	}
	for i, t := range tasks {
		at := slices.IndexFunc(all, func(u user) bool { return u.pid == t.PID })
		if at < 0 {
			at = len(all)
			all = append(all, user{pid: t.PID})
		}
		u := &all[at]
		u.task = &tasks[i]
		if len(u.gpus) == 0 && !slices.Contains(t.GPUs, task.UnknownGPU) {
			u.gpus = t.GPUs
		}
		if len(u.gpus) == 0 && len(s.GPUs) == 1 {
			u.gpus = []string{s.GPUs[0].UUID}
		}
	}
	return all
}

// severalGPUs reports whether a container's processes use more than one: what one of them does
// waits for the others, so that they would have to be in one order.
func severalGPUs(users []user) bool {
	first := ""
	for _, u := range users {
		for _, gpu := range u.gpus {
			if first = cmp.Or(first, gpu); gpu != first {
				return true
			}
		}
	}
	return false
}

// tenant is one process as the plan sees it. Of those that are not ours to act on it only knows
// that they are there.
func (k *Core) tenant(c task.Container, p plan.Container, u user, ours bool) ladder.Tenant {
	t := ladder.Tenant{
		ID: strconv.Itoa(u.pid), Container: c.ID, Name: c.Name, Labelled: ours,
		Server: p.Server && c.Spec.Deadline > 0, Deadline: c.Spec.Deadline.Duration(), Share: c.Spec.Share,
	}
	if u.task != nil {
		t.HasTask, t.Job, t.Wants = true, p.JobOf(*u.task), ladder.Unknown
	} else {
		t.Wants = ladder.No
	}
	if p.Standing != plan.Runs { // paused, or swapped out
		t.Wants = ladder.No
	}
	if p.Expedite != "" {
		t.Job.Expedited = true
	}
	if !ours {
		return t
	}
	switch known := k.known(c, u); {
	case known == nil:
		t.Labelled, t.Wants = false, ladder.No
	case known.doubtful, known.gpu != u.gpus[0]:
		t.Labelled = false
	default:
		t.Stands, t.Later = known.stands, !known.due(k.now)
	}
	return t
}

// known is what is known of a process that may be acted on; nil: it has ended.
func (k *Core) known(c task.Container, u user) *tenant {
	id := strconv.Itoa(u.pid)
	t := k.division.tenants[id]
	if t == nil || !k.facts.arrived.IsZero() { // with each snapshot: its PID may be another one's by now
		start, lives := k.facts.starts[u.pid]
		if !lives {
			return nil
		}
		if p := (Process{PID: u.pid, Start: start}); t == nil || t.process != p {
			t = &tenant{process: p, gpu: u.gpus[0], container: c.ID, name: c.Name}
			k.division.tenants[id] = t
		}
	}
	if t.gone {
		return nil
	}
	if t.stands.Off && !k.now.Before(t.stands.Until) { // the lease has ended, by itself
		t.stands.Off, t.stands.Until = false, time.Time{}
	}
	if !t.changed() {
		t.gpu = u.gpus[0]
	}
	return t
}
