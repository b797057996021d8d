package core

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// turns is the result of the last plan for containers that take turns on a GPU.
type turns struct {
	admitted map[string][]string  // by GPU: containers that may run, in the order of admission
	beside   map[string][]string  // by GPU: containers that run and take no turn
	queue    map[string][]string  // by GPU: containers that wait, in order
	since    map[string]time.Time // by container id: when it was last released
	besideBy map[string]string    // by container id: why it runs beside those in turn
	waits    map[string]plan.Wait
	floor    plan.Floor
}

func newTurns() turns {
	return turns{admitted: map[string][]string{}, since: map[string]time.Time{}, waits: map[string]plan.Wait{}}
}

// keep forgets containers that are gone.
func (t *turns) keep(present map[string]bool) {
	maps.DeleteFunc(t.since, func(id string, _ time.Time) bool { _, known := present[id]; return !known })
}

// plan plans with the present facts, and starts the actions.
func (k *Core) plan() {
	k.usage.measure(k.facts.snap)
	in := k.input()
	if !k.divides() {
		for i, g := range in.GPUs {
			in.GPUs[i].Greedy = k.usage.judge(g.UUID).Greedy(unheld(in.Containers))
		}
	}
	k.judgeDeadlines(in)
	k.divide(in)
	t := &k.turns
	t.floor.Share = k.config.BatchFloor
	in.Beside = t.floor.Grant(in)
	t.besideBy = in.Beside
	p := plan.Make(in)
	k.keepMemory(in, p)
	for g, ids := range p.May() {
		for _, id := range ids {
			if !slices.Contains(t.admitted[g], id) && !slices.Contains(t.beside[g], id) {
				t.since[id] = k.now
			}
		}
	}
	if p.Preempted != "" {
		k.count(Preemptions, 1)
	}
	t.admitted, t.beside, t.queue, t.waits = p.Admitted, p.Beside, p.Queue, p.Waits
	f := &k.facts
	if !f.arrived.IsZero() { // once per snapshot
		k.out.Planned, f.planned, f.arrived = f.arrived, f.arrived, time.Time{}
	}
	k.renew()
	for _, a := range p.Actions {
		k.begin(a)
	}
	f.planned = time.Time{}
}

// input collects what a plan depends on.
func (k *Core) input() plan.Input {
	c, s := k.config, k.facts.snap
	in := c.Input(k.now)
	for _, g := range s.GPUs {
		in.GPUs = append(in.GPUs, plan.GPU{
			UUID:        g.UUID,
			Utilization: float64(g.Utilization),
			Memory:      memoryShare(g),
			Fresh:       k.fresh(g.UUID, c.Settle),
			Arbitrated:  k.arbitrated(g.UUID) && !k.divides() && !k.awaitsLabels(g.UUID),
			Relieve:     k.wished(lease.Relieve, g.UUID),
			Admitted:    k.turns.admitted[g.UUID],
		})
	}
	tasks := map[string][]task.Task{}
	for _, t := range s.Tasks {
		if t.State.Unfinished() {
			tasks[t.ContainerID] = append(tasks[t.ContainerID], t)
		}
	}
	for _, c := range s.Containers {
		in.Containers = append(in.Containers, k.container(c, tasks[c.ID]))
	}
	k.planMemory(&in)
	return in
}

// unheld are the containers that must not be held, by id.
func unheld(all []plan.Container) (ids []string) {
	for _, c := range all {
		if !c.Controllable() {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func (k *Core) container(s task.Container, tasks []task.Task) plan.Container {
	c := plan.Container{
		ID: s.ID, Name: s.Name, Tasks: tasks,
		Managed: k.managed(s), Never: s.Spec.NeverPause,
		Standing: k.standing(s), Since: k.turns.since[s.ID],
		Batch: s.Spec.Class == task.ClassBatch, Server: server(s), NoMemory: useNoMemory(tasks, k.now),
	}
	k.foresee(&c, s)
	if h, ok := k.holds.byID[s.ID]; ok && c.Standing == plan.Ours {
		c.Cause, c.Since = plan.Cause(h.Cause), h.Since
	}
	if e, ok := k.leases.Exemption(s.ID); ok {
		c.Exempt = e.Reason
	}
	if !k.around.MayHold {
		c.Exempt = "no guardian watches, so nothing is held"
	}
	if why := k.breaker.open(k.now); why != "" {
		c.Exempt = why
	}
	if !k.leadership.leads {
		c.Exempt = k.leadership.why
	}
	if l, ok := k.asked(lease.Expedite, s.ID); ok && k.config.Profile().Expedites {
		c.Expedite = l.Asks()
	}
	if l, ok := k.asked(lease.Pause, s.ID); ok {
		c.Asked = l.Asks()
	}
	if c.Exempt == "" && c.Asked == "" && !k.divides() { // of a gang a pause takes one container, and the others would wait for it
		_, c.Exempt = k.aside(s)
	}
	return c
}

// foresee adds what history says about a container.
func (k *Core) foresee(c *plan.Container, s task.Container) {
	kind := estimate.Kind{Image: s.Image, CommandID: s.CommandID}
	c.Estimates = map[string]plan.Estimate{}
	for _, t := range c.Tasks {
		if e, ok := k.history.Remaining(t, kind, k.now); ok {
			c.Estimates[t.ID] = plan.Estimate{Remaining: e.Remaining, Least: e.Least, Total: e.Total}
		}
	}
	demand, ok := k.history.Demand(kind)
	c.Demand = onGPUs(c.Tasks, demand, ok)
	mean, ok := k.history.Mean(kind)
	c.Mean = onGPUs(c.Tasks, mean, ok)
}

// onGPUs returns the share for every GPU of the tasks; nil if it is not known.
func onGPUs(tasks []task.Task, share float64, known bool) map[string]float64 {
	if !known {
		return nil
	}
	on := map[string]float64{}
	for _, t := range tasks {
		for _, g := range t.GPUs {
			on[g] = share
		}
	}
	return on
}

// listed is how long after its start a task appears in the device's list at the latest, if the
// device lists any.
const listed = time.Second

// useNoMemory reports whether none of the tasks uses GPU memory yet, in the sense of paper P3. If
// the device does not say, tasks count as using memory after a moment.
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

// believe is how long our own unpause counts for more than a snapshot that still says paused;
// longer while the exporter cannot read the engine.
const believe = 2 * time.Second

// standing says who stopped a container that does not run. After an action of ours, our own
// knowledge is younger than the snapshot.
func (k *Core) standing(c task.Container) plan.Standing {
	if k.memory.swaps.isOut(c.ID) {
		return plan.Ours
	}
	if f, ok := k.holds.flying[c.ID]; ok && f.changes() {
		if f.kind == plan.Pause {
			return plan.Ours
		}
		return plan.Runs
	}
	if _, ok := k.holds.byID[c.ID]; ok {
		return plan.Ours
	}
	if t, ok := k.holds.freed[c.ID]; ok && (k.now.Sub(t) < believe || !k.facts.snap.Health.EngineUp) {
		return plan.Runs
	}
	if c.Paused {
		return plan.Somebody
	}
	return plan.Runs
}
