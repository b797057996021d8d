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
	tasks    []*task.Task    // unfinished, oldest first
	ended    []*task.Task    // latest first; not lost ones
	uses     []gpuUse        // of the GPUs that get series, sorted by UUID
}

// gpuUse is what a container does on a GPU.
type gpuUse struct {
	gpu        string
	unfinished int
	// urgent is the unfinished task with the least float, or the oldest; nil without one.
	urgent *task.Task
	last   *task.Task // the latest that ended; nil without one
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
		for _, gpu := range c.gpus(s) {
			c.uses = append(c.uses, c.on(gpu, now))
		}
	}
	slices.SortFunc(containers, func(a, b *containerFacts) int {
		return cmp.Or(-cmp.Compare(len(a.tasks), len(b.tasks)), cmp.Compare(a.name, b.name))
	})
	return containers
}

// gpus returns the GPUs on which the container has, had or may have tasks, sorted.
func (v *containerFacts) gpus(s *task.Snapshot) []string {
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
	return slices.Compact(out)
}

// on looks through the tasks on a GPU.
func (v *containerFacts) on(gpu string, now time.Time) gpuUse {
	u := gpuUse{gpu: gpu}
	for _, t := range v.tasks {
		if !slices.Contains(t.GPUs, gpu) {
			continue
		}
		u.unfinished++
		if u.urgent == nil || t.Float(now) < u.urgent.Float(now) {
			u.urgent = t
		}
	}
	if i := slices.IndexFunc(v.ended, func(t *task.Task) bool { return slices.Contains(t.GPUs, gpu) }); i >= 0 {
		u.last = v.ended[i]
	}
	return u
}

// publish sends all metrics of one container but its counts.
func (v *containerFacts) publish(out *scrape, s *task.Snapshot, now time.Time, endLag time.Duration) {
	if v.live && (v.facts.Spec.Managed || len(v.facts.Invalid) > 0 || len(v.uses) > 0) {
		out.gauge(containerInfo, 1, v.name, v.id, v.facts.Image, string(v.facts.Spec.Class))
		if n := len(v.facts.Invalid); n > 0 {
			out.gauge(invalidLabels, float64(n), v.name)
		}
		if d := v.facts.Spec.Deadline; d > 0 {
			out.gauge(containerDeadline, float64(d), v.name)
		}
	}
	for _, u := range v.uses {
		gpu := u.gpu
		if v.live || len(v.tasks) > 0 {
			v.states(out, gpu, now)
		}
		v.urgent(out, gpu, u.urgent, now)
		v.last(out, gpu, u.last)
		v.late(out, u, now, endLag)
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

func (v *containerFacts) states(out *scrape, gpu string, now time.Time) {
	for _, state := range task.UnfinishedStates {
		n, longest := 0, time.Duration(0)
		for _, t := range v.tasks {
			if t.State == state && slices.Contains(t.GPUs, gpu) {
				n, longest = n+1, max(longest, now.Sub(t.StateSince))
			}
		}
		out.gauge(tasks, float64(n), v.name, gpu, string(state))
		if n > 0 && state != task.Running {
			out.gauge(stopped, longest.Seconds(), v.name, gpu, string(state))
		}
	}
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

// late sends how far past its deadline the urgent task is, else the last one was. A busy interval
// may have ended in time if that is not known yet.
func (v *containerFacts) late(out *scrape, u gpuUse, now time.Time, endLag time.Duration) {
	if v.facts.Spec.Release != task.ReleaseBusy {
		endLag = 0
	}
	if u.urgent != nil && u.urgent.Float(now.Add(-endLag)) < 0 {
		out.gauge(taskLate, -float64(u.urgent.Float(now)), v.name, u.gpu)
		return
	}
	if last := u.last; last != nil && last.Outcome() == task.Miss && now.Sub(last.End.Time) < missTold {
		out.gauge(taskLate, last.Tardiness().Seconds(), v.name, u.gpu)
	}
}

// unixSeconds converts a time to Prometheus's form, to the microsecond. A float64 holds no
// more digits of a present-day date.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
