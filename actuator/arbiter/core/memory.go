package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// memory is what is known of the containers' GPU memory.
type memory struct {
	swaps  *swaps // nil: nothing is swapped
	guard  *Guard // nil: there is no memory guard
	barred map[string]string
	parts  map[string]map[string]allocator.Part // by container id and GPU
	waits  map[string]facts.Event               // the oldest of each container
	evict  map[string]string
	since  map[string]time.Time            // since when a container may not begin, or is swapped out
	denied map[string]map[string]time.Time // when each container was last denied memory, by id and GPU
	blind  bool
	// blindSince is since when facts have been missing; zero: they are there.
	blindSince time.Time
}

func newMemory(swapped bool) *memory {
	m := &memory{since: map[string]time.Time{}, denied: map[string]map[string]time.Time{}}
	if swapped {
		m.swaps = newSwaps()
	}
	return m
}

// on reports whether memory is planned.
func (m *memory) on() bool { return m.guarded() || m.swaps != nil }

func (m *memory) guarded() bool { return m.guard != nil && m.guard.Why == "" }

// update takes over what the ledger says, once per step.
func (m *memory) update(l Ledger) {
	m.evict = l.Evict
	m.parts, m.waits = map[string]map[string]allocator.Part{}, map[string]facts.Event{}
	for _, p := range l.Parts {
		if m.parts[p.Container] == nil {
			m.parts[p.Container] = map[string]allocator.Part{}
		}
		m.parts[p.Container][p.GPU] = p
	}
	for _, e := range l.Waiting {
		if _, ok := m.waits[e.Request.Container]; !ok {
			m.waits[e.Request.Container] = e
		}
	}
}

// planMemory adds the facts about GPU memory to the input of a plan.
func (k *Core) planMemory(in *plan.Input) {
	if !k.memory.on() {
		return
	}
	for i := range in.GPUs {
		in.GPUs[i].Room = k.room(k.facts.snap.GPUs[i])
	}
	for i := range in.Containers {
		c := &in.Containers[i]
		c.Memory = k.memoryOf(*c, k.facts.snap.Containers[i])
		c.Memory.Evict = k.memory.evict[c.ID]
	}
}

// pressed is the share of a card that plans count on while its memory is to be relieved.
const pressed = plan.PressureEnds

// room is how many bytes the containers that are planned for can hold together.
func (k *Core) room(g task.GPU) uint64 {
	whole := g.MemoryTotal - g.MemoryTotal/512
	if k.wished(lease.Relieve, g.UUID) {
		whole = uint64(pressed * float64(g.MemoryTotal))
	}
	taken := g.MemoryUsed
	for _, c := range k.facts.snap.Containers {
		if held := c.MemoryUsed[g.UUID]; k.managed(c) && !c.Spec.NeverPause {
			taken -= min(taken, held)
		} else if c.Spec.NeverPause && k.managed(c) && held > 0 { // it counts for the most that it may hold
			taken += max(held, c.Spec.GPUMemory) - held
		}
	}
	return whole - min(whole, taken)
}

// memoryOf returns what is known of one container's memory.
func (k *Core) memoryOf(c plan.Container, s task.Container) plan.Memory {
	m := plan.Memory{Held: maps.Clone(s.MemoryUsed), Needs: map[string]uint64{}, Asked: k.memoryAsked(s) != "",
		Returned: strings.HasPrefix(c.Exempt, outForLong)}
	m.Guarded = m.Asked && k.memory.guarded()
	if m.Held == nil {
		m.Held = map[string]uint64{}
	}
	for g, p := range k.memory.parts[c.ID] {
		m.Held[g] = max(m.Held[g], p.Held)
	}
	if e, ok := k.memory.waits[c.ID]; ok {
		m.Starved, m.Waits = e.Reason, e.Request.Since
		m.Needs[e.Request.GPU] = m.Held[e.Request.GPU] + e.Request.Bytes
		if len(c.Tasks) == 0 {
			m.Coming = coming(s, e.Request)
		}
	}
	if t, ok := k.memory.since[c.ID]; ok && (m.Waits.IsZero() || t.Before(m.Waits)) {
		m.Waits = t
	}
	for _, g := range gpusOf(c.Tasks, s, m) {
		if n := k.need(s); n > 0 {
			m.Needs[g] = max(m.Needs[g], n)
		}
	}
	k.memory.swaps.fill(&m, s.ID, k.now, k.config.MaxHold)
	return m
}

