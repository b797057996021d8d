package memory

import (
	"context"
	"errors"
	"maps"
	"math"
	"time"

	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// calls returns the allocations under way; none where they cannot be read.
func (g *Guard) calls() []cudaprobe.Call {
	calls, err := g.kernel.Calls()
	g.note(err)
	return calls
}

// recall reads what graphs will get when they are launched, and which contexts were made. Call it
// after reading the calls under way and before reading the usage: a call that returns in between
// then shows in a later reading.
func (g *Guard) recall() {
	for pid, p := range g.processes {
		totals, err := g.kernel.TotalsOf(pid)
		g.note(err)
		if p.epoch != 0 && p.epoch != totals.Epoch { // exec: what the old program held is gone
			g.forget(pid)
			p.most, p.seen, p.began = 0, 0, g.o.Now()
			clear(p.took)
			p.shown = shown{order: asGiven(len(p.of.GPUs))}
			g.reorder(p, p.shown.order)
		}
		p.epoch, p.graphs, p.made, p.on = totals.Epoch, totals.Graphs, totals.Contexts, totals.On
	}
}

// reading is one reading of the usage.
type reading struct {
	began time.Time
	usage map[string]task.Usage
	err   error
}

var errHangs = errors.New("the driver has not answered")

// readUsage reads the usage, and gives up after usageLimit: a driver call cannot be interrupted. A caller
// that read the calls under way before may add the two: a call that returned in between shows in the
// usage. So a reading that ends after we gave up is not used.
func (g *Guard) readUsage(ctx context.Context) reading {
	began := g.o.Now()
	if g.late != nil {
		select {
		case <-g.late:
			g.late = nil
		default: // one call hangs: do not add more of them
			return reading{began: began, err: errHangs}
		}
	}
	done := make(chan reading, 1)
	go func() {
		usage, err := g.o.Usage(ctx)
		done <- reading{began, usage, err}
	}()
	timeout, renew := time.NewTimer(time.Duration(g.usageLimit.Load())), time.NewTicker(stop.Lease/4)
	defer timeout.Stop()
	defer renew.Stop()
	for {
		select {
		case r := <-done:
			return r
		case <-renew.C: // else the guardian would let held calls run before they are judged
			g.mu.Lock()
			g.renew(g.listHolds())
			g.mu.Unlock()
			continue
		case <-timeout.C:
		case <-ctx.Done():
		}
		g.late = done
		return reading{began: began, err: errHangs}
	}
}

// report tells the Decider what is held. began is when the readings began.
func (g *Guard) report(began time.Time, calls []cudaprobe.Call) {
	if g.blind() {
		return
	}
	s := Sight{At: began, Used: make(map[string]uint64, len(g.usage)), Held: make(map[string]map[string]uint64, len(g.containers))}
	for gpu, u := range g.usage {
		s.Used[gpu] = u.Used
	}
	for id, c := range g.containers {
		s.Held[id] = make(map[string]uint64, len(c.GPUs))
		for i, gpu := range c.GPUs {
			s.Held[id][gpu] = g.held(c, i, calls)
			s.Used[gpu] = sum(s.Used[gpu], g.promised(c, i, calls))
		}
	}
	maps.DeleteFunc(s.Used, func(gpu string, _ uint64) bool { return !g.readable(gpu) })
	g.o.Decider.Observe(s)
}

// held is what a container holds on one of its GPUs: what is seen, but at least
// what it took since a process began that the usage does not list yet.
func (g *Guard) held(c *container, gpu int, calls []cudaprobe.Call) uint64 {
	seen := g.seen(c, gpu, calls)
	if !g.unlisted(c, gpu) {
		return seen
	}
	return max(seen, c.taken[gpu].bytes(c.spent[gpu].Got()))
}

// unsure reports whether a call fits into the limit by what is seen, but not by what the container
// took. The next reading of the usage decides.
func (g *Guard) unsure(c *container, gpu int, bytes, held uint64, calls []cudaprobe.Call) bool {
	return c.Limit > 0 && sum(held, bytes) > c.Limit && g.unlisted(c, gpu) && sum(g.seen(c, gpu, calls), bytes) <= c.Limit
}

// taken counts what a container got on one GPU since a moment when the device listed all of its
// processes: what it held then, what it spent, and what it was granted.
type taken struct{ held, spent, granted uint64 }

// bytes is the sum, with what is spent now. Memory that was given back still counts.
func (t taken) bytes(spent uint64) uint64 {
	if spent < t.spent { // calls that were under way have failed
		spent = t.spent
	}
	return sum(t.held, spent-t.spent, t.granted)
}

// listing is how long we wait, from the start of a process and from each grant, until the device
// lists it. A driver lists a process some 0.2 s after its first call, as a rule before the process
// has memory of its own. It never lists a process that takes no memory.
const listing = 5 * time.Second

// unlisted reports whether a process of the container may hold memory on a GPU whose usage does
// not list it yet.
func (g *Guard) unlisted(c *container, gpu int) bool {
	now := g.o.Now()
	for _, p := range c.processes {
		if now.Sub(p.began) < listing || now.Sub(p.took[gpu]) < listing {
			return true
		}
	}
	return false
}

// settle starts the count of what a container takes again, on GPUs where the usage shows all of it.
func (g *Guard) settle(c *container, calls []cudaprobe.Call) {
	for i, gpu := range c.GPUs {
		if !g.readable(gpu) {
			continue
		}
		for pid, p := range c.processes {
			if _, listed := g.usage[gpu].Processes[pid]; listed {
				p.began, p.took[i] = time.Time{}, time.Time{}
			}
		}
	}
	for i, gpu := range c.GPUs {
		if g.readable(gpu) && !g.unlisted(c, i) {
			c.taken[i] = taken{held: g.seen(c, i, calls), spent: c.spent[i].Got()}
		}
	}
}

// seen adds up the usage of a container's processes and what the usage does not show: promised
// and managed memory. Where pools have given out more than the usage shows, that counts:
// allocations that are recorded into a graph get their memory only later.
func (g *Guard) seen(c *container, gpu int, calls []cudaprobe.Call) uint64 {
	var shown, given, managed uint64
	for pid, bytes := range g.usage[c.GPUs[gpu]].Processes {
		if c.processes[pid] != nil {
			shown += bytes
		} else if id, ok, err := g.o.Container(pid); err == nil && ok && id == c.ID {
			shown += bytes
		}
	}
	if len(c.GPUs) == 1 { // else nobody knows on which one
		for pid := range c.processes {
			totals, err := g.kernel.TotalsOf(pid)
			g.note(err)
			given += totals.Used
			managed += totals.Managed
		}
	}
	return sum(max(shown, given), managed, g.promised(c, gpu, calls))
}

// promised is what a container's running calls ask for, and what its graphs will get when they are
// launched, on any of its GPUs.
func (g *Guard) promised(c *container, gpu int, calls []cudaprobe.Call) (bytes uint64) {
	for _, p := range c.processes {
		bytes = sum(bytes, p.graphs)
	}
	for _, call := range calls {
		if p := g.processes[call.PID]; p == nil || p.of != c || call.Held || call.Pooled {
			continue
		}
		if slot, ok := call.Slot(); !ok || slot == c.slots[gpu] {
			bytes = sum(bytes, call.Bytes)
		}
	}
	return bytes
}

// sum adds; a sum that is too large is the largest number.
func sum(all ...uint64) (total uint64) {
	for _, n := range all {
		if total+n < total {
			return math.MaxUint64
		}
		total += n
	}
	return total
}

// shut makes the kernel ask about every call of the containers that have no ceiling any more. Read
// what they hold afterwards.
func (g *Guard) shut(c *container) {
	for i, slot := range c.slots {
		if c.open[i] && g.o.Decider.Ceiling(c.ID, c.GPUs[i], c.Limit) == 0 {
			c.open[i] = false
			g.note(g.kernel.SetBudget(slot, cudaprobe.Budget{Limit: c.Limit}))
		}
	}
}

// allow sets what the kernel may pass on one GPU of a container, which holds so much there.
func (g *Guard) allow(c *container, gpu int, held uint64) {
	ceiling := min(g.o.Decider.Ceiling(c.ID, c.GPUs[gpu], c.Limit), c.most())
	c.open[gpu] = ceiling > 0
	budget := cudaprobe.Budget{Ceiling: c.spent[gpu].Bytes, Limit: c.Limit}
	switch {
	case !g.readable(c.GPUs[gpu]): // ask about every call
		budget.Limit = 0
	case ceiling > held:
		budget.Ceiling = sum(budget.Ceiling, ceiling-held)
	}
	g.note(g.kernel.SetBudget(c.slots[gpu], budget))
}

// reserve takes room for a call from what the kernel passes itself, and returns what the kernel has passed since the
// readings. Without it the kernel and the Decider could give the same room to two calls: other processes go on, and
// threads of a process that stops run for a moment.
func (g *Guard) reserve(c *container, gpu int, held, bytes uint64) (passed uint64) {
	g.allow(c, gpu, sum(held, bytes))
	spent, err := g.kernel.Spent(c.slots[gpu])
	g.note(err)
	return spent.Bytes - c.spent[gpu].Bytes
}

// refresh gives a container's slots new budgets. The order of reading is: what the slots spent,
// then calls, then the usage. So every call that passed counts at least once.
func (g *Guard) refresh(c *container, calls []cudaprobe.Call) {
	for i := range c.slots {
		g.allow(c, i, g.held(c, i, calls))
	}
	over := g.usage != nil && g.over(c, calls)
	for pid, p := range c.processes {
		if p.epoch == 0 { // it came while the usage was read: wait until its totals are
			continue
		}
		var shown uint64
		for _, gpu := range c.GPUs {
			shown += g.usage[gpu].Processes[pid]
		}
		p.most = max(p.most, shown)
		trimmed := p.most - shown
		if over {
			trimmed = math.MaxUint64 // its pools hold more than they may: no call passes unasked
		}
		on := g.contexts(c, pid)
		if g.blinded.IsZero() && !g.uncertain(p, calls) {
			var now order
			now, p.shown = p.shown.learn(p.on, on)
			g.reorder(p, now)
		}
		if g.blinded.IsZero() && p.asked && (on != 0 || g.o.Now().Sub(p.began) >= listing) {
			p.seen = p.made
		}
		g.note(g.kernel.Note(pid, p.order.of(on), trimmed, p.seen, p.epoch))
	}
}

// contexts has a bit for each GPU of the container whose usage lists one of its processes.
func (g *Guard) contexts(c *container, pid int) (on uint32) {
	for i, gpu := range c.GPUs {
		if g.usage[gpu].Processes[pid] > 0 {
			on |= 1 << i
		}
	}
	return on
}

// most is how much the container may hold on one GPU, bytes.
func (c *container) most() uint64 {
	if c.Limit == 0 {
		return math.MaxUint64
	}
	return c.Limit
}

// over reports whether a container exceeds its limit by so much that its pools may not give out
// what they hold either. A GPU that cannot be read does not count: what passed there only adds up.
func (g *Guard) over(c *container, calls []cudaprobe.Call) bool {
	for i := range c.GPUs {
		if g.readable(c.GPUs[i]) && g.held(c, i, calls) > sum(c.most(), g.o.Context) {
			return true
		}
	}
	return false
}

// count reads what the slots have spent, before anything else is read. It reports whether that has
// changed.
func (g *Guard) count(c *container) (changed bool) {
	for i, slot := range c.slots {
		spent, err := g.kernel.Spent(slot)
		g.note(err)
		changed = changed || spent != c.spent[i]
		c.spent[i] = spent
	}
	return changed
}
