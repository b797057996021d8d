package actuator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/aside"
)

// makePlan decides on what is true now and sets the actions going.
func (l *loop) makePlan(ctx context.Context, now time.Time) {
	in := l.input(now)
	l.divide(ctx, in)
	l.floor.Share = l.Config().BatchFloor
	in.Beside = l.floor.Grant(in)
	l.besideBy = in.Beside
	p := plan.Make(in)
	l.keepMemory(in, p, now)
	for g, ids := range p.May() {
		for _, id := range ids {
			if !slices.Contains(l.admitted[g], id) && !slices.Contains(l.beside[g], id) {
				l.since[id] = now
			}
		}
	}
	if p.Preempted != "" {
		l.metrics.Preemptions.Inc()
	}
	l.admitted, l.beside, l.line, l.waits = p.Admitted, p.Beside, p.Line, p.Waits
	if !l.arrived.IsZero() {
		l.metrics.Decision.Observe(l.o.Now().Sub(l.arrived).Seconds())
		l.planned, l.arrived = l.arrived, time.Time{} // once for each snapshot
	}
	l.renew(now)
	for _, a := range p.Actions {
		l.begin(ctx, now, a)
	}
	l.planned = time.Time{}
}

// input puts together what a plan depends on.
func (l *loop) input(now time.Time) plan.Input {
	c := l.Config()
	in := c.Input(now)
	for _, g := range l.snap.GPUs {
		in.GPUs = append(in.GPUs, plan.GPU{
			UUID:        g.UUID,
			Utilization: float64(g.Utilization),
			Memory:      memoryShare(g),
			Fresh:       l.fresh(g.UUID, c.Settle),
			Arbitrated:  l.arbitrated(g.UUID) && !l.divides(),
			Relieve:     l.wished(state.WishRelieve, g.UUID),
			Admitted:    l.admitted[g.UUID],
		})
	}
	tasks := map[string][]task.Task{}
	for _, t := range l.snap.Tasks {
		if t.State.Unfinished() {
			tasks[t.ContainerID] = append(tasks[t.ContainerID], t)
		}
	}
	for _, s := range l.snap.Containers {
		in.Containers = append(in.Containers, l.container(s, tasks[s.ID], now))
	}
	l.planMemory(&in)
	return in
}

func (l *loop) container(s task.Container, tasks []task.Task, now time.Time) plan.Container {
	c := plan.Container{
		ID: s.ID, Name: s.Name, Tasks: tasks,
		Managed: l.managed(s), Never: s.Spec.NeverPause,
		Standing: l.standing(s, now), Since: l.since[s.ID],
		Batch: s.Spec.Class == task.ClassBatch, Server: server(s), NoMemory: useNoMemory(tasks, now),
	}
	l.foresee(&c, s, now)
	if h, ok := l.holds[s.ID]; ok && c.Standing == plan.Ours {
		c.Cause, c.Since = plan.Cause(h.Cause), h.Since
	}
	if e, ok := l.book.Exemption(s.ID); ok {
		c.Exempt = e.Reason
	}
	if !l.guard.mayHold() {
		c.Exempt = "no guardian watches, so nothing is held"
	}
	if why := l.breaker.open(now); why != "" {
		c.Exempt = why
	}
	if !l.tenure.ours() {
		c.Exempt = l.tenure.why
	}
	if lease, ok := l.book.Find(state.WishExpedite, func(target string) bool { return target == s.ID }); ok && l.Config().scheme().expedites {
		c.Expedite = lease.Asks()
	}
	if lease, ok := l.book.Find(state.WishPause, func(target string) bool { return target == s.ID }); ok {
		c.Asked = lease.Asks()
	}
	return c
}

// listed is how long after its start the device lists a task at the latest, if it lists any.
const listed = time.Second

// useNoMemory reports whether none of the tasks uses GPU memory yet, as paper P3 has
// it. Where the device does not say, they do after a moment.
func useNoMemory(tasks []task.Task, now time.Time) bool {
	return len(tasks) > 0 && !slices.ContainsFunc(tasks, func(t task.Task) bool {
		for _, bytes := range t.MemoryUsed {
			if bytes > 0 {
				return true
			}
		}
		return now.Sub(t.Start.Time) >= listed
	})
}

// server reports whether the container's tasks are requests whose deadlines count.
func server(s task.Container) bool {
	return s.Spec.Release == task.ReleaseBusy && s.Spec.Class != task.ClassBatch
}

// believe is how long our own unpause counts for more than a snapshot that still
// says paused; and as long as the exporter cannot read the engine.
const believe = 2 * time.Second

