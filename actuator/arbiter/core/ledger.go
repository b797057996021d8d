package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// keepMemory passes the plan's outcome to ledger and guard.
func (k *Core) keepMemory(in plan.Input, p plan.Plan) {
	if !k.memory.on() {
		return
	}
	k.memory.barred, k.memory.blind = p.Barred, false
	k.memorySince(p)
	f := facts.Facts{Time: k.facts.snap.Time, Share: k.config.MemoryShare, MaxWait: k.config.MemoryWait, Patience: plan.MemoryPatience}
	for _, g := range k.facts.snap.GPUs {
		f.GPUs = append(f.GPUs, facts.GPU{UUID: g.UUID, Total: g.MemoryTotal, Used: g.MemoryUsed})
	}
	ranks := rank(in)
	var targets []Covered
	for i, c := range in.Containers {
		s := k.facts.snap.Containers[i]
		if !c.Managed {
			continue
		}
		f.Containers = append(f.Containers, k.ledgerContainer(c, s, ranks[c.ID], p.Barred[c.ID]))
		if c.Memory.Asked {
			targets = append(targets, Covered{ID: c.ID, PID: s.PID, GPUs: k.gpusSeenBy(s), Limit: s.Spec.GPUMemory})
		}
	}
	k.out.Memory = &Memory{Facts: f, Cover: targets}
}

// gpusSeenBy returns the GPUs that a container can see; all if that is not known.
func (k *Core) gpusSeenBy(c task.Container) []string {
	if len(c.VisibleGPUs) > 0 {
		return c.VisibleGPUs
	}
	var all []string
	for _, g := range k.facts.snap.GPUs {
		all = append(all, g.UUID)
	}
	return all
}

func (k *Core) ledgerContainer(c plan.Container, s task.Container, rank int, barred string) facts.Container {
	never, bounded, because := k.waitsNever(c)
	out := facts.Container{
		ID: c.ID, Name: c.Name, Gang: s.GangID(), Limit: s.Spec.GPUMemory, GPUs: s.VisibleGPUs, Held: s.MemoryUsed, Barred: barred,
		Never: never, Bounded: bounded, Because: because, Stays: c.Standing == plan.Somebody, Rank: rank,
		// A container that waits at an allocation cannot be swapped: its threads must run for that.
		Swappable: c.Memory.Can && c.Memory.Starved == "" && c.Controllable(), Swapped: c.Memory.Out,
	}
	if n := k.need(s); n > 0 && out.Never {
		out.Peak = map[string]uint64{}
		for g := range s.MemoryUsed {
			out.Peak[g] = n
		}
	}
	return out
}

// waitsNever reports whether a container's allocations never wait, whether its own limit denies them
// all the same, and why. Who must not be held must not wait either, but a denial stops nobody: others
// on the card count on that limit. While nothing is held at all, nothing is denied.
func (k *Core) waitsNever(c plan.Container) (never, bounded bool, because string) {
	switch {
	case c.Never:
		return true, false, "it is labelled " + task.LabelPause + "=never"
	case c.Exempt != "":
		return true, k.handsOff() == "", c.Exempt
	default:
		return false, false, ""
	}
}

// rank is each container's place in the order of the policy. Containers without a task come last.
func rank(in plan.Input) map[string]int {
	type place struct {
		id  string
		job policy.Job
	}
	var all []place
	for _, c := range in.Containers {
		if len(c.Tasks) == 0 && c.Memory.Coming != nil {
			c.Tasks = []task.Task{*c.Memory.Coming}
		}
		if len(c.Tasks) > 0 {
			all = append(all, place{c.ID, c.Job(in.Order)})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Or(in.Order.Compare(a.job, b.job), cmp.Compare(a.id, b.id)) })
	ranks := map[string]int{}
	for _, c := range in.Containers {
		ranks[c.ID] = len(all)
	}
	for i, p := range all {
		ranks[p.id] = i
	}
	return ranks
}

// Allocations records the outcome of allocations. The ledger reports them once it has the latest
// Effects.Memory.
func (k *Core) Allocations(now time.Time, events []facts.Event) {
	k.now = now
	for _, e := range events {
		if e.Verdict == allocator.Deny {
			if k.memory.denied[e.Request.Container] == nil {
				k.memory.denied[e.Request.Container] = map[string]time.Time{}
			}
			k.memory.denied[e.Request.Container][e.Request.GPU] = now
		}
		k.count(Allocations, 1, e.Request.GPU, string(e.Verdict), string(e.Why))
		if e.Verdict != allocator.Wait {
			k.count(AllocationWait, e.Waited.Seconds(), string(e.Verdict))
		}
		d := decision.Decision{Kind: decision.Memory, Result: memoryResults[e.Verdict], Reason: e.Reason, Policy: k.config.Policy,
			ContainerID: e.Request.Container, GPUs: []string{e.Request.GPU}, Cause: string(e.Why), Bytes: e.Request.Bytes, Seconds: e.Waited.Seconds()}
		if c, ok := k.facts.snap.FindContainer(e.Request.Container); ok {
			d.Container = c.Name
		}
		k.decideOnce(e.Request.Container+"/memory", d)
	}
	k.reportBarred()
}

// reportBarred records which containers may not begin to hold memory.
func (k *Core) reportBarred() {
	maps.DeleteFunc(k.memory.denied, func(id string, _ map[string]time.Time) bool {
		_, there := k.facts.snap.FindContainer(id)
		return !there
	})
	for id, why := range k.memory.barred {
		if c, ok := k.facts.snap.FindContainer(id); ok && k.memory.waits[id].Request.Container == "" {
			k.decideOnce(id+"/memory", decision.Decision{Kind: decision.Memory, Result: decision.Waiting, Reason: "it may not begin yet: " + why,
				Policy: k.config.Policy, Container: c.Name, ContainerID: id, Cause: string(allocator.Barred)})
		}
	}
}

var memoryResults = map[allocator.Verdict]decision.Result{
	allocator.Grant: decision.Granted, allocator.Wait: decision.Waiting, allocator.Deny: decision.Denied,
}
