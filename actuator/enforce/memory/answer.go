package memory

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// question is a call that is held.
type question struct {
	call  cudaprobe.Call
	asked time.Time // when it was first seen
	waits bool      // the Decider has said so
	// granted: it was decided that the call runs.
	granted bool
}

// idle is how often containers are looked at that do not allocate.
const idle = 250 * time.Millisecond

// blink is how long the ledger may be unreadable before allocations pass: a driver
// may fail for a moment while processes come and go.
const blink = 500 * time.Millisecond

// soon is how long after calls under way were in somebody's way it is looked again.
const soon = time.Millisecond

// onKernel takes note of what the kernel tells; it reports whether somebody has to
// be answered.
func (g *Guard) onKernel(e cudaprobe.Event) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	p := g.processes[e.PID]
	if p == nil {
		return false // it was removed at this moment, and let go; else sweep finds it
	}
	switch e.Kind {
	case cudaprobe.Held:
		g.take(p, e.TID)
		return true
	case cudaprobe.Continued:
		g.restopped[e.PID] = g.o.Now()
		return true
	case cudaprobe.Slipped:
		g.fail(p.of, "an allocation that was held ran, as somebody continued its process")
	case cudaprobe.AskedToEnd: // it cannot, while it is stopped
		for _, q := range p.pending {
			q.waits, q.asked = true, time.Time{} // long ago: it is denied now
		}
		return true
	}
	return false
}

// take notes a thread's call as held.
func (g *Guard) take(p *process, tid int) {
	call, ok, err := g.kernel.Call(tid)
	g.note(err)
	if ok && call.Held && p.pending[tid] == nil {
		p.pending[tid] = &question{call: call, asked: g.o.Now()}
	}
}

func (g *Guard) onStart(e cudaprobe.Event) {
	if e.Kind != cudaprobe.InitCalled {
		return
	}
	id, in, err := g.o.Container(e.PID)
	if err != nil || !in {
		return
	}
	g.mu.Lock()
	c := g.containers[id]
	if p := g.processes[e.PID]; p != nil && !g.closed {
		g.remove(p) // another process, or a new program in the old one
	}
	if c == nil {
		if g.earlyCount++; g.earlyCount > maxEarly { // they are found all the same, some time later
			clear(g.early)
			g.earlyCount = 1
		}
		g.early[id] = append(g.early[id], e.PID)
	}
	g.mu.Unlock()
	if c != nil {
		g.adopt(e.PID, c)
	}
}

// maxEarly bounds of how many processes it is remembered that they have called cuInit
// before anybody said that they are to be guarded.
const maxEarly = 1024

func (g *Guard) onExit(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[pid]; p != nil && !g.closed {
		g.note(g.kernel.Forget(pid))
		g.remove(p)
	}
}

// decideAll answers whatever is held, and keeps the budgets true, until ctx ends.
func (g *Guard) decideAll(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-g.again:
			all = true
		case <-timer.C:
			all = true
		}
		timer.Reset(g.step(ctx, all))
	}
}

// step answers, with a ledger that is read anew, and says how soon to look again.
func (g *Guard) step(ctx context.Context, all bool) (next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	next = idle
	if g.closed || len(g.containers) == 0 {
		return next
	}
	if all {
		g.sweep()
	}
	for _, c := range g.containers {
		g.shut(c)
	}
	began := g.o.Now()
	for _, c := range g.containers {
		if g.count(c) || len(g.restopped) > 0 {
			next = min(next, g.o.Refresh)
		}
	}
	calls := g.calls()
	g.recall()
	g.read(ctx)
	for _, c := range g.containers {
		g.settle(c, calls)
	}
	g.tell(began, calls)
	for _, c := range g.containers {
		g.refresh(c, calls)
	}
	for _, q := range g.questions() {
		p := g.processes[q.call.PID]
		again := g.answer(p, q, calls)
		if again > 0 {
			next = min(next, again)
			continue
		}
		if q.granted { // it is under way from now on, as far as the next answer goes
			q.call.Held = false
			calls = append(slices.DeleteFunc(calls, func(c cudaprobe.Call) bool { return c.TID == q.call.TID }), q.call)
			g.refresh(p.of, calls)
		}
		g.goOn(p)
	}
	g.unstop()
	return next
}

// questions are the calls that are held, the oldest first.
func (g *Guard) questions() (all []*question) {
	for _, p := range g.processes {
		for _, q := range p.pending {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *question) int { return a.call.Since.Compare(b.call.Since) })
	return all
}

// answer decides about one call. again is after which time to try once more; 0: it
// is decided.
func (g *Guard) answer(p *process, q *question, calls []cudaprobe.Call) (again time.Duration) {
	if q.call.Question() {
		g.show(p, q, calls)
		return 0
	}
	if g.blind != nil || g.usage == nil {
		if g.o.Now().Sub(g.blinded) < blink {
			return g.o.Refresh
		}
		g.fail(p.of, "the ledger of GPU memory cannot be read")
		g.grant(p, q)
		return 0
	}
	gpu, held := g.place(p.of, q.call, calls)
	waited := g.o.Now().Sub(q.asked)
	answer := Answer{Deny, "it has waited too long"}
	if !q.waits || waited < g.o.MaxWait {
		if g.unsure(p.of, gpu, q.call.Bytes, held, calls) {
			return g.o.Refresh
		}
		answer = g.o.Decider.Decide(Request{
			ContainerID: p.of.ID, PID: p.pid, TID: q.call.TID, GPU: p.of.GPUs[gpu], Bytes: q.call.Bytes,
			Function: q.call.Function(), Held: held, Limit: p.of.Limit, Since: q.call.Since,
		})
	}
	switch {
	case answer.Verdict == Wait:
		q.waits = true
		return g.o.Refresh
	case answer.Verdict == Grant:
		p.of.stats.Granted++
		p.took[gpu] = g.o.Now()
		p.of.taken[gpu].granted = sum(p.of.taken[gpu].granted, q.call.Bytes)
		g.grant(p, q)
	case waited < g.o.Settle && g.othersAllocate(p, calls):
		return soon
	default:
		g.deny(p, q, answer.Reason)
	}
	return 0
}

