package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// State returns what is known and done now. Its holds are sorted by container id.
func (k *Core) State() *state.State {
	c, f := k.config, &k.facts
	s := state.New()
	s.Time, s.Node, s.DryRun, s.Policy, s.Share, s.Arbitrate = k.now, k.node(), k.o.DryRun, c.Policy, c.Profile().Rule().Name(), c.Arbitrate
	s.Leases, s.Exemptions, s.Drained = k.leases.Leases(), k.leases.Exemptions(), k.wished(lease.Drain, k.node())
	s.GuardianUp, s.Inbox, s.Trouble = k.around.GuardianUp, k.around.Inbox, f.trouble
	s.MemoryShare, s.MemoryGuard, s.Swap = c.MemoryShare, k.memory.why(), k.memory.swaps != nil
	s.Hold, s.NoChannels = config.HoldPause, k.o.NoChannels
	if k.divides() {
		s.Hold = config.HoldChannels
	}
	s.Breaker = k.breaker.open(k.now)
	if !k.leadership.leads {
		s.Standby = k.leadership.why
	}
	s.Ready = f.snap != nil && f.trouble == "" && k.around.MayHold && s.Standby == ""
	for _, id := range slices.Sorted(maps.Keys(k.holds.byID)) {
		s.Holds = append(s.Holds, k.holds.byID[id].Hold)
	}
	if f.snap == nil {
		return s
	}
	s.SnapshotSequence, s.SnapshotTime = f.snap.Sequence, f.snap.Time
	for _, g := range f.snap.GPUs {
		s.GPUs = append(s.GPUs, k.gpuState(g))
	}
	for _, c := range f.snap.Containers {
		s.Containers = append(s.Containers, k.containerState(c))
	}
	return s
}

func (k *Core) gpuState(g task.GPU) state.GPU {
	t := &k.turns
	return state.GPU{
		UUID: g.UUID, Name: g.Name, Utilization: g.Utilization, Memory: task.Ratio(memoryShare(g)),
		Tasks: len(k.facts.snap.TasksOn(g.UUID)), Arbitrated: k.arbitrated(g.UUID), Relieve: k.wished(lease.Relieve, g.UUID),
		Admitted: k.names(slices.Concat(t.admitted[g.UUID], t.beside[g.UUID])), Queue: k.names(t.queue[g.UUID]),
		Order: k.names(k.division.order(g.UUID)), Unkept: cmp.Or(k.division.unkept(g.UUID), k.admitted.over[g.UUID]),
	}
}

// names returns the names of these containers, for people.
func (k *Core) names(ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if c, ok := k.facts.snap.FindContainer(id); ok {
			out = append(out, c.Name)
		}
	}
	return out
}

func (k *Core) containerState(c task.Container) state.Container {
	s := state.Container{
		ID: c.ID, Name: c.Name, Managed: k.managed(c), NeverPause: c.Spec.NeverPause,
		Gang: c.Spec.Gang, Standing: k.standing(c), Waits: k.turns.waits[c.ID].Reason, Tasks: k.unfinished(c.ID),
	}
	if s.Beside = k.turns.besideBy[c.ID]; s.Managed && server(c) {
		s.Beside = "its tasks are requests, which are not held for others, nor others for them"
	}
	if cause, why := k.aside(c); cause != "" && s.Managed && !s.NeverPause {
		s.Order, s.LeftAsItIs = "left as it is: "+why, cause
	} else {
		k.orderState(&s)
	}
	k.admissionState(&s)
	k.memoryState(&s, c)
	return s
}

// order lists the containers on a GPU in the order of the queue.
func (v *division) order(gpu string) (ids []string) {
	if v == nil || v.gpus[gpu] == nil {
		return nil
	}
	standings := v.gpus[gpu].plan.Standings
	pids := slices.SortedFunc(maps.Keys(standings), func(a, b string) int {
		return cmp.Or(cmp.Compare(standings[a].Rank, standings[b].Rank), cmp.Compare(a, b))
	})
	for _, pid := range pids {
		t := v.tenants[pid]
		if t == nil || standings[pid].Rank == 0 {
			continue
		}
		for _, m := range t.containers() {
			if !slices.Contains(ids, m.id) {
				ids = append(ids, m.id)
			}
		}
	}
	return ids
}

