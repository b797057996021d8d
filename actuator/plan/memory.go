package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Memory is what planning needs to know about a container's GPU memory. Maps are bytes by UUID of
// the GPU.
type Memory struct {
	// Held is what it holds now, contexts included.
	Held map[string]uint64
	// Needs is the most that the container is expected to hold: what containers like it held before,
	// else its limit. For a swapped container it is what it needs to come back. A GPU is absent if
	// nothing is known.
	Needs map[string]uint64
	// Asked: the container asks for its memory to be planned, by a limit, or because the card is
	// divided. Only such a container may be kept from beginning, and only for such a container are
	// others swapped out. Guarded: the memory guard holds its allocations at their entry, so it need
	// not be paused for that.
	Asked, Guarded bool
	// Coming is the task that a container without tasks is about to begin: it waits at its first
	// allocation.
	Coming *task.Task
	// Starved says what memory the container waits for at an allocation; else empty. It cannot
	// compute then, and takes no other container's turn.
	Starved string
	// Waits is when it began to wait for memory; zero: it does not wait.
	Waits time.Time
	// Can: it can be swapped out. Cost is the time to do that and undo it.
	Can  bool
	Cost time.Duration
	// Out: it is swapped out. Busy: a swap of it is under way. Overdue: it has been out for as long
	// as is allowed.
	Out, Busy, Overdue bool
	// Returned: it is exempt because it was out for as long as is allowed. An overdue container may
	// still take its memory.
	Returned bool
	// Since is when it was last swapped out or in; zero: never.
	Since time.Time
	// Evict says why it must be swapped out whatever that costs (containers wait in a circle, or it
	// holds borrowed memory); else empty.
	Evict string
}

// resident reports whether it holds memory, or is about to be swapped in.
func (m Memory) resident() bool {
	for _, n := range m.Held {
		if n > 0 {
			return !m.Out
		}
	}
	return m.Busy
}

// MemoryPatience is how long other containers that fit may begin before one that waits for memory.
const MemoryPatience = 10 * time.Second

// memory decides whose data is on the GPUs. Containers that hold memory stay. Others begin, in the
// order of the policy, while what they are expected to need still fits. A container is swapped out
// for another where that gains more than it costs. A container that did not ask for this begins at
// once: a mere expectation keeps it from nothing.
func (p *planner) memory() {
	p.barred, p.swap, p.restore = map[string]string{}, map[string]string{}, map[string]string{}
	left := map[string]int64{} // below 0 where more is expected than the card has
	for _, g := range p.in.GPUs {
		if g.Room > 0 {
			left[g.UUID] = int64(g.Room)
		}
	}
	if len(left) == 0 { // memory is not planned, or no longer
		for _, c := range p.in.Containers {
			if c.Memory.Out && !c.Memory.Busy {
				p.restore[c.ID] = "memory is not planned any more"
			}
		}
		return
	}
	for _, c := range p.in.Containers {
		if c.Managed && !c.Never && c.Memory.resident() {
			take(left, p.expected(c))
		}
	}
	p.evict()
	first := p.admit(p.comers(), left)
	if first != nil && !p.swapping() {
		p.makeRoom(*first, left)
	}
}