// place finds the GPU of a call, by its index, and what the container holds there.
// Where nobody knows, it is the one with the least room: the limit holds.
func (g *Guard) place(c *container, call cudaprobe.Call, calls []cudaprobe.Call) (gpu int, held uint64) {
	for i, slot := range c.slots {
		h := g.held(c, i, calls)
		if s, ok := call.Slot(); ok && s == slot {
			return i, h
		}
		if h >= held {
			gpu, held = i, h
		}
	}
	return gpu, held
}

// othersAllocate reports whether calls of other processes of the container are
// under way. Those of its own stand still with it.
func (g *Guard) othersAllocate(p *process, calls []cudaprobe.Call) bool {
	for _, call := range calls {
		if other := g.processes[call.PID]; other != nil && other != p && other.of == p.of && !call.Held {
			return true
		}
	}
	return false
}

func (g *Guard) grant(p *process, q *question) {
	if q.call.OfGraph() {
		if err := g.kernel.FollowGraphs(p.pid); err != nil && !proc.Ended(p.pidfd) {
			g.fail(p.of, "the memory of its graphs is not seen before their launch: "+err.Error())
		}
	}
	g.note(g.kernel.Grant(q.call))
	q.granted = true
	g.answered(p, q)
}

func (g *Guard) deny(p *process, q *question, reason string) {
	err := g.kernel.Deny(q.call)
	if errors.Is(err, cudaprobe.ErrCannotDeny) {
		g.fail(p.of, err.Error())
		g.grant(p, q)
		return
	}
	g.note(err)
	p.of.stats.Denied++
	g.o.Logger.Debug("an allocation was denied", "container", p.of.ID, "pid", p.pid, "bytes", q.call.Bytes, "why", reason)
	g.answered(p, q)
}

// show answers a question for memory with the limit and what is left of it.
func (g *Guard) show(p *process, q *question, calls []cudaprobe.Call) {
	_, held := g.place(p.of, q.call, calls)
	g.note(g.kernel.Show(q.call, p.of.Limit-min(held, p.of.Limit), p.of.Limit))
	g.answered(p, q)
}

func (g *Guard) answered(p *process, q *question) {
	delete(p.pending, q.call.TID)
	p.answered = append(p.answered, q.call)
}

// goOn continues a process none of whose calls waits any more.
func (g *Guard) goOn(p *process) {
	if len(p.pending) > 0 || len(p.answered) == 0 {
		return
	}
	g.note(g.kernel.Continue(p.pid, p.pidfd, p.answered))
	p.answered = nil
}

// fail counts an allocation that runs though it should not, and tells why.
func (g *Guard) fail(c *container, why string) {
	c.stats.FailedOpen++
	g.o.Logger.Warn("a GPU memory limit may be exceeded", "container", c.ID, "why", why)
	g.o.Failed(c.ID, why)
}

// sweep finds holds of which nobody has told, as there was no room for the event, and
// lets go those about which nobody can decide: their processes were dropped, or are
// guarded anew because another program runs in them, in the moment in which they began.
func (g *Guard) sweep() {
	held, err := g.kernel.List()
	g.note(err)
	if len(held) == 0 {
		return
	}
	for _, call := range g.calls() {
		if p := g.processes[call.PID]; p != nil && call.Held {
			g.take(p, call.TID)
		}
	}
	looked := map[int]bool{} // a process may be on record more than once
	for _, h := range held {
		p := g.processes[h.PID]
		if looked[h.PID] || p != nil && len(p.pending) > 0 {
			continue // where calls wait it stands still all the same
		}
		looked[h.PID] = true
		switch lost := g.kernel.Lost(h.PID); {
		case len(lost) == 0:
		case p != nil:
			p.answered = append(p.answered, lost...)
			g.goOn(p)
		default:
			g.letGo(h, lost)
		}
	}
}

// letGo ends holds of a process that nobody guards.
func (g *Guard) letGo(h cudaprobe.HeldProcess, holds []cudaprobe.Call) {
	pidfd, err := unix.PidfdOpen(h.PID, 0)
	if err != nil {
		g.note(g.kernel.Forget(h.PID)) // gone
		return
	}
	defer unix.Close(pidfd)
	if s, ok := proc.ReadStat(g.o.Proc, h.PID); !ok || !s.Began(h.Start) {
		g.note(g.kernel.Forget(h.PID)) // another one has its PID
		return
	}
	g.note(g.kernel.Continue(h.PID, pidfd, holds))
}

// unstop continues those that were stopped again an instant after their holds had
// ended.
func (g *Guard) unstop() {
	const window = 300 * time.Millisecond // a busy machine may not turn to it for a while
	for pid, since := range g.restopped {
		p := g.processes[pid]
		done := p == nil || g.o.Now().Sub(since) > window
		if !done && len(p.pending) == 0 {
			var err error
			done, err = g.kernel.Again(pid, p.pidfd, g.o.Proc)
			g.note(err)
		}
		if done {
			delete(g.restopped, pid)
		}
	}
}
