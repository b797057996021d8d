package actuator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// keepMemory tells ledger and guard what the plan came to.
func (l *loop) keepMemory(in plan.Input, p plan.Plan, now time.Time) {
	if !l.mem.on() {
		return
	}
	l.mem.barred, l.mem.blind = p.Barred, false
	l.memorySince(p, now)
	f := ledger.Facts{Time: l.snap.Time, Share: l.Config().MemoryShare, MaxWait: l.Config().MemoryWait, Patience: plan.MemoryPatience}
	for _, g := range l.snap.GPUs {
		f.GPUs = append(f.GPUs, ledger.GPU{UUID: g.UUID, Total: g.MemoryTotal, Used: g.MemoryUsed})
	}
	ranks := rank(in)
	var targets []MemoryTarget
	for i, c := range in.Containers {
		s := l.snap.Containers[i]
		if !c.Managed {
			continue
		}
		f.Containers = append(f.Containers, l.ledgerContainer(c, s, ranks[c.ID], p.Barred[c.ID]))
		if c.Memory.Asked {
			targets = append(targets, MemoryTarget{ID: c.ID, PID: s.PID, GPUs: l.gpusSeenBy(s), Limit: s.Spec.GPUMemory})
		}
	}
	again := l.mem.ledger.Update(f)
	if l.mem.guarded() {
		l.mem.guard.Cover(targets)
		if again {
			l.mem.guard.Reconsider()
		}
	}
	l.tellMemory()
}

// gpusSeenBy returns the GPUs that a container can see; all, where that is not known.
func (l *loop) gpusSeenBy(c task.Container) []string {
	if len(c.VisibleGPUs) > 0 {
		return c.VisibleGPUs
	}
	var all []string
	for _, g := range l.snap.GPUs {
		all = append(all, g.UUID)
	}
	return all
}

func (l *loop) ledgerContainer(c plan.Container, s task.Container, rank int, barred string) ledger.Container {
	out := ledger.Container{
		ID: c.ID, Name: c.Name, Limit: s.Spec.GPUMemory, GPUs: s.VisibleGPUs, Held: s.MemoryUsed, Barred: barred,
		Never: c.Never || c.Exempt != "", Stays: c.Standing == plan.Somebody, Rank: rank,
		// One that stands at an allocation cannot be swapped: its threads must run for that.
		Swappable: c.Memory.Can && c.Memory.Starved == "" && c.Controllable(), Swapped: c.Memory.Out,
	}
	if n := l.need(s); n > 0 && out.Never {
		out.Peak = map[string]uint64{}
		for g := range s.MemoryUsed {
			out.Peak[g] = n
		}
	}
	return out
}

// rank is each container's place in the order of the policy; those without a task
// come last.
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

// tellMemory puts on record what became of allocations.
func (l *loop) tellMemory() {
	for _, e := range l.mem.ledger.Events() {
		if e.Verdict == allocator.Deny {
			if l.mem.denied[e.Request.Container] == nil {
				l.mem.denied[e.Request.Container] = map[string]time.Time{}
			}
			l.mem.denied[e.Request.Container][e.Request.GPU] = l.o.Now()
		}
		l.metrics.Allocations.WithLabelValues(e.Request.GPU, string(e.Verdict), string(e.Why)).Inc()
		if e.Verdict != allocator.Wait {
			l.metrics.AllocationWait.WithLabelValues(string(e.Verdict)).Observe(e.Waited.Seconds())
		}
		d := decision.Decision{Kind: decision.Memory, Result: memoryResults[e.Verdict], Reason: e.Reason, Policy: l.Config().Policy,
			ContainerID: e.Request.Container, GPUs: []string{e.Request.GPU}, Cause: string(e.Why), Bytes: e.Request.Bytes, Seconds: e.Waited.Seconds()}
		if c, ok := l.snap.FindContainer(e.Request.Container); ok {
			d.Container = c.Name
		}
		l.decideOnce(e.Request.Container+"/memory", d)
	}
	maps.DeleteFunc(l.mem.denied, func(id string, _ map[string]time.Time) bool { _, there := l.snap.FindContainer(id); return !there })
	for id, why := range l.mem.barred {
		if c, ok := l.snap.FindContainer(id); ok && l.mem.waits[id].Request.Container == "" {
			l.decideOnce(id+"/memory", decision.Decision{Kind: decision.Memory, Result: decision.Waiting, Reason: "it may not begin yet: " + why,
				Policy: l.Config().Policy, Container: c.Name, ContainerID: id, Cause: string(allocator.Barred)})
		}
	}
}

var memoryResults = map[allocator.Verdict]decision.Result{
	allocator.Grant: decision.Granted, allocator.Wait: decision.Waiting, allocator.Deny: decision.Denied,
}

var _ memory.Decider = (*ledger.Ledger)(nil)