// unkept says which promises on a GPU cannot be kept.
func (v *division) unkept(gpu string) string {
	if v == nil || v.gpus[gpu] == nil {
		return ""
	}
	return v.gpus[gpu].plan.Report
}

// orderState fills in a container's standing: of several processes, that of the first in the queue.
func (k *Core) orderState(s *state.Container) {
	v := k.division
	if v == nil {
		return
	}
	rank, first := 0, ""
	for id, t := range v.tenants {
		is, planned := v.gpu(t.gpu).plan.Standings[id]
		if !t.has(s.ID) || !planned || s.Order != "" && cmp.Or(cmp.Compare(is.Rank, rank), cmp.Compare(id, first)) > 0 {
			continue
		}
		rank, first = is.Rank, id
		s.Order, s.Off, s.SliceSeconds = is.Reason, t.stands.Off, t.stands.Slice.Seconds()
	}
	if s.Order == "" && k.divides() && s.Managed && !s.NeverPause {
		s.Order = k.leftAlone(s)
	}
}

// leftAlone says why a container gets no standing on a GPU whose time is divided; empty if there is
// nothing to say.
func (k *Core) leftAlone(s *state.Container) string {
	first, left := "", ""
	for id, t := range k.division.tenants {
		if t.has(s.ID) && t.left != "" && (left == "" || id < first) { // the same one each time
			first, left = id, t.left
		}
	}
	if left != "" {
		if left != justBegun {
			s.LeftAsItIs = state.ByFailure
		}
		return "left as it is: " + left
	}
	if k.o.AsOne {
		return ""
	}
	c, _ := k.facts.snap.FindContainer(s.ID)
	var users []user
	arbitrated := false
	for _, p := range c.Processes {
		users = append(users, user{gpus: p.GPUs})
		arbitrated = arbitrated || slices.ContainsFunc(p.GPUs, k.arbitrated)
	}
	if arbitrated && severalGPUs(users) {
		s.LeftAsItIs = state.BySeveral
		return "left as it is: it computes on several GPUs"
	}
	return ""
}

// why says why allocations are not guarded; empty if they are.
func (m *memory) why() string {
	if m.guard == nil {
		return string(config.MemoryOff)
	}
	return m.guard.Why
}

// unguarded says why the allocations of a container are not denied; empty if they are.
func (m *memory) unguarded(id string) string {
	if !m.guarded() {
		return m.why()
	}
	return m.guard.Failures[id]
}

// memoryState fills in what is known and done about one container's memory.
func (k *Core) memoryState(s *state.Container, c task.Container) {
	m := k.memory
	if !s.Managed {
		return
	}
	if c.Spec.GPUMemory > 0 && !k.o.LimitsOff {
		s.MemoryUnguarded = m.unguarded(c.ID)
	}
	if !m.on() {
		return
	}
	if m.guarded() {
		s.MemoryAsked = k.memoryAsked(c)
	}
	s.MemoryWaits = m.barred[c.ID]
	if e, ok := m.waits[c.ID]; ok {
		s.MemoryWaits, s.MemoryWaitGPU, s.MemoryWaitSeconds = e.Reason, e.Request.GPU, e.Waited.Seconds()
	}
	if s.MemoryWaits == "" && m.guarded() {
		s.MemoryWaits = m.guard.Waits[c.ID]
	}
	s.MemoryDenied = maps.Clone(m.denied[c.ID])
	by := map[string]state.Memory{}
	for g, p := range m.parts[c.ID] {
		by[g] = state.Memory{GPU: g, Limit: c.Spec.GPUMemory, Held: p.Held, Share: p.Share, Lent: p.Lent}
	}
	if m.swaps != nil {
		if r, ok := m.swaps.out[c.ID]; ok {
			s.Swapped, s.SwapStage, s.SwappedSince = r.Reason, r.Stage, r.Since
			for g, n := range r.Bytes {
				is := by[g]
				is.GPU, is.Limit, is.Swapped = g, c.Spec.GPUMemory, n
				by[g] = is
			}
		}
	}
	for _, g := range slices.Sorted(maps.Keys(by)) {
		s.Memory = append(s.Memory, by[g])
	}
}