// need is the most bytes that a container is expected to hold on one GPU: what containers like it
// held, else its limit; 0: unknown.
func (k *Core) need(s task.Container) uint64 {
	n, known := k.history.Memory(estimate.Kind{Image: s.Image, CommandID: s.CommandID})
	switch {
	case known && s.Spec.GPUMemory > 0:
		return min(n, s.Spec.GPUMemory)
	case known:
		return n
	default:
		return s.Spec.GPUMemory
	}
}

// gpusOf lists the GPUs that a container uses, or is about to use.
func gpusOf(tasks []task.Task, s task.Container, m plan.Memory) []string {
	on := map[string]bool{}
	for _, t := range tasks {
		for _, g := range t.GPUs {
			if g != task.UnknownGPU {
				on[g] = true
			}
		}
	}
	for g := range m.Needs {
		on[g] = true
	}
	for g, n := range m.Held {
		on[g] = on[g] || n > 0
	}
	if len(on) == 0 && len(s.VisibleGPUs) == 1 {
		on[s.VisibleGPUs[0]] = true
	}
	maps.DeleteFunc(on, func(_ string, used bool) bool { return !used })
	return slices.Sorted(maps.Keys(on))
}

// coming stands in for the task of a process that the memory guard stopped before the task began.
func coming(s task.Container, r allocator.Request) *task.Task {
	t := task.Task{ID: fmt.Sprintf("coming/%s/%d", s.ID, r.ID), Container: s.Name, ContainerID: s.ID, GPUs: []string{r.GPU},
		State: task.Held, Start: task.Mark{Time: r.Since}}
	if s.Spec.Deadline > 0 {
		t.Deadline = r.Since.Add(s.Spec.Deadline.Duration())
	}
	return &t
}

// memorySince records since when each container may not begin, or may not come back.
func (k *Core) memorySince(p plan.Plan) {
	waits := func(id string) bool {
		return p.Barred[id] != "" || p.Waits[id].Cause == plan.OfMemory
	}
	maps.DeleteFunc(k.memory.since, func(id string, _ time.Time) bool { return !waits(id) })
	for _, c := range k.facts.snap.Containers {
		if _, known := k.memory.since[c.ID]; !known && waits(c.ID) {
			k.memory.since[c.ID] = k.now
		}
	}
}

// letMemoryBe stops planning memory: without facts no allocation is denied or kept waiting.
func (k *Core) letMemoryBe() {
	if !k.memory.on() || k.memory.blind {
		return
	}
	k.memory.blind = true
	k.out.Memory = &Memory{Blind: true}
}

// memoryAsked says why a container's allocations of GPU memory are guarded, so that they may wait
// or be denied. Empty: they are not, and the container is not swapped out for others either. Its
// labels and --memory-share decide. One actuator alone guards: a second one would continue whom the
// first one lets wait.
func (k *Core) memoryAsked(c task.Container) string {
	share := k.config.MemoryShare
	switch {
	case k.memory.guard == nil || !k.leadership.leads || !k.managed(c) || c.Spec.NeverPause:
		return ""
	case c.Spec.GPUMemory > 0:
		return "it has a limit (" + task.LabelGPUMemory + ")"
	case share.Divides():
		return fmt.Sprintf("--memory-share=%s divides the card among all containers with a laxity.* label", share)
	default:
		return ""
	}
}
