package core

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/gang"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// gangOf is a container on several GPUs, or the containers of one gang (laxity.gang): it is off or
// on on all of its GPUs, as the plan of its home says. On each GPU it is one tenant, with a slice
// there. A change concerns all of it, so one is under way at a time. nil is no such thing.
type gangOf struct {
	home gang.Home
	// processes are those on each GPU now. former are earlier ones since something was changed: they
	// are restored, too.
	processes map[string][]Process
	former    []Process
	faces     map[string]*tenant // by GPU
}

// faceID names the part of a gang on one GPU.
func faceID(id, gpu string) string { return id + " on " + gpu }

// part is a container as a part of a gang.
type part struct {
	task.Container
	plan  plan.Container
	users []user
}

// named is what a gang is called: by the container's id and name if it is one container.
type named struct{ id, name string }

// unitOf names what the container is ordered with: the gang of its label, else itself.
func unitOf(c task.Container) named {
	if id := c.GangID(); id != "" {
		return named{"gang " + id, "the gang " + c.Spec.Gang}
	}
	return named{c.ID, c.Name}
}

// gangTenants adds a gang to the tenants of each GPU.
func (k *Core) gangTenants(all map[string][]ladder.Tenant, is named, parts []part, order policy.Order) {
	v := k.division
	g := v.gangs[is.id]
	if g == nil {
		g = &gangOf{faces: map[string]*tenant{}}
		v.gangs[is.id] = g
	}
	on := map[string][]part{} // with the users there
	for _, p := range parts {
		here := map[string][]user{}
		for _, u := range p.users {
			for _, gpu := range u.gpus {
				here[gpu] = append(here[gpu], u)
			}
		}
		for gpu, users := range here {
			p.users = users
			on[gpu] = append(on[gpu], p)
		}
	}
	g.look(k, on)
	ranks, off := map[string]int{}, false
	for gpu, here := range on {
		f := g.face(v, is, gpu, k.now)
		f.members = f.members[:0]
		for _, p := range here {
			f.members = append(f.members, member{p.ID, p.Name})
		}
		ranks[gpu] = v.gpu(gpu).plan.Standings[faceID(is.id, gpu)].Rank
		off = off || f.stands.Off
	}
	g.home = g.home.Next(k.now, ranks, off)
	for gpu, f := range g.faces {
		f.bound = gpu != g.home.GPU
	}
	expedited := slices.ContainsFunc(parts, func(p part) bool { return p.plan.Expedite != "" })
	for gpu, here := range on {
		p, u := last(here, order)
		t := k.tenant(p.Container, p.plan, u, false)
		t.ID, t.Container, t.Name, t.Labelled = faceID(is.id, gpu), is.id, is.name, true
		t.Job.Expedited = t.Job.Expedited || expedited
		if t.Share = 0; p.Spec.Share > 0 { // each container is sure of its own
			t.Share = min(1, p.Spec.Share*float64(len(here)))
		}
		k.usage.reportAll(&t, here, gpu)
		g.home.Bind(&t, gpu)
		f := g.faces[gpu]
		if f.gone = f.gone && len(g.processes[gpu]) == 0; f.doubtful {
			t.Labelled = false
		} else if len(g.processes[gpu]) == 0 { // they have ended
			t.Labelled, t.Wants = false, ladder.No
		}
		t.Stands, t.Later = f.stands, !f.due(k.now)
		all[gpu] = append(all[gpu], t)
	}
}

// regroups reports whether a container's processes are ordered with others than before, while
// something of them is not their own yet. That is restored first. unit is what they are ordered as
// one with; empty: each by itself.
func (v *division) regroups(container, unit string) bool {
	for _, t := range v.tenants {
		was := ""
		if t.gang != nil {
			was = t.container
		}
		if was != unit && t.covers(container) && t.changed() {
			return true
		}
	}
	return false
}

// last is the part of a gang on one GPU that comes last, by its first task: it has the gang's place
// there, since the others wait for it. One without a task, or that is paused, has no place.
func last(here []part, order policy.Order) (part, user) {
	worst, by := here[0], foremost(here[0].plan, here[0].users, order)
	for _, p := range here[1:] {
		u := foremost(p.plan, p.users, order)
		if u.task == nil || p.plan.Standing != plan.Runs {
			continue
		}
		if by.task == nil || worst.plan.Standing != plan.Runs || order.Compare(p.plan.JobOf(*u.task), worst.plan.JobOf(*by.task)) > 0 {
			worst, by = p, u
		}
	}
	return worst, by
}

