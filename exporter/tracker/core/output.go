package core

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// FactKind is what a fact reports.
type FactKind string

const (
	// Began says that a task began on GPU. It comes once for each GPU of a task, as soon as
	// that GPU is known, and at the end at the latest (GPU is then "unknown").
	Began FactKind = "began"
	// Ended says that a task ended or was lost; its GPUs are all that it ever used.
	Ended FactKind = "ended"
	// Missed says that a process worked and ended, and that the engine never reported its
	// container. Of the task only PID and ContainerID are known.
	Missed FactKind = "missed"
	// Appeared says that a container was seen for the first time.
	Appeared FactKind = "appeared"
	// Moved says that a known container has another first process, whose start no event
	// reported, or that this process is known now.
	Moved FactKind = "moved"
)

// Fact is something that happened once.
type Fact struct {
	Kind      FactKind
	Task      task.Task      // of Began, Ended and Missed
	GPU       string         // of Began
	Container task.Container // of Appeared and Moved
}

// TakeFacts returns what happened since the last call, in order.
func (m *Core) TakeFacts() []Fact {
	f := m.facts
	m.facts = nil
	return f
}

// Changed reports whether a fact of the snapshot changed since it was last built, and whether
// measurements (memory, utilisation) did.
func (m *Core) Changed() (changed, measured bool) { return m.changed, m.measured }

// Turned reports whether a task went off the GPU or on again since the snapshot was last
// built, which is not worth waking readers for.
func (m *Core) Turned() bool { return m.turned }

// Confirmed returns when the device last confirmed the facts.
func (m *Core) Confirmed() time.Time { return m.lastReading }

// Snapshot builds the present state under a new sequence number. Nothing in it changes later.
func (m *Core) Snapshot() *task.Snapshot {
	m.sequence++
	m.changed, m.measured, m.turned = false, false, false
	s := &task.Snapshot{
		Run:        m.opt.Run,
		Sequence:   m.sequence,
		Time:       m.lastReading,
		Node:       m.opt.Node,
		GPUs:       make([]task.GPU, 0, len(m.gpus)),
		Cards:      m.cards.published,
		Containers: make([]task.Container, 0, len(m.containers)),
		Tasks:      []task.Task{},
		Ended:      m.ended,
		Health:     m.health,
	}
	if len(m.unattributed) > 0 {
		s.Health.Unattributed = maps.Clone(m.unattributed)
	}
	if s.Ended == nil {
		s.Ended = []task.Task{} // which JSON would call null
	}
	for _, g := range m.gpus {
		out := task.GPU{
			UUID: g.UUID, Index: g.Index, Parent: g.Parent, Name: g.Name, Driver: g.Driver,
			MemoryTotal: g.MemoryTotal, MemoryUsed: g.MemoryUsed, Utilization: task.Ratio(g.Utilization),
			UtilizationReason: task.ReasonOf(task.Ratio(g.Utilization), task.NoUtilization),
		}
		if g.ProcessesErr != nil {
			out.Error = g.ProcessesErr.Error()
		}
		s.GPUs = append(s.GPUs, out)
	}
	byID := map[string]int{}
	for _, b := range m.sortedContainers() {
		byID[b.ID] = len(s.Containers)
		s.Containers = append(s.Containers, b.published())
	}
	for _, p := range m.processes {
		if i, ok := byID[p.Container]; ok {
			list(&s.Containers[i], p)
		}
	}
	for _, c := range s.Containers { // once: a container may have thousands
		slices.SortFunc(c.Processes, func(a, b task.Process) int { return cmp.Compare(a.PID, b.PID) })
	}
	open := m.openTasks()
	s.Tasks = slices.Grow(s.Tasks, len(open))
	for _, p := range open {
		t := p.open.Task
		for uuid, u := range p.on {
			if u.stale {
				continue
			}
			if t.MemoryUsed == nil {
				t.MemoryUsed = make(map[string]uint64, len(p.on))
			}
			t.MemoryUsed[uuid] = u.memory
		}
		s.Tasks = append(s.Tasks, t)
	}
	return s
}

// list adds a process to those of its container that use CUDA, in no order, and adds its
// memory and utilisation to theirs.
func list(c *task.Container, p *process) {
	if p.MPSServer {
		return
	}
	sum(c, p.on)
	if p.gone != nil || !p.worked() && len(p.on) == 0 {
		return
	}
	is := task.Process{PID: p.PID, GPUs: slices.Sorted(maps.Keys(p.on))}
	for _, u := range p.on {
		is.MPS = is.MPS || u.mps
	}
	c.Processes = append(c.Processes, is)
}

// sum adds the memory and utilisation of one process to its container.
func sum(c *task.Container, on map[string]use) {
	for uuid, u := range on {
		if u.stale {
			continue
		}
		if c.MemoryUsed == nil {
			c.MemoryUsed = map[string]uint64{}
		}
		c.MemoryUsed[uuid] += u.memory
		if math.IsNaN(u.sm) {
			continue
		}
		if c.SMUtilization == nil {
			c.SMUtilization = map[string]float64{}
		}
		c.SMUtilization[uuid] = min(1, c.SMUtilization[uuid]+u.sm)
	}
}
