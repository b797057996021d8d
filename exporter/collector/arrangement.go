package collector

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// arrangement is a snapshot arranged by container.
type arrangement struct {
	byID   map[string]*containerFacts
	byName map[string]string // container name → id
}

type containerFacts struct {
	id, name string
	live     bool
	facts    *task.Container // empty unless live
	gpus     []string        // that get series, sorted
	tasks    []*task.Task    // unfinished
	ended    []*task.Task    // latest first; not lost ones
}

// add adds a container. With nil facts it is one that is gone.
func (v *arrangement) add(id, name string, facts *task.Container) *containerFacts {
	c := &containerFacts{id: id, name: name, live: facts != nil, facts: facts}
	if !c.live {
		c.facts = &task.Container{}
	}
	v.byID[id], v.byName[name] = c, id
	return c
}

// of returns the container of a task, or nil where another container has its name.
func (v *arrangement) of(t *task.Task) *containerFacts {
	if c := v.byID[t.ContainerID]; c != nil {
		return c
	}
	if id, taken := v.byName[t.Container]; taken && id != t.ContainerID {
		return nil
	}
	return v.add(t.ContainerID, t.Container, nil)
}

// arrange returns the containers of a snapshot in the order in which the limit on series
// serves them: those with unfinished tasks first. A container that is gone stays for the
// retention after its last end, unless a new one has its name.
func arrange(s *task.Snapshot, now time.Time, retention time.Duration) []*containerFacts {
	v := arrangement{byID: map[string]*containerFacts{}, byName: map[string]string{}}
	for i := range s.Containers {
		c := &s.Containers[i]
		// Two containers of one name would give duplicate series. While the engine's events
		// are on their way, a container and its successor can both be there.
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
	containers := slices.Collect(maps.Values(v.byID))
	for _, c := range containers {
		c.findGPUs(s)
	}
	slices.SortFunc(containers, func(a, b *containerFacts) int {
		return cmp.Or(-cmp.Compare(len(a.tasks), len(b.tasks)), cmp.Compare(a.name, b.name))
	})
	return containers
}

// findGPUs fills in the GPUs on which the container has, had or may have tasks.
func (v *containerFacts) findGPUs(s *task.Snapshot) {
	out := slices.Clone(v.facts.VisibleGPUs)
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

// publish sends all metrics of one container but its counts.
func (v *containerFacts) publish(out *scrape, s *task.Snapshot, now time.Time) {
	if v.live && (v.facts.Spec.Managed || len(v.gpus) > 0) {
		out.gauge(containerInfo, 1, v.name, v.id, v.facts.Image, string(v.facts.Spec.Class))
		if n := len(v.facts.Invalid); n > 0 {
			out.gauge(invalidLabels, float64(n), v.name)
		}
		if d := v.facts.Spec.Deadline; d > 0 {
			out.gauge(containerDeadline, float64(d), v.name)
		}
	}
	for _, gpu := range v.gpus {
		if v.live || len(v.tasks) > 0 {
			v.states(out, gpu)
		}
		urgent, _ := v.urgentOn(gpu, now)
		last := v.lastOn(gpu)
		v.urgent(out, gpu, urgent, now)
		v.last(out, gpu, last)
		v.late(out, gpu, urgent, last, now)
		if !s.Health.DeviceUp {
			continue
		}
		if m, ok := v.facts.MemoryUsed[gpu]; ok {
			out.gauge(containerMemory, float64(m), v.name, gpu)
		}
		if u, ok := v.facts.SMUtilization[gpu]; ok {
			out.gauge(containerSM, u, v.name, gpu)
		}
	}
}

func (v *containerFacts) states(out *scrape, gpu string) {
	stopped := 0
	for _, state := range task.UnfinishedStates {
		n := 0
		for _, t := range v.tasks {
			if t.State == state && slices.Contains(t.GPUs, gpu) {
				n++
			}
		}
		out.gauge(tasks, float64(n), v.name, gpu, string(state))
		if state == task.Held || state == task.Paused {
			stopped += n
		}
	}
	if stopped > 0 {
		out.gauge(stoppedTasks, float64(stopped), v.name, gpu)
	}
}

// urgentOn returns the unfinished task on the GPU with the least float, or the oldest, and how
// many there are.
func (v *containerFacts) urgentOn(gpu string, now time.Time) (t *task.Task, n int) {
	for _, u := range v.tasks {
		if !slices.Contains(u.GPUs, gpu) {
			continue
		}
		n++
		if t == nil || u.Float(now) < t.Float(now) {
			t = u // tasks are in order, oldest first
		}
	}
	return t, n
}

func (v *containerFacts) urgent(out *scrape, gpu string, t *task.Task, now time.Time) {
	if t == nil {
		return
	}
	out.gauge(taskStart, unixSeconds(t.Start.Time), v.name, gpu)
	if t.HasDeadline() {
		out.gauge(taskDeadline, unixSeconds(t.Deadline), v.name, gpu)
		out.gauge(taskFloat, float64(t.Float(now)), v.name, gpu)
	}
}

// lastOn returns the latest task that ended on the GPU; nil without one.
func (v *containerFacts) lastOn(gpu string) *task.Task {
	i := slices.IndexFunc(v.ended, func(t *task.Task) bool { return slices.Contains(t.GPUs, gpu) })
	if i < 0 {
		return nil
	}
	return v.ended[i]
}

func (v *containerFacts) last(out *scrape, gpu string, t *task.Task) {
	if t == nil {
		return
	}
	out.gauge(lastStart, unixSeconds(t.Start.Time), v.name, gpu)
	out.gauge(lastEnd, unixSeconds(t.End.Time), v.name, gpu)
	if t.HasDeadline() {
		out.gauge(lastDeadline, unixSeconds(t.Deadline), v.name, gpu)
		out.gauge(lastFloat, float64(t.Float(t.End.Time)), v.name, gpu)
		out.gauge(lastHit, flag(t.Outcome() == task.Hit), v.name, gpu)
	}
}

// missTold is how long after its end a missed deadline is told.
const missTold = 10 * time.Minute

// late sends how far past its deadline the urgent task is, else the last one was.
func (v *containerFacts) late(out *scrape, gpu string, urgent, last *task.Task, now time.Time) {
	if urgent != nil && urgent.Float(now) < 0 {
		out.gauge(taskLate, -float64(urgent.Float(now)), v.name, gpu)
		return
	}
	if last != nil && last.Outcome() == task.Miss && now.Sub(last.End.Time) < missTold {
		out.gauge(taskLate, last.Tardiness().Seconds(), v.name, gpu)
	}
}

// unixSeconds converts a time to Prometheus's form, to the microsecond. A float64 holds no
// more digits of a present-day date.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