// standing says whose doing it is that a container does not run. Where we have
// acted, our own knowledge is younger than the snapshot.
func (l *loop) standing(c task.Container, now time.Time) plan.Standing {
	if l.mem.swaps.isOut(c.ID) {
		return plan.Ours
	}
	if f, ok := l.flying[c.ID]; ok && f.kind != look && f.kind != inquire {
		if f.kind == plan.Pause {
			return plan.Ours
		}
		return plan.Runs
	}
	if _, ok := l.holds[c.ID]; ok {
		return plan.Ours
	}
	if t, ok := l.freed[c.ID]; ok && (now.Sub(t) < believe || !l.snap.Health.EngineUp) {
		return plan.Runs
	}
	if c.Paused {
		return plan.Somebody
	}
	return plan.Runs
}

func (l *loop) arbitrated(gpu string) bool {
	switch l.Config().Arbitrate {
	case Always:
		return true
	case Never:
		return false
	default:
		return l.wished(state.WishArbitrate, gpu)
	}
}

func (l *loop) wished(w state.Wish, target string) bool {
	_, ok := l.book.Find(w, func(t string) bool { return t == target })
	return ok
}

// fresh reports whether the snapshot's samples of the GPU show the effect of the
// last action on it.
func (l *loop) fresh(gpu string, settle time.Duration) bool {
	for _, f := range l.flying {
		if f.kind != look && f.kind != inquire && slices.Contains(f.gpus, gpu) {
			return false
		}
	}
	t, acted := l.lastAct[gpu]
	return !acted || !l.snap.Time.Before(t.Add(settle))
}

// names says which containers these ids are, for people.
func (l *loop) names(ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if c, ok := l.snap.FindContainer(id); ok {
			out = append(out, c.Name)
		}
	}
	return out
}

// asideEvery is how often the folders of state and channels are looked through for what was put aside.
const asideEvery = 10 * time.Second

// lookAside names what was put aside: by this program, its guardian, or a former one.
func (l *loop) lookAside(now time.Time) []string {
	if l.asideAt.IsZero() || now.Sub(l.asideAt) >= asideEvery {
		names := slices.Concat(aside.List(l.o.StateDir), channels.PutAside(channelsDir(l.o.RunDir, l.o.StateDir)))
		slices.Sort(names)
		l.asideAt, l.putAside = now, slices.Compact(names) // both folders may be one
	}
	return l.putAside
}

// publish makes the present state readable by others.
func (l *loop) publish(now time.Time) {
	c := l.Config()
	s := emptyState()
	s.Time, s.Node, s.DryRun, s.Policy, s.Share, s.Arbitrate = now, l.node(), l.o.DryRun, c.Policy, c.rule().Name(), c.Arbitrate
	s.Leases, s.Exemptions, s.Drained = l.book.Leases(), l.book.Exemptions(), l.wished(state.WishDrain, l.node())
	s.GuardianUp, s.Inbox, s.Trouble = l.guard.up.Load(), l.inbox.Len(), l.trouble
	s.MemoryShare, s.MemoryGuard, s.Swap = c.MemoryShare, l.mem.why(), l.mem.swaps != nil
	s.PutAside = l.lookAside(now)
	s.Hold, s.NoChannels = l.holdNow(), l.o.NoChannels
	s.Lacks = slices.Concat(l.o.Lacks, l.guard.lacks)
	s.Breaker = l.breaker.open(now)
	if !l.tenure.ours() {
		s.Standby = l.tenure.why
	}
	s.Ready = l.snap != nil && l.trouble == "" && l.guard.mayHold() && s.Standby == ""
	for _, id := range slices.Sorted(maps.Keys(l.holds)) {
		s.Holds = append(s.Holds, l.holds[id].Hold)
	}
	if l.snap == nil {
		l.published.Store(s)
		return
	}
	s.SnapshotSequence, s.SnapshotTime = l.snap.Sequence, l.snap.Time
	for _, g := range l.snap.GPUs {
		s.GPUs = append(s.GPUs, GPUState{
			UUID: g.UUID, Name: g.Name, Utilization: g.Utilization, Memory: task.Seconds(memoryShare(g)),
			Tasks: len(l.snap.TasksOn(g.UUID)), Arbitrated: l.arbitrated(g.UUID),
			Relieve: l.wished(state.WishRelieve, g.UUID), Admitted: l.names(slices.Concat(l.admitted[g.UUID], l.beside[g.UUID])), Line: l.names(l.line[g.UUID]),
			Order: l.names(l.channels.order(g.UUID)),
		})
	}
	for _, c := range l.snap.Containers {
		s.Containers = append(s.Containers, l.containerState(c, now))
	}
	l.published.Store(s)
}

func (l *loop) containerState(c task.Container, now time.Time) ContainerState {
	cs := ContainerState{
		ID: c.ID, Name: c.Name, Managed: l.managed(c), NeverPause: c.Spec.NeverPause,
		Standing: l.standing(c, now), Waits: l.waits[c.ID].Reason,
	}
	cs.Tasks = l.unfinished(c.ID)
	if cs.Beside = l.besideBy[c.ID]; cs.Managed && server(c) {
		cs.Beside = "its tasks are requests, which are not held for others, nor others for them"
	}
	l.orderState(&cs)
	l.memoryState(&cs, c)
	return cs
}