// foremost is the process of the container whose task comes first.
func foremost(p plan.Container, here []user, order policy.Order) user {
	return slices.MinFunc(here, func(a, b user) int {
		switch {
		case a.task == nil && b.task == nil:
			return 0
		case a.task == nil:
			return 1
		case b.task == nil:
			return -1
		}
		return order.Compare(p.JobOf(*a.task), p.JobOf(*b.task))
	})
}

// look records the gang's processes on each GPU.
func (g *gangOf) look(k *Core, on map[string][]part) {
	before := g.all()
	g.processes = map[string][]Process{}
	for gpu, here := range on {
		for _, p := range here {
			for _, u := range p.users {
				if start, lives := k.facts.starts[u.pid]; lives {
					g.processes[gpu] = append(g.processes[gpu], Process{PID: u.pid, Start: start})
				}
			}
		}
	}
	if !g.acts() {
		g.former = nil
		return
	}
	now := g.present()
	g.former = slices.DeleteFunc(before, func(p Process) bool { return slices.Contains(now, p) })
}

// face is the part of the gang on one GPU.
func (g *gangOf) face(v *division, is named, gpu string, now time.Time) *tenant {
	f := g.faces[gpu]
	if f == nil {
		f = &tenant{gang: g, gpu: gpu, container: is.id, name: is.name}
		if other := g.any(); other != nil { // it is on one more GPU
			f.stands.Off, f.stands.Until, f.doubtful, f.flying, f.retry = other.stands.Off, other.stands.Until, other.doubtful, other.flying, other.retry
		}
		g.faces[gpu] = f
	}
	v.tenants[faceID(is.id, gpu)] = f
	if f.stands.Off && !now.Before(f.stands.Until) { // the lease has ended
		f.stands.Off, f.stands.Until = false, time.Time{}
	}
	return f
}

func (g *gangOf) any() *tenant {
	for _, gpu := range slices.Sorted(maps.Keys(g.faces)) {
		return g.faces[gpu]
	}
	return nil
}

// present returns its present processes, each once.
func (g *gangOf) present() (all []Process) {
	for _, gpu := range slices.Sorted(maps.Keys(g.processes)) {
		for _, p := range g.processes[gpu] {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// all returns its present and former processes.
func (g *gangOf) all() []Process { return append(g.present(), g.former...) }

// acts reports whether anything of it is, or may be, not its own.
func (g *gangOf) acts() bool {
	for _, f := range g.faces {
		if f.changed() || f.stands.Off {
			return true
		}
	}
	return false
}

// kept reports whether it is still known on a GPU. Nothing is kept for a GPU on which it is not.
func (g *gangOf) kept(tenants map[string]*tenant) bool {
	maps.DeleteFunc(g.faces, func(gpu string, f *tenant) bool { return tenants[faceID(f.container, gpu)] != f })
	return len(g.faces) > 0
}

// change makes c, a change of the face t, a change of the whole gang, and marks it as under way.
func (g *gangOf) change(t *tenant, c *Change) {
	if t.bound && !t.doubtful { // its home decides
		c.Stands.Off, c.Stands.Until = t.stands.Off, t.stands.Until
	}
	c.Gang = &Gang{Processes: g.all(), GPUs: slices.Sorted(maps.Keys(g.processes)), Slices: map[string]time.Duration{}}
	for gpu, f := range g.faces {
		f.flying = true
		slice := f.stands.Slice
		if f == t {
			slice = c.Stands.Slice
		}
		if slice != 0 && !t.doubtful {
			c.Gang.Slices[gpu] = gang.Slice(slice, len(g.processes[gpu]))
		}
	}
}

// land records that no change is under way any more.
func (g *gangOf) land() {
	if g == nil {
		return
	}
	for _, f := range g.faces {
		f.flying = false
	}
}

// changed records the state of the whole gang after a change of the face t.
func (g *gangOf) changed(t *tenant, c call, r ChangeResult) {
	if g == nil {
		return
	}
	all := c.Kind == Restore && len(c.Gang.Slices) == 0 && !c.Stands.Off
	for _, f := range g.faces {
		f.stands.Off, f.stands.Until = t.stands.Off, t.stands.Until
		f.doubtful, f.retry, f.left, f.missing, f.gone = t.doubtful, t.retry, t.left, t.missing, t.gone
		if all && r.Err == nil {
			f.stands.Slice, f.partly = 0, false
		}
	}
}

// await makes this plan leave gangs alone while another GPU's plan changes them.
func (v *division) await(list []ladder.Tenant) []ladder.Tenant {
	for i := range list {
		if t := v.tenants[list[i].ID]; t != nil && t.gang != nil && t.flying {
			list[i].Later = true
		}
	}
	return list
}
