package actuator

import (
	"maps"
	"slices"

	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/exporter/task"
)

// why says why allocations are not guarded; empty: they are.
func (m *memoryKeeper) why() string {
	switch {
	case m.guard == nil:
		return string(MemoryOff)
	case m.guard.Why() != nil:
		return m.guard.Why().Error()
	default:
		return ""
	}
}

// unguarded says why the allocations of a container are not denied; empty: they are.
func (m *memoryKeeper) unguarded(id string) string {
	if !m.guarded() {
		return m.why()
	}
	return m.guard.Failures()[id]
}

// memoryState says what is known and done about one container's memory.
func (l *loop) memoryState(cs *ContainerState, c task.Container) {
	if !cs.Managed {
		return
	}
	if c.Spec.GPUMemory > 0 && l.o.MemoryGuard != MemoryOff {
		cs.MemoryUnguarded = l.mem.unguarded(c.ID)
	}
	if !l.mem.on() {
		return
	}
	if l.mem.guarded() {
		cs.MemoryAsked = l.memoryAsked(c)
	}
	cs.MemoryWaits = l.mem.barred[c.ID]
	if e, ok := l.mem.waits[c.ID]; ok {
		cs.MemoryWaits, cs.MemoryWaitGPU, cs.MemoryWaitSeconds = e.Reason, e.Request.GPU, e.Waited.Seconds()
	}
	if cs.MemoryWaits == "" && l.mem.guarded() {
		cs.MemoryWaits = l.mem.guard.Waits()[c.ID]
	}
	cs.MemoryDenied = maps.Clone(l.mem.denied[c.ID])
	by := map[string]MemoryState{}
	for g, p := range l.mem.parts[c.ID] {
		by[g] = MemoryState{GPU: g, Limit: c.Spec.GPUMemory, Held: p.Held, Share: p.Share, Lent: p.Lent}
	}
	if l.mem.swaps != nil {
		if r, ok := l.mem.swaps.out[c.ID]; ok {
			cs.Swapped, cs.SwapStage = r.Reason, r.Stage
			for g, n := range r.Bytes {
				m := by[g]
				m.GPU, m.Limit, m.Swapped = g, c.Spec.GPUMemory, n
				by[g] = m
			}
		}
	}
	for _, g := range slices.Sorted(maps.Keys(by)) {
		cs.Memory = append(cs.Memory, by[g])
	}
}

// presentMemory hands the metrics what the state says.
func presentMemory(p *collector.Present, s *State) {
	for _, c := range s.Containers {
		if c.MemoryUnguarded != "" {
			p.Unguarded = append(p.Unguarded, c.Name)
		}
		if c.MemoryWaitGPU != "" {
			p.Waiting = append(p.Waiting, collector.Waiting{Container: c.Name, GPU: c.MemoryWaitGPU, Seconds: c.MemoryWaitSeconds})
		}
		for g, t := range c.MemoryDenied {
			p.Denied = append(p.Denied, collector.Denied{Container: c.Name, GPU: g, Time: t})
		}
		for _, m := range c.Memory {
			p.Memory = append(p.Memory, collector.Memory{Container: c.Name, GPU: m.GPU, Limit: m.Limit, Held: m.Held, Share: m.Share, Lent: m.Lent})
			if c.Swapped != "" {
				p.Swapped = append(p.Swapped, collector.Swapped{Container: c.Name, GPU: m.GPU, Bytes: m.Swapped, Stuck: c.SwapStage == enforce.Stuck})
			}
		}
	}
}