// comers are the containers that hold nothing and want to begin, or to come back, in order. Those
// that must no longer be kept out come first.
func (p *planner) comers() []entry {
	var out []entry
	for _, c := range p.in.Containers {
		if c.Memory.resident() || c.Memory.Busy {
			continue
		}
		// One that is out comes back, whatever its labels say by now.
		if !c.Memory.Out && (c.Never || !c.Managed || c.Standing == Somebody) {
			continue
		}
		if e, ok := p.memoryEntry(c); ok {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, p.before)
	return out
}

// memoryEntry is the container's entry in the queue for memory.
func (p *planner) memoryEntry(c Container) (entry, bool) {
	if len(c.Tasks) == 0 && c.Memory.Coming != nil {
		c.Tasks = []task.Task{*c.Memory.Coming}
	}
	if len(c.Tasks) == 0 {
		return entry{Container: c}, c.Memory.Out
	}
	return entry{Container: c, first: c.Job(p.in.Order), on: c.gpus()}, true
}

func (p *planner) before(a, b entry) int {
	must := func(e entry) int { // it is out, and must not stay out
		if e.Memory.Out && (e.Memory.Overdue || !e.Controllable() || len(e.Tasks) == 0) {
			return 0
		}
		return 1
	}
	if c := cmp.Compare(must(a), must(b)); c != 0 || len(a.Tasks) == 0 || len(b.Tasks) == 0 {
		return cmp.Or(c, cmp.Compare(len(b.Tasks), len(a.Tasks)), strings.Compare(a.ID, b.ID))
	}
	return cmp.Or(p.in.Order.Compare(a.first, b.first), strings.Compare(a.ID, b.ID))
}

// admit lets the containers that fit begin or come back, and says of the others why they do not. It
// returns the first that does not fit.
func (p *planner) admit(comers []entry, left map[string]int64) *entry {
	var first *entry
	behind := ""
	for _, e := range comers {
		need := p.expected(e.Container)
		switch {
		case e.Asked != "" && e.Controllable():
			continue // it is held anyway
		case behind == "" && fitsIn(left, need):
			take(left, need)
			if e.Memory.Out {
				p.restore[e.ID] = "there is room for it"
			}
			continue
		case !e.Memory.Out && (!e.Memory.Asked || !e.Controllable()): // it may not be kept from beginning
			take(left, need)
			continue
		}
		reason := fmt.Sprintf("it needs %s, and %s", amounts(need), p.occupied(left, need))
		if behind != "" && fitsIn(left, need) {
			reason = "lets " + behind + " go first, which has waited for memory for long"
		}
		p.keepOut(e, reason)
		if first == nil {
			first = &e
		}
		if long := !e.Memory.Waits.IsZero() && p.in.Now.Sub(e.Memory.Waits) >= MemoryPatience; behind == "" && (long || e.Memory.Overdue || !e.Controllable()) {
			behind = e.Name
		}
	}
	return first
}

// keepOut keeps a container from beginning: by the memory guard at its first allocation, else by a
// pause. A swapped container stays swapped.
func (p *planner) keepOut(e entry, reason string) {
	if e.Memory.Out {
		p.waits[e.ID] = Wait{OfMemory, "swapped out: " + reason}
		return
	}
	p.barred[e.ID] = reason
	if !e.Memory.Guarded {
		p.waits[e.ID] = Wait{OfMemory, reason}
	}
}

// expected is the most that a container will hold. If nothing is known about it, that is what it
// holds now. If it holds nothing, that is as much as the largest container holds, or held before
// its swap, since containers are often alike. A container that holds nothing is never expected to
// need more than the card has, or it could never begin.
func (p *planner) expected(c Container) map[string]uint64 {
	out := map[string]uint64{}
	for g, n := range c.Memory.Held {
		out[g] = max(n, c.Memory.Needs[g])
	}
	for g, n := range c.Memory.Needs {
		out[g] = max(n, c.Memory.Held[g])
	}
	if e, ok := p.memoryEntry(c); ok && len(out) == 0 {
		for _, g := range e.on {
			out[g] = p.largest(g)
		}
	}
	for g, n := range out {
		if room := p.gpus[g].Room; room > 0 {
			out[g] = max(min(n, room), c.Memory.Held[g])
		}
	}
	return out
}

// largest is the most that a container holds of a GPU, or held before its swap.
func (p *planner) largest(gpu string) (most uint64) {
	for _, c := range p.in.Containers {
		if c.Managed {
			most = max(most, c.Memory.Held[gpu])
		}
		if c.Managed && c.Memory.Out {
			most = max(most, c.Memory.Needs[gpu])
		}
	}
	return most
}

func fitsIn(left map[string]int64, need map[string]uint64) bool {
	for g, n := range need {
		if l, planned := left[g]; planned && int64(n) > l {
			return false
		}
	}
	return true
}

func take(left map[string]int64, need map[string]uint64) {
	for g, n := range need {
		if _, planned := left[g]; planned {
			left[g] -= int64(n)
		}
	}
}

func give(left map[string]int64, back map[string]uint64) {
	for g, n := range back {
		if _, planned := left[g]; planned {
			left[g] += int64(n)
		}
	}
}

// occupied says, for people, how much is left where a container does not fit.
func (p *planner) occupied(left map[string]int64, need map[string]uint64) string {
	for _, g := range p.in.GPUs {
		l, planned := left[g.UUID]
		if n := need[g.UUID]; planned && int64(n) > l {
			var who []string
			for _, c := range p.in.Containers {
				if c.Managed && c.Memory.Held[g.UUID] > 0 {
					who = append(who, c.Name)
				}
			}
			return fmt.Sprintf("beside %s %s are left of %s", cmp.Or(strings.Join(who, ", "), "what others hold"), gibs(uint64(max(0, l))), g.UUID)
		}
	}
	return "others come first"
}

func amounts(need map[string]uint64) string {
	var most uint64
	for _, n := range need {
		most = max(most, n)
	}
	return gibs(most)
}

// gibs formats bytes for people.
func gibs(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
