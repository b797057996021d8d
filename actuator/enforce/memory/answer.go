package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// question is a call that is held.
type question struct {
	call  cudaprobe.Call
	asked time.Time // when we first saw it
	waits bool      // the Decider has said so
	why   string    // why it waits, for people
	// granted: the call may run.
	granted bool
	tried   bool // to follow the graphs of its process, for this call
}

const (
	// idle is how often we inspect containers that do not allocate.
	idle = 250 * time.Millisecond
	// blink is how long the usage, or that of one GPU, may be unreadable before all allocations there
	// pass: a driver may fail for a moment while processes come and go.
	blink = 500 * time.Millisecond
	// hangs is how long one reading may take. While many programs start, a driver that works has taken
	// 0.9 s. It must be below guardLease, as targets are taken between readings.
	hangs = 2 * time.Second
	// soon is how long we wait before the next try when calls under way, or running threads, were
	// in the way.
	soon = time.Millisecond
	// halting is how long the threads of a stopped process may take to stop.
	halting = 50 * time.Millisecond
)

// onKernel handles an event of the kernel programs. It returns true if a call may need an answer;
// the record says which.
func (g *Guard) onKernel(e cudaprobe.MemoryEvent) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if p := g.processes[e.PID]; p != nil && e.Slipped {
		g.fail(p.of, "an allocation that was held ran, as somebody continued its process")
	}
	return true
}

// decideAll applies Cover, answers held calls and keeps the budgets up to date until ctx ends.
func (g *Guard) decideAll(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select { // first, so that it is taken once a step: Service renews the guard's lease only then
		case <-g.handed:
			g.cover()
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-g.handed:
			g.cover()
			continue
		case <-wake:
		case <-g.again:
		case <-timer.C:
		}
		g.tryMissed()
		timer.Reset(g.step(ctx))
	}
}

