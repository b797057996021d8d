package core

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// tenant is a process on a GPU that may be acted on, or the part of a gang that is on one GPU.
type tenant struct {
	process Process
	// gang is all of it; nil: the tenant is a process. bound: another GPU's plan takes it off and
	// on. members are the gang's containers on this GPU.
	gang    *gangOf
	bound   bool
	members []member
	gpu     string
	// container and name are those of the container, or of the gang.
	container, name string
	stands          ladder.Standing
	// gone: it has ended or is about to, though the snapshot may still list it.
	gone bool
	// doubtful: a call failed, so its state is unknown. It is restored first.
	doubtful bool
	// partly: only some of its channels may have the slice that was last set, beside stands.Slice.
	partly bool
	// flying: a change of it is under way.
	flying bool
	// retry is when to try again after a failed call. Until then it is left alone; left says why.
	retry backoff
	left  string
	// missing is since when its channels are not found; zero: they are.
	missing time.Time
	// inspect is when to inspect it for new contexts.
	inspect backoff
}

// changed reports whether anything is, or may be, not its own.
func (t *tenant) changed() bool {
	return t.flying || t.doubtful || t.partly || t.stands.Off && !t.bound || t.stands.Slice != 0
}

// acts reports whether anything of it, or of its gang, is, or may be, not its own.
func (t *tenant) acts() bool { return t.changed() || t.gang != nil && t.gang.acts() }

// member is a container of a gang.
type member struct{ id, name string }

// containers are those on this GPU.
func (t *tenant) containers() []member {
	if t.gang == nil {
		return []member{{t.container, t.name}}
	}
	return t.members
}

// has reports whether it is of this container. covers is the same of the whole gang.
func (t *tenant) has(container string) bool {
	return slices.ContainsFunc(t.containers(), func(m member) bool { return m.id == container })
}

func (t *tenant) covers(container string) bool {
	if t.gang == nil {
		return t.container == container
	}
	for _, f := range t.gang.faces {
		if f.has(container) {
			return true
		}
	}
	return false
}

// due reports whether it may be acted on again.
func (t *tenant) due(now time.Time) bool { return !now.Before(t.retry.next) }

// tenantsOf lists the containers' processes on each GPU. Of processes outside of containers nobody
// knows the GPU, and their channels are nobody's to touch.
func (k *Core) tenantsOf(in plan.Input) map[string][]ladder.Tenant {
	all := map[string][]ladder.Tenant{}
	s, v := k.facts.snap, k.division
	var units []*unit
	gangs := map[string]*unit{}
	for i, c := range s.Containers {
		p := in.Containers[i]
		users := usersOf(s, c, p.Tasks)
		is, several := unitOf(c), severalGPUs(users)
		as := ""
		if several || c.Spec.Gang != "" {
			as = is.id
		}
		cause, _ := k.aside(c)
		ours := p.Managed && !p.Never && p.Exempt == "" && (as == "" || k.o.AsOne) && cause == "" &&
			!v.regroups(c.ID, as) && !k.memory.swaps.isOut(c.ID) && !k.now.Before(v.aside[c.ID])
		if len(users) == 0 {
			continue
		}
		u := gangs[as]
		if as == "" || u == nil {
			u = &unit{named: is, asOne: as != "", ours: true}
			units, gangs[as] = append(units, u), u
		}
		u.ours = u.ours && ours // one that must be left as it is leaves all of them so
		u.parts = append(u.parts, part{c, p, users})
	}
	for _, u := range units {
		if u.ours && u.asOne {
			k.gangTenants(all, u.named, u.parts, in.Order)
			continue
		}
		for _, p := range u.parts {
			k.processTenants(all, p, u.ours)
		}
	}
	return all
}

// strangers are the containers of those processes that must not be acted on, by id.
func strangers(tenants []ladder.Tenant) (ids []string) {
	for _, t := range tenants {
		if !t.Labelled && !slices.Contains(ids, t.Container) {
			ids = append(ids, t.Container)
		}
	}
	return ids
}

// unit is what has one place in the order: a container, or a gang.
type unit struct {
	named
	parts []part
	// asOne: it goes off and on as one. ours: it may be acted on.
	asOne, ours bool
}

// processTenants adds each process of a container to the tenants of its GPUs.
func (k *Core) processTenants(all map[string][]ladder.Tenant, p part, ours bool) {
	for _, u := range p.users {
		for _, gpu := range u.gpus {
			t := k.tenant(p.Container, p.plan, u, ours)
			k.usage.report(&t, gpu, k.now)
			all[gpu] = append(all[gpu], t)
		}
	}
}

// user is a container's process that uses GPUs.
type user struct {
	pid  int
	gpus []string
	task *task.Task // its unfinished task; nil: none
}

// usersOf returns the container's processes that use CUDA, including those whose task has just
// begun.
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

// severalGPUs reports whether a container's processes use more than one GPU: they wait for each
// other, so their GPUs would need the same order.
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

// tenant is one process as input of the plan. Of a process that we must not act on, the plan knows
// only that it exists.
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
	if p.Standing == plan.Ours && p.Asked != "" { // its host side stands still: so do the kernels that it has launched
		t.Asked = p.Asked
	}
	if p.Expedite != "" {
		t.Job.Expedited = true
	}
	if !ours {
		if was := k.division.tenants[t.ID]; was != nil && !was.changed() {
			was.left, was.missing = "", time.Time{} // it was left for now: now it is left for another reason
		}
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

// known returns what is known of a process that may be acted on; nil if it has ended.
func (k *Core) known(c task.Container, u user) *tenant {
	id := strconv.Itoa(u.pid)
	t := k.division.tenants[id]
	if t == nil || !k.facts.arrived.IsZero() { // check with each snapshot: the PID may have been reused
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
	if t.stands.Off && !k.now.Before(t.stands.Until) { // the lease has ended
		t.stands.Off, t.stands.Until = false, time.Time{}
	}
	if !t.changed() {
		t.gpu = u.gpus[0]
	}
	return t
}
