package collector

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/exporter/task"
)

// view is a snapshot arranged by container, in the order in which the limit on
// series serves them: those with unfinished tasks first.
type view struct {
	containers []containerView
}

type containerView struct {
	id, name string
	live     bool
	facts    task.Container // when live
	gpus     []string       // that get series, sorted
	tasks    []task.Task    // unfinished
	ended    []task.Task    // latest first; not lost ones
}

// viewOf arranges s. A container that is gone stays for the retention after its
// last end, unless a new one has its name.
func viewOf(s *task.Snapshot, now time.Time, retention time.Duration) view {
	byID := map[string]*containerView{}
	byName := map[string]string{}
	for _, c := range s.Containers {
		// Two of one name would spoil the scrape: while the engine's events are
		// on their way a container and its successor can both be there.
		delete(byID, byName[c.Name])
		byID[c.ID] = &containerView{id: c.ID, name: c.Name, live: true, facts: c}
		byName[c.Name] = c.ID
	}
	of := func(t task.Task) *containerView {
		if v := byID[t.ContainerID]; v != nil {
			return v
		}
		if id, taken := byName[t.Container]; taken && id != t.ContainerID {
			return nil
		}
		v := &containerView{id: t.ContainerID, name: t.Container}
		byID[v.id], byName[v.name] = v, v.id
		return v
	}
	for _, t := range s.Tasks {
		if v := of(t); v != nil {
			v.tasks = append(v.tasks, t)
		}
	}
	for _, t := range s.Ended {
		if byID[t.ContainerID] == nil && now.Sub(t.End.Time) > retention {
			continue
		}
		if v := of(t); v != nil && t.State == task.Ended {
			v.ended = append(v.ended, t)
		}
	}
	out := view{}
	for _, v := range byID {
		v.gpus = v.allGPUs(s)
		out.containers = append(out.containers, *v)
	}
	slices.SortFunc(out.containers, func(a, b containerView) int {
		return cmp.Or(-cmp.Compare(len(a.tasks), len(b.tasks)), cmp.Compare(a.name, b.name))
	})
	return out
}

// allGPUs returns the GPUs on which the container has, had or may have tasks.
func (v *containerView) allGPUs(s *task.Snapshot) []string {
	var out []string
	out = append(out, v.facts.VisibleGPUs...)
	for _, list := range [][]task.Task{v.tasks, v.ended} {
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

var (
	stateLabels   = newLabels("state", task.UnfinishedStates...)
	outcomeLabels = newLabels("outcome", task.Outcomes...)
)

// container publishes everything of one container.
func (c *Collector) container(out *sink, v *containerView, s *task.Snapshot, now time.Time) {
	name := newLabel("container", v.name)
	if v.live && (v.facts.Spec.Managed || len(v.gpus) > 0) {
		out.gauge(descContainerInfo, 1, newLabel("class", string(v.facts.Spec.Class)), name,
			newLabel("id", v.id), newLabel("image", v.facts.Image))
		if n := len(v.facts.Invalid); n > 0 {
			out.gauge(descInvalid, float64(n), name)
		}
		if d := v.facts.Spec.Deadline; d > 0 {
			out.gauge(descContainerDeadline, float64(d), name)
		}
	}
	for _, gpu := range v.gpus {
		labels := []label{name, newLabel("gpu", gpu)}
		if v.live || len(v.tasks) > 0 {
			v.states(out, gpu, labels)
			v.urgent(out, gpu, labels, now)
		}
		v.last(out, gpu, labels)
		if !s.Health.DeviceUp {
			continue
		}
		if m, ok := v.facts.MemoryUsed[gpu]; ok {
			out.gauge(descContainerMemory, float64(m), labels...)
		}
		if u, ok := v.facts.SMUtilization[gpu]; ok {
			out.gauge(descContainerSM, u, labels...)
		}
	}
	c.counts.emit(out, v.id)
}

func (v *containerView) states(out *sink, gpu string, labels []label) {
	n := map[task.State]int{}
	for i := range v.tasks {
		if t := &v.tasks[i]; slices.Contains(t.GPUs, gpu) {
			n[t.State]++
		}
	}
	for _, state := range task.UnfinishedStates {
		out.gauge(descTasks, float64(n[state]), labels[0], labels[1], stateLabels[state])
	}
}

// urgent publishes the unfinished task with the least float, or the oldest.
func (v *containerView) urgent(out *sink, gpu string, labels []label, now time.Time) {
	var t *task.Task
	for i := range v.tasks {
		u := &v.tasks[i]
		if slices.Contains(u.GPUs, gpu) && (t == nil || u.Float(now) < t.Float(now)) {
			t = u // tasks come oldest first
		}
	}
	if t == nil {
		return
	}
	out.gauge(descStart, unix(t.Start.Time), labels...)
	if t.HasDeadline() {
		out.gauge(descDeadline, unix(t.Deadline), labels...)
		out.gauge(descFloat, float64(t.Float(now)), labels...)
	}
}

func (v *containerView) last(out *sink, gpu string, labels []label) {
	i := slices.IndexFunc(v.ended, func(t task.Task) bool { return slices.Contains(t.GPUs, gpu) })
	if i < 0 {
		return
	}
	t := v.ended[i]
	out.gauge(descLastStart, unix(t.Start.Time), labels...)
	out.gauge(descLastEnd, unix(t.End.Time), labels...)
	if t.HasDeadline() {
		out.gauge(descLastDeadline, unix(t.Deadline), labels...)
		out.gauge(descLastFloat, float64(t.Float(t.End.Time)), labels...)
		out.gauge(descLastHit, flag(t.Outcome() == task.Hit), labels...)
	}
}

// unix is a time as Prometheus has it, to the microsecond: a float64 holds no
// more of a present-day date.
func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

var _ prometheus.Collector = (*Collector)(nil)
