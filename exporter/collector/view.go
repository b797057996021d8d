package collector

import (
	"cmp"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// view is a snapshot arranged by container, in the order in which the limit on
// series serves them: those with unfinished tasks first. Like its page it is written
// again by each scrape.
type view struct {
	containers []*containerView
	byID       map[string]*containerView
	byName     map[string]string // container name → id
	made       []*containerView  // so far, of which used are this scrape's
	used       int
}

type containerView struct {
	id, name string
	live     bool
	facts    *task.Container // empty unless live
	gpus     []string        // that get series, sorted
	tasks    []*task.Task    // unfinished
	ended    []*task.Task    // latest first; not lost ones
}

// gone has the facts of a container that is: none.
var gone task.Container

// add adds a container; nil facts: one that is gone.
func (v *view) add(id, name string, facts *task.Container) *containerView {
	if v.used == len(v.made) {
		v.made = append(v.made, &containerView{})
	}
	c := v.made[v.used]
	v.used++
	*c = containerView{id: id, name: name, live: facts != nil, facts: facts,
		gpus: c.gpus[:0], tasks: c.tasks[:0], ended: c.ended[:0]}
	if !c.live {
		c.facts = &gone
	}
	v.byID[id], v.byName[name] = c, id
	return c
}

// of returns the container of a task, nil where another one has its name.
func (v *view) of(t *task.Task) *containerView {
	if c := v.byID[t.ContainerID]; c != nil {
		return c
	}
	if id, taken := v.byName[t.Container]; taken && id != t.ContainerID {
		return nil
	}
	return v.add(t.ContainerID, t.Container, nil)
}

// arrange arranges s in the place of what was there. A container that is gone stays for
// the retention after its last end, unless a new one has its name.
func (v *view) arrange(s *task.Snapshot, now time.Time, retention time.Duration) {
	v.clear()
	for i := range s.Containers {
		c := &s.Containers[i]
		// Two of one name would spoil the scrape: while the engine's events are
		// on their way a container and its successor can both be there.
		delete(v.byID, v.byName[c.Name])
		v.add(c.ID, c.Name, c)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if c := v.of(t); c != nil {
			c.tasks = append(c.tasks, t)
		}
	}
	for i := range s.Ended {
		t := &s.Ended[i]
		if v.byID[t.ContainerID] == nil && now.Sub(t.End.Time) > retention {
			continue
		}
		if c := v.of(t); c != nil && t.State == task.Ended {
			c.ended = append(c.ended, t)
		}
	}
	for _, c := range v.byID {
		c.findGPUs(s)
		v.containers = append(v.containers, c)
	}
	slices.SortFunc(v.containers, func(a, b *containerView) int {
		return cmp.Or(-cmp.Compare(len(a.tasks), len(b.tasks)), cmp.Compare(a.name, b.name))
	})
}

// clear forgets the last scrape and keeps the room that it took.
func (v *view) clear() {
	if v.byID == nil {
		v.byID, v.byName = map[string]*containerView{}, map[string]string{}
	}
	clear(v.byID)
	clear(v.byName)
	v.containers, v.used = v.containers[:0], 0
}

// findGPUs finds the GPUs on which the container has, had or may have tasks.
func (v *containerView) findGPUs(s *task.Snapshot) {
	out := v.gpus[:0]
	out = append(out, v.facts.VisibleGPUs...)
	for _, list := range [...][]*task.Task{v.tasks, v.ended} {
		for _, t := range list {
			out = append(out, t.GPUs...)
		}
	}
	for gpu := range v.facts.MemoryUsed {
		out = append(out, gpu)
	}
	if len(out) == 0 && v.facts.Spec.Managed && len(s.GPUs) == 1 {
		out = append(out, s.GPUs[0].UUID)
	}
	slices.Sort(out)
	v.gpus = slices.Compact(out)
}

// publish publishes everything of one container but its counts.
func (v *containerView) publish(p *page, labels *boxLabels, s *task.Snapshot, now time.Time) {
	if v.live && (v.facts.Spec.Managed || len(v.gpus) > 0) {
		p.set(famContainerInfo, 1, labels.info...)
		if n := len(v.facts.Invalid); n > 0 {
			p.set(famInvalid, float64(n), labels.container...)
		}
		if d := v.facts.Spec.Deadline; d > 0 {
			p.set(famContainerDeadline, float64(d), labels.container...)
		}
	}
	for _, gpu := range v.gpus {
		on := labels.on(gpu)
		if v.live || len(v.tasks) > 0 {
			v.states(p, gpu, on)
			v.urgent(p, gpu, on.alone, now)
		}
		v.last(p, gpu, on.alone)
		if !s.Health.DeviceUp {
			continue
		}
		if m, ok := v.facts.MemoryUsed[gpu]; ok {
			p.set(famContainerMemory, float64(m), on.alone...)
		}
		if u, ok := v.facts.SMUtilization[gpu]; ok {
			p.set(famContainerSM, u, on.alone...)
		}
	}
}

func (v *containerView) states(p *page, gpu string, on pair) {
	for i, state := range task.UnfinishedStates {
		n := 0
		for _, t := range v.tasks {
			if t.State == state && slices.Contains(t.GPUs, gpu) {
				n++
			}
		}
		p.set(famTasks, float64(n), on.and[i]...)
	}
}

// urgent publishes the unfinished task with the least float, or the oldest.
func (v *containerView) urgent(p *page, gpu string, labels []label, now time.Time) {
	var t *task.Task
	for _, u := range v.tasks {
		if slices.Contains(u.GPUs, gpu) && (t == nil || u.Float(now) < t.Float(now)) {
			t = u // tasks come oldest first
		}
	}
	if t == nil {
		return
	}
	p.set(famStart, unixSeconds(t.Start.Time), labels...)
	if t.HasDeadline() {
		p.set(famDeadline, unixSeconds(t.Deadline), labels...)
		p.set(famFloat, float64(t.Float(now)), labels...)
	}
}

func (v *containerView) last(p *page, gpu string, labels []label) {
	i := slices.IndexFunc(v.ended, func(t *task.Task) bool { return slices.Contains(t.GPUs, gpu) })
	if i < 0 {
		return
	}
	t := v.ended[i]
	p.set(famLastStart, unixSeconds(t.Start.Time), labels...)
	p.set(famLastEnd, unixSeconds(t.End.Time), labels...)
	if t.HasDeadline() {
		p.set(famLastDeadline, unixSeconds(t.Deadline), labels...)
		p.set(famLastFloat, float64(t.Float(t.End.Time)), labels...)
		p.set(famLastHit, flag(t.Outcome() == task.Hit), labels...)
	}
}

// unixSeconds is a time as Prometheus has it, to the microsecond: a float64 holds no
// more of a present-day date.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