// step reads the usage, answers held calls, and returns how soon to call it again. It reads without
// the lock, because a driver call may hang.
func (g *Guard) step(ctx context.Context) (next time.Duration) {
	s, ok := g.gather()
	if !ok {
		return idle
	}
	var u reading
	if s.reads {
		u = g.readUsage(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || ctx.Err() != nil {
		return idle
	}
	if s.reads {
		g.onUsage(u)
	}
	return min(s.next, g.decide(s))
}

// gathered is what was read before the usage.
type gathered struct {
	began time.Time
	calls []cudaprobe.Call
	reads bool          // there are containers whose usage counts
	next  time.Duration // how soon to gather again
}

// gather reads what must be read before the usage. It returns false once the guard is closed.
func (g *Guard) gather() (s gathered, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return s, false
	}
	holds := g.listHolds() // before the calls: each hold that can be answered has its call
	for _, c := range g.containers {
		g.shut(c)
	}
	s = gathered{began: g.o.Now(), next: idle, reads: len(g.containers) > 0}
	for _, c := range g.containers {
		if g.count(c) {
			s.next = min(s.next, g.o.Refresh)
		}
	}
	s.calls = g.calls()
	g.sort(holds)
	g.publish() // before the usage is read, which may take its time
	if s.reads {
		g.recall()
	}
	return s, true
}

// decide gives out budgets and answers by the present usage, and returns how soon to step again.
func (g *Guard) decide(s gathered) (next time.Duration) {
	for _, c := range g.containers {
		g.settle(c, s.calls)
		g.recover(c, s)
	}
	g.report(s.began, s.calls)
	for _, c := range g.containers {
		g.refresh(c, s.calls)
	}
	next = g.answerAll(s.calls)
	for _, p := range g.processes {
		next = min(next, g.end(p))
	}
	g.publish()
	return next
}

// listHolds reads the record.
func (g *Guard) listHolds() []stop.Hold {
	holds, err := g.record.List()
	g.note(err)
	return holds
}

// sort turns holds that can be answered into questions. The other holds count as decided: their
// call, program or process is over. Holds of processes that are not guarded end at once.
func (g *Guard) sort(holds []stop.Hold) {
	foreign := false
	for _, p := range g.processes {
		p.keepOnly(holds)
	}
	g.renew(holds)
	for _, h := range holds {
		p := g.processes[h.PID]
		if p == nil || !p.is(h) {
			foreign = true
			continue
		}
		if h.Phase != stop.Stopped {
			continue
		}
		if p.decided[h.Key()] || p.pending[h.Key()] != nil {
			continue
		}
		call, held, err := g.kernel.Held(h.PID, h.TID, h.At)
		switch {
		case err != nil:
			g.note(err)
		case held:
			p.pending[h.Key()] = &question{call: call, asked: g.o.Now()}
		default:
			p.decided[h.Key()] = true
		}
	}
	if foreign {
		_, err := g.record.EndAll(g.o.Proc, func(h stop.Hold) bool {
			p := g.processes[h.PID]
			return p == nil || !p.is(h)
		})
		g.note(err)
	}
}

// renew renews the leases of the holds of guarded processes.
func (g *Guard) renew(holds []stop.Hold) {
	now := stop.Now()
	for _, h := range holds {
		if p := g.processes[h.PID]; p != nil && p.is(h) && h.Phase == stop.Stopped && h.Lease < now+stop.Lease/2 {
			g.note(g.record.Renew(h, now+stop.Lease))
		}
	}
}

// answerAll answers the questions, the oldest first.
func (g *Guard) answerAll(calls []cudaprobe.Call) (next time.Duration) {
	next = idle
	for _, q := range g.questions() {
		p := g.processes[q.call.PID]
		if g.slipped(q) { // an answer would be one to the thread's next call
			p.drop(q)
			continue
		}
		if again := g.answer(p, q, calls); again > 0 {
			next = min(next, again)
			continue
		}
		if q.granted { // for the next answer it counts as under way
			q.call.Held = false
			calls = append(slices.DeleteFunc(slices.Clone(calls), func(c cudaprobe.Call) bool { return c.TID == q.call.TID }), q.call)
			g.refresh(p.of, calls)
		}
	}
	return next
}

// slipped reports whether a held call is not held any more: somebody else continued its process.
func (g *Guard) slipped(q *question) bool {
	_, held, err := g.kernel.Held(q.call.PID, q.call.TID, q.call.At)
	g.note(err)
	return err == nil && !held
}

// questions lists the held calls, oldest first.
func (g *Guard) questions() (all []*question) {
	for _, p := range g.processes {
		for _, q := range p.pending {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *question) int { return int(a.call.At - b.call.At) })
	return all
}

// answer decides one call. again is how long to wait before the next try; 0 means that the call is
// decided.
func (g *Guard) answer(p *process, q *question, calls []cudaprobe.Call) (again time.Duration) {
	if q.call.Question() {
		g.show(p, q, calls)
		return 0
	}
	if q.call.OfGraph() && !g.follow(p, q) {
		q.why = "the probes that follow its graphs are being put on"
		return g.o.Refresh
	}
	gpu, held := g.place(p.of, q.call, calls)
	if what, since := g.unread(p.of.GPUs[gpu]); what != "" {
		if g.o.Now().Sub(since) < blink {
			q.why = what + " cannot be read"
			return g.o.Refresh
		}
		g.failUnread(p.of, what+" cannot be read")
		g.pass(p, q, gpu)
		return 0
	}
	waited := g.o.Now().Sub(q.asked)
	answer, passed := Answer{Deny, "it has waited too long"}, uint64(0)
	switch {
	case q.waits && g.askedToEnd(p):
		answer.Reason = "its process was asked to end, and cannot while it stands"
	case !q.waits || waited < time.Duration(g.maxWait.Load()):
		if g.unsure(p.of, gpu, q.call.Bytes, held, calls) {
			q.why = "it is near its limit, and the GPU does not list all of its processes yet"
			return g.o.Refresh
		}
		passed = g.reserve(p.of, gpu, held, q.call.Bytes)
		answer = g.o.Decider.Decide(Request{
			ContainerID: p.of.ID, PID: p.pid, TID: q.call.TID, GPU: p.of.GPUs[gpu], Bytes: q.call.Bytes,
			Function: q.call.Function(), Held: sum(held, passed), Limit: p.of.Limit, Since: q.call.Since,
		})
		if answer.Verdict != Grant {
			g.allow(p.of, gpu, held)
		}
	}
	switch {
	case answer.Verdict == Wait:
		q.waits, q.why = true, answer.Reason
		return g.o.Refresh
	case answer.Verdict == Grant:
		p.of.stats.Granted++
		g.pass(p, q, gpu)
	case waited < g.o.Settle && (passed > 0 || g.othersAllocate(p, calls)):
		return soon // what the others get may fail
	default:
		g.deny(p, q, answer.Reason)
	}
	return 0
}

// askedToEnd reports whether a signal is pending that asks the process to end. A stopped process
// does not receive it.
func (g *Guard) askedToEnd(p *process) bool {
	pending, err := p.opened.Pending()
	return err == nil && pending.End
}

// place finds the GPU of a call by its index, and what the container holds there. Where the index
// is not known, it takes the GPU with the least room, so that the limit holds. It takes one that
// cannot be read only where none can be: else calls on the others would pass.
func (g *Guard) place(c *container, call cudaprobe.Call, calls []cudaprobe.Call) (gpu int, held uint64) {
	readable := false
	for i, slot := range c.slots {
		h := g.held(c, i, calls)
		if s, ok := call.Slot(); ok && s == slot {
			return i, h
		}
		if r := g.readable(c.GPUs[i]); r && !readable || r == readable && h >= held {
			gpu, held, readable = i, h, r
		}
	}
	return gpu, held
}

// othersAllocate reports whether other processes of the container have calls under way. Its own
// calls are stopped with it.
func (g *Guard) othersAllocate(p *process, calls []cudaprobe.Call) bool {
	for _, call := range calls {
		if other := g.processes[call.PID]; other != nil && other != p && other.of == p.of && !call.Held {
			return true
		}
	}
	return false
}

// pass grants a call, which counts on this GPU until the usage lists its process.
func (g *Guard) pass(p *process, q *question, gpu int) {
	p.took[gpu] = g.o.Now()
	granted := &p.of.taken[gpu].granted
	*granted = sum(*granted, q.call.Bytes)
	if !g.readable(p.of.GPUs[gpu]) { // what is given back there is not seen
		*granted = min(*granted, p.of.most())
	}
	g.grant(p, q)
}

func (g *Guard) grant(p *process, q *question) {
	if q.call.OfGraph() && !p.followed && p.alive() {
		g.fail(p.of, "the memory of its graphs is not seen before their launch: "+p.unfollowed.Error())
	}
	g.note(g.kernel.Grant(q.call))
	q.granted = true
	p.answered(q)
}

func (g *Guard) deny(p *process, q *question, reason string) {
	err := g.kernel.Deny(q.call, p.alive)
	if errors.Is(err, cudaprobe.ErrCannotDeny) {
		if p.alive() {
			g.fail(p.of, err.Error())
		}
		g.grant(p, q)
		return
	}
	g.note(err)
	p.of.stats.Denied++
	g.o.Logger.Debug("an allocation was denied", "container", p.of.ID, "pid", p.pid, "bytes", q.call.Bytes, "why", reason)
	p.answered(q)
}

// show answers a question for memory with the limit and what is left of it.
func (g *Guard) show(p *process, q *question, calls []cudaprobe.Call) {
	_, held := g.place(p.of, q.call, calls)
	if err := g.kernel.Show(q.call, p.of.Limit-min(held, p.of.Limit), p.of.Limit, p.alive); err != nil && p.alive() {
		g.o.Logger.Warn("a process sees how much memory the GPU has, not its limit", "container", p.of.ID, "pid", p.pid, "why", err)
	}
	p.answered(q)
}

// end ends the holds of a process once all of them are decided. next is when to try again.
func (g *Guard) end(p *process) (next time.Duration) {
	if len(p.pending) > 0 || len(p.decided) == 0 {
		return idle
	}
	threads, err := p.opened.Threads()
	if err != nil {
		clear(p.decided) // it has ended; its exit removes it
		return idle
	}
	if p.halting.IsZero() {
		p.halting = g.o.Now()
	}
	// A thread that runs may be about to begin another hold, which SIGCONT would end too.
	if g.o.Now().Sub(p.halting) > halting {
		threads.Running = false
	}
	holds := g.holdsOf(p)
	if !stop.Ready(holds, func(k stop.Key) bool { return p.decided[k] }, threads) {
		return soon
	}
	g.note(g.record.End(p.opened, holds))
	clear(p.decided)
	p.halting = time.Time{}
	return idle
}

func (g *Guard) holdsOf(p *process) []stop.Hold {
	return slices.DeleteFunc(g.listHolds(), func(h stop.Hold) bool { return !p.is(h) })
}

// endAllOf ends all holds of a process that is no longer guarded.
func (g *Guard) endAllOf(p *process) {
	if holds := g.holdsOf(p); len(holds) > 0 {
		g.note(g.record.End(p.opened, holds))
	}
}

// fail counts an allocation that runs although it should not, and reports why.
func (g *Guard) fail(c *container, why string) {
	g.failOpen(c, why)
	g.o.Failed(c.ID, why)
}

func (g *Guard) failOpen(c *container, why string) {
	c.stats.FailedOpen++
	g.o.Logger.Warn("a GPU memory limit may be exceeded", "container", c.ID, "why", why)
}

// keepOnly drops questions and answers whose holds are no longer on record: the guardian ended
// them, or the process ended.
func (p *process) keepOnly(holds []stop.Hold) {
	gone := func(k stop.Key) bool {
		return !slices.ContainsFunc(holds, func(h stop.Hold) bool { return h.Key() == k && h.Phase == stop.Stopped })
	}
	maps.DeleteFunc(p.decided, func(k stop.Key, _ bool) bool { return gone(k) })
	maps.DeleteFunc(p.pending, func(k stop.Key, _ *question) bool { return gone(k) })
}
