package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Memory is what planning needs to know of a container's GPU memory. Bytes, by
// UUID of the GPU.
type Memory struct {
	// Held is what it holds now, contexts included.
	Held map[string]uint64
	// Needs is the most that it is expected to hold: what its like held before,
	// else its limit; of one that is swapped out, what it needs to come back. A GPU
	// is absent where nobody knows.
	Needs map[string]uint64
	// Asked: it asks for its memory to be planned, by a limit, or the card is divided.
	// It alone may be kept from beginning, and others are swapped out for it alone.
	// Guarded: its allocations are held at their entry, so that it need not be paused
	// for that.
	Asked, Guarded bool
	// Coming is the task that is about to begin where it has none yet: it stands at
	// its first allocation.
	Coming *task.Task
	// Starved says for what it stands at an allocation; else empty. It cannot
	// compute then, and takes nobody's turn.
	Starved string
	// Waits is since when it waits for memory; zero: it does not.
	Waits time.Time
	// Can: it can be swapped out. Cost is the time to do that and undo it.
	Can  bool
	Cost time.Duration
	// Out: it is swapped out. Busy: it is just being swapped out or in. Overdue: it has
	// been out for as long as is allowed.
	Out, Busy, Overdue bool
	// Returned: it is exempt because it was out for as long as is allowed. One that is
	// overdue may have its memory all the same.
	Returned bool
	// Since is when it was last swapped out or in; zero: never.
	Since time.Time
	// Evict says why it should be swapped out whatever that costs (others wait in a
	// circle, or it holds what was lent to it); else empty.
	Evict string
}

// Resident: it holds memory, or is about to be swapped in.
func (m Memory) resident() bool {
	for _, n := range m.Held {
		if n > 0 {
			return !m.Out
		}
	}
	return m.Busy
}

// MemoryPatience is how long others that fit may begin before one that waits for
// memory.
const MemoryPatience = 10 * time.Second

// memory decides whose data is on the GPUs: those that hold memory stay, those
// that come begin while what they are expected to need fits beside it, in the
// order of the policy, and one is swapped out for another where that is worth
// more than it costs. Whoever did not ask for that begins at once: it is not kept
// waiting for what is only expected.
func (p *planner) memory() {
	p.barred, p.swap, p.restore = map[string]string{}, map[string]string{}, map[string]string{}
	left := map[string]int64{} // below 0 where more is expected than there is
	for _, g := range p.in.GPUs {
		if g.Room > 0 {
			left[g.UUID] = int64(g.Room)
		}
	}
	if len(left) == 0 { // not planned, or not any more
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

// comers are those that hold nothing and want to begin, or to come back, in
// order; first of all those that must not be kept away any longer.
func (p *planner) comers() []entry {
	var out []entry
	for _, c := range p.in.Containers {
		if c.Never || !c.Managed || c.Memory.resident() || c.Memory.Busy || (c.Standing == Somebody && !c.Memory.Out) {
			continue
		}
		if e, ok := p.memoryEntry(c); ok {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, p.before)
	return out
}

// memoryEntry is the container as it stands in the queue for memory.
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
	must := func(e entry) int { // out, and may not be kept out
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

// admit lets those begin or come back that fit, and says of the others why not.
// It returns the first that does not.
func (p *planner) admit(comers []entry, left map[string]int64) *entry {
	var first *entry
	behind := ""
	for _, e := range comers {
		need := p.expected(e.Container)
		switch {
		case e.Asked != "" && e.Controllable():
			continue // it is to stand still anyway
		case behind == "" && fitsIn(left, need):
			take(left, need)
			if e.Memory.Out {
				p.restore[e.ID] = "there is room for it"
			}
			continue
		case !e.Memory.Out && (!e.Memory.Asked || !e.Controllable()): // nobody may keep it from beginning
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

// keepOut keeps a container from beginning: by the memory guard at its first
// allocation, else by a pause; or leaves it swapped out.
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

// expected is the most that a container will hold, as far as anybody knows. Of
// one of which nothing is known it is what it holds, and before it holds anything
// as much as the largest of those that do, or did until they were swapped out: they
// are often alike. Whoever holds nothing yet is expected to need no more than there
// is, or it could never begin.
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

// largest is the most that a container holds of a GPU, or held when it was swapped
// out.
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

// occupied says what is left where it does not fit, for people.
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

// gibs writes bytes for people.
func gibs(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
