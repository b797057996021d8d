package core

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
)

// division is how slices and channels off and on divide the time of GPUs. On a divided GPU no
// container is paused for others. nil divides nothing.
type division struct {
	gpus map[string]*divided
	// tenants are by PID, which is ladder.Tenant.ID: those in the snapshot, and those of which
	// something is not their own yet.
	tenants map[string]*tenant
	// gangs are the gangs and the containers on several GPUs that may be acted on, by id.
	gangs map[string]*gangOf
	// aside are containers, by id, that are left alone until then, because a swap is about to begin.
	aside map[string]time.Time
}

// divided is what is known of one GPU's division.
type divided struct {
	state ladder.State
	plan  ladder.Plan
	// until is how long the order stands after the last request for it.
	until time.Time
	// calls are the changes under way. There is no new plan until they end.
	calls []call
}

// call is one change under way.
type call struct {
	tenant *tenant
	Change
}

func (d *divided) busy() bool { return len(d.calls) > 0 }

func newDivision() *division {
	return &division{gpus: map[string]*divided{}, tenants: map[string]*tenant{}, gangs: map[string]*gangOf{}, aside: map[string]time.Time{}}
}

// divides reports whether channels divide the time of GPUs: then arbitration pauses no container.
// The paper's policy pauses.
func (k *Core) divides() bool { return k.division != nil && !k.config.Profile().Pauses }

// lingers is how long an order stands after contention was last seen. Servers that compute from
// time to time contend from time to time: otherwise their slices would be set and restored all the
// time, and each first request would find none. Slices cost nothing while there is no contention.
const lingers = 30 * time.Second

// divide makes a plan for each GPU and starts its changes.
func (k *Core) divide(in plan.Input) {
	v, now := k.division, k.now
	if v == nil {
		return
	}
	maps.DeleteFunc(v.aside, func(_ string, until time.Time) bool { return !now.Before(until) })
	tenants := k.tenantsOf(in)
	for _, g := range k.facts.snap.GPUs {
		v.gpu(g.UUID)
	}
	acts := k.divides() && k.handsOff() == ""
	orders := acts && k.config.Arbitrate != config.Never
	for _, gpu := range slices.Sorted(maps.Keys(v.gpus)) {
		d := v.gpus[gpu]
		if d.busy() {
			continue
		}
		d.plan = ladder.Plan{}
		if k.arbitrated(gpu) {
			d.until = now.Add(lingers)
		}
		planned := tenants[gpu]
		if !orders || !now.Before(d.until) { // without an order only those stay off of whom somebody asks that
			planned = asked(planned)
		}
		if acts && len(planned) > 0 {
			d.plan = ladder.Make(ladder.Input{
				Now: now, Order: in.Order, Floor: k.config.BatchFloor, Tenants: v.await(planned),
				Limits: ladder.Limits{MaxHold: k.config.MaxHold}, Switches: k.usage.switchesOf(gpu),
				Greedy: k.usage.judge(gpu).Greedy(strangers(tenants[gpu])),
			}, d.state)
		}
		d.state = d.plan.State
		if d.plan.Report != "" {
			k.decideOnce("order/"+gpu, decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: d.plan.Report, GPUs: []string{gpu}})
		}
		changes := v.putBack(gpu, d.plan, now)
		for _, c := range d.plan.Changes {
			changes = append(changes, wanted{c.Tenant, kindOf(c), c.Standing})
		}
		if len(changes) == 0 {
			changes = v.inspectAgain(gpu, now)
		}
		k.change(gpu, changes)
	}
	v.forget(tenants)
	k.out.Wake = v.next(now)
}

// asked are the processes that somebody asks to be off.
func asked(tenants []ladder.Tenant) (all []ladder.Tenant) {
	for _, t := range tenants {
		if t.Asked != "" {
			all = append(all, t)
		}
	}
	return all
}

// putAllBack restores everything when facts are missing: nobody can say who comes first.
func (k *Core) putAllBack() {
	v := k.division
	if v == nil {
		return
	}
	for _, gpu := range slices.Sorted(maps.Keys(v.gpus)) {
		if d := v.gpus[gpu]; !d.busy() {
			d.state, d.plan = ladder.State{}, ladder.Plan{}
			k.change(gpu, v.putBack(gpu, d.plan, k.now))
		}
	}
}

// putBack returns the changes that restore processes to which the plan gives no standing.
func (v *division) putBack(gpu string, p ladder.Plan, now time.Time) (changes []wanted) {
	for _, id := range slices.Sorted(maps.Keys(v.tenants)) {
		t := v.tenants[id]
		if _, stands := p.Standings[id]; !stands && t.gpu == gpu && t.changed() && !t.flying && t.due(now) {
			changes = append(changes, wanted{tenant: id, kind: Restore})
		}
	}
	return changes
}

// inspectAgain inspects the process on the GPU whose inspection is due first, if any: it may have
// made contexts since, or changed its slice.
func (v *division) inspectAgain(gpu string, now time.Time) []wanted {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(v.tenants)) {
		t := v.tenants[id]
		if t.gpu == gpu && t.changed() && !t.flying && !t.doubtful && !t.gone && t.due(now) && !now.Before(t.inspect.next) &&
			(first == "" || t.inspect.next.Before(v.tenants[first].inspect.next)) {
			first = id
		}
	}
	if first == "" {
		return nil
	}
	return []wanted{{tenant: first, kind: InspectChannels}}
}

// forget drops processes that are no longer listed, once everything is their own.
func (v *division) forget(listed map[string][]ladder.Tenant) {
	present := map[string]bool{}
	for _, tenants := range listed {
		for _, t := range tenants {
			present[t.ID] = true
		}
	}
	maps.DeleteFunc(v.tenants, func(id string, t *tenant) bool { return !present[id] && !t.changed() })
	maps.DeleteFunc(v.gangs, func(_ string, g *gangOf) bool { return !g.kept(v.tenants) })
}

func (v *division) gpu(uuid string) *divided {
	if v.gpus[uuid] == nil {
		v.gpus[uuid] = &divided{}
	}
	return v.gpus[uuid]
}

// Dividing reports whether changes are under way on any GPU.
func (k *Core) Dividing() bool {
	if k.division == nil {
		return false
	}
	for _, d := range k.division.gpus {
		if d.busy() {
			return true
		}
	}
	return false
}

// next is when to plan again if nothing happens; zero: no need. The end of changes under way is an
// event of its own.
func (v *division) next(now time.Time) (again time.Time) {
	by := func(t time.Time) {
		if !t.IsZero() && (again.IsZero() || t.Before(again)) {
			again = t
		}
	}
	for _, d := range v.gpus {
		if !d.busy() {
			by(d.plan.Again)
		}
	}
	for _, t := range v.tenants {
		switch {
		case !t.due(now):
			by(t.retry.next)
		case t.changed() && !v.gpu(t.gpu).busy():
			by(t.inspect.next)
		}
	}
	return again
}

// setAside leaves a container alone for a moment, and reports whether everything is its own
// already.
func (v *division) setAside(container string, now time.Time) bool {
	if v == nil {
		return true
	}
	v.aside[container] = now.Add(asideFor)
	return !v.acts(container)
}

// asideFor is how long setAside lasts: by then the swap has begun, or asks again.
const asideFor = time.Second

// acts reports whether anything of the container is not its own.
func (v *division) acts(container string) bool {
	if v == nil {
		return false
	}
	for _, t := range v.tenants {
		if t.covers(container) && t.changed() {
			return true
		}
	}
	return false
}
