package actuator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// MemoryGuard holds allocations of GPU memory at their entry, and asks a
// memory.Decider what becomes of them.
type MemoryGuard interface {
	// Open begins to guard where this machine can; Close lets everybody go.
	Open(ctx context.Context) error
	Close() error
	// Why says why nothing is guarded on this machine; nil: it works.
	Why() error
	// Cover is told which containers to guard; all others are let alone. A guard
	// that does not hear of it for a while lets everybody go.
	Cover(targets []MemoryTarget)
	// Reconsider makes it ask again about every allocation that waits, and about
	// ceilings. It MUST NOT block.
	Reconsider()
	// Failures says which of the covered containers may get more than their limits,
	// by id, and why: an allocation could not be denied, or is not guarded.
	Failures() map[string]string
	// Waits says of each container that stands at an allocation why, by id.
	Waits() map[string]string
}

// MemoryTarget is a container whose allocations are guarded: it asks for that by
// its limit, or the card is divided among all (see memoryAsked).
type MemoryTarget struct {
	ID  string
	PID int // its first process, in the host's PID namespace
	// GPUs that it may use, by UUID, in its own order.
	GPUs []string
	// Limit per GPU, bytes; 0: none of its own.
	Limit uint64
}

// memoryKeeper is the loop's part about GPU memory. It belongs to the loop's
// goroutine, like the loop.
type memoryKeeper struct {
	ledger *ledger.Ledger
	guard  MemoryGuard // nil: none
	swaps  *swapKeeper // nil: nothing is swapped
	barred map[string]string
	parts  map[string]map[string]allocator.Part // by container id and GPU
	waits  map[string]ledger.Event              // the oldest of each container
	since  map[string]time.Time                 // since when a container may not begin, or is out
	denied map[string]map[string]time.Time      // when each container was last refused memory, by id and GPU
	blind  bool
}

// on reports whether memory is planned.
func (m *memoryKeeper) on() bool { return m.guarded() || m.swaps != nil }

func (m *memoryKeeper) guarded() bool { return m.guard != nil && m.guard.Why() == nil }

// changed gets a value when the ledger has news.
func (m *memoryKeeper) changed() <-chan struct{} { return m.ledger.Changed() }

// look brings the ledger's view up to date, once for each step.
func (m *memoryKeeper) look() {
	m.parts, m.waits = map[string]map[string]allocator.Part{}, map[string]ledger.Event{}
	for _, p := range m.ledger.Parts() {
		if m.parts[p.Container] == nil {
			m.parts[p.Container] = map[string]allocator.Part{}
		}
		m.parts[p.Container][p.GPU] = p
	}
	for _, e := range m.ledger.Waiting() {
		if _, ok := m.waits[e.Request.Container]; !ok {
			m.waits[e.Request.Container] = e
		}
	}
}

// planMemory adds what is true of GPU memory to the input of a plan.
func (l *loop) planMemory(in *plan.Input) {
	if !l.mem.on() {
		return
	}
	l.mem.look()
	for i := range in.GPUs {
		in.GPUs[i].Room = l.room(l.snap.GPUs[i])
	}
	evict := l.mem.ledger.Evict()
	for i := range in.Containers {
		c := &in.Containers[i]
		c.Memory = l.memoryOf(*c, l.snap.Containers[i])
		c.Memory.Evict = evict[c.ID]
	}
}

// pressed is the share of a card that is planned with while its memory is to be
// relieved.
const pressed = plan.PressureEnds

// room is what the containers that are decided about can hold together.
func (l *loop) room(g task.GPU) uint64 {
	whole := g.MemoryTotal - g.MemoryTotal/512
	if l.wished(state.WishRelieve, g.UUID) {
		whole = uint64(pressed * float64(g.MemoryTotal))
	}
	taken := g.MemoryUsed
	for _, c := range l.snap.Containers {
		if held := c.MemoryUsed[g.UUID]; l.managed(c) && !c.Spec.NeverPause {
			taken -= min(taken, held)
		} else if c.Spec.NeverPause && l.managed(c) && held > 0 { // it counts for its most
			taken += max(held, c.Spec.GPUMemory) - held
		}
	}
	return whole - min(whole, taken)
}

// memoryOf is what is known of one container's memory.
func (l *loop) memoryOf(c plan.Container, s task.Container) plan.Memory {
	m := plan.Memory{Held: maps.Clone(s.MemoryUsed), Needs: map[string]uint64{}, Asked: l.memoryAsked(s) != "",
		Returned: strings.HasPrefix(c.Exempt, outForLong)}
	m.Guarded = m.Asked && l.mem.guarded()
	if m.Held == nil {
		m.Held = map[string]uint64{}
	}
	for g, p := range l.mem.parts[c.ID] {
		m.Held[g] = max(m.Held[g], p.Held)
	}
	if e, ok := l.mem.waits[c.ID]; ok {
		m.Starved, m.Waits = e.Reason, e.Request.Since
		m.Needs[e.Request.GPU] = m.Held[e.Request.GPU] + e.Request.Bytes
		if len(c.Tasks) == 0 {
			m.Coming = coming(s, e.Request)
		}
	}
	if t, ok := l.mem.since[c.ID]; ok && (m.Waits.IsZero() || t.Before(m.Waits)) {
		m.Waits = t
	}
	for _, g := range gpusOf(c.Tasks, s, m) {
		if n := l.need(s); n > 0 {
			m.Needs[g] = max(m.Needs[g], n)
		}
	}
	l.mem.swaps.fill(&m, s.ID, l.o.Now(), l.Config().MaxHold)
	return m
}

// need is the most that a container is expected to hold on one GPU: what its
// like held, else its limit; 0: nobody knows.
func (l *loop) need(s task.Container) uint64 {
	n, known := l.history.Memory(estimate.Kind{Image: s.Image, CommandID: s.CommandID})
	switch {
	case known && s.Spec.GPUMemory > 0:
		return min(n, s.Spec.GPUMemory)
	case known:
		return n
	default:
		return s.Spec.GPUMemory
	}
}

// gpusOf lists the GPUs that a container uses or is about to.
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

// coming stands for the task of a process that was held before it had one.
func coming(s task.Container, r allocator.Request) *task.Task {
	t := task.Task{ID: fmt.Sprintf("coming/%s/%d", s.ID, r.ID), Container: s.Name, ContainerID: s.ID, GPUs: []string{r.GPU},
		State: task.Held, Start: task.Mark{Time: r.Since}}
	if s.Spec.Deadline > 0 {
		t.Deadline = r.Since.Add(s.Spec.Deadline.Duration())
	}
	return &t
}

// memorySince keeps since when each container may not begin, or may not come back.
func (l *loop) memorySince(p plan.Plan, now time.Time) {
	waits := func(id string) bool {
		return p.Barred[id] != "" || p.Waits[id].Cause == plan.OfMemory
	}
	maps.DeleteFunc(l.mem.since, func(id string, _ time.Time) bool { return !waits(id) })
	for _, c := range l.snap.Containers {
		if _, known := l.mem.since[c.ID]; !known && waits(c.ID) {
			l.mem.since[c.ID] = now
		}
	}
}

// blindMemory: nothing is known any more, so nothing is refused or kept waiting.
func (l *loop) blindMemory() {
	if !l.mem.on() || l.mem.blind {
		return
	}
	l.mem.blind = true
	l.mem.ledger.Update(ledger.Facts{})
	if l.mem.guarded() {
		l.mem.guard.Reconsider()
	}
}
