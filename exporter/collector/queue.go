package collector

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// memoryPressure is the share of a GPU's memory below which the alert GPUMemoryPressure is over.
const memoryPressure = 0.9

// queue is what one GPU still has to do.
type queue struct {
	unfinished int      // tasks, with a deadline or without
	missed     bool     // the last task of a container that is there missed its deadline
	due        []demand // of the containers with a deadline, the earliest first
}

// brief is how long a scrape and an evaluation take with the settings that we deliver. An alert for
// each request of a server would say what is over, many times a second.
const brief = time.Second

// demand is the unfinished work of one container with a deadline, seconds.
type demand struct {
	container string
	float     float64 // of its most urgent task
	// remaining is how long that task still takes, by the container's own last task.
	remaining float64
	estimated bool // remaining is known
	// brief: such a task has ended before an alert about it can help.
	brief bool
	work  float64
	slack float64 // how much more work could go first without missing its deadline
}

// queuesOf returns the queue of each GPU. The rules could find all of this by joining the
// series of tasks. A Prometheus of thousands of nodes has no time for it, and each exporter does.
func queuesOf(containers []*containerFacts, images map[string]time.Duration, now time.Time) map[string]*queue {
	out := map[string]*queue{}
	for _, v := range containers {
		for _, u := range v.uses {
			if u.gpu == task.UnknownGPU {
				continue
			}
			q := out[u.gpu]
			if q == nil {
				q = &queue{}
				out[u.gpu] = q
			}
			q.missed = q.missed || v.live && u.last != nil && u.last.Outcome() == task.Miss
			q.unfinished += u.unfinished
			if u.urgent != nil && u.urgent.HasDeadline() {
				d := u.demand(images[v.image(u.urgent)], now)
				d.container = v.name
				q.due = append(q.due, d)
			}
		}
	}
	for _, q := range out {
		q.order()
	}
	return out
}

// demand estimates what the unfinished tasks of a container need. A task runs for as long as the
// container's last one, else as the longest last one of its image, less the time that it ran,
// and at least a tenth of that, because it has not ended. Without an estimate it is taken to
// need all of its time until the deadline.
func (u gpuUse) demand(ofImage time.Duration, now time.Time) demand {
	d := demand{float: float64(u.urgent.Float(now)), estimated: u.last != nil}
	estimate := ofImage
	if u.last != nil {
		estimate = u.last.Ran(now)
		d.brief = estimate < brief
	}
	if u.last == nil && ofImage == 0 {
		d.work = max(0, d.float)
		return d
	}
	// The time that it stood still does not count. So float and remaining of a running task
	// shrink alike, and one that is at risk stays so when it is put to the front.
	d.remaining = max(estimate-u.urgent.Ran(now), estimate/10).Seconds()
	d.work = d.remaining + estimate.Seconds()*float64(u.unfinished-1)
	return d
}

// order sorts by deadline and finds each slack: the time until the deadline less the work that
// is due no later (earliest deadline first).
func (q *queue) order() {
	slices.SortFunc(q.due, func(a, b demand) int {
		return cmp.Or(cmp.Compare(a.float, b.float), cmp.Compare(a.container, b.container))
	})
	sum := 0.0
	for i := 0; i < len(q.due); {
		first := i // of those with the same deadline
		for ; i < len(q.due) && q.due[i].float == q.due[first].float; i++ {
			sum += q.due[i].work
		}
		for j := first; j < i; j++ {
			q.due[j].slack = q.due[j].float - sum
		}
	}
}

func (q *queue) demand() (sum float64) {
	for _, d := range q.due {
		sum += d.work
	}
	return sum
}

// publish sends the queue of a GPU that answers, and whether it can take a container.
func (q *queue) publish(out *scrape, g *task.GPU) {
	free := max(0, float64(g.MemoryTotal)-float64(g.MemoryUsed))
	room := free > task.MemoryLeft*float64(g.MemoryTotal)
	full := float64(g.Utilization) >= task.FullUse // not where the driver does not say it
	open, demand := room && (!full || len(q.due) > 0), q.demand()
	out.gauge(gpuMemoryFree, free, g.UUID)
	if used := float64(g.MemoryUsed) / float64(g.MemoryTotal); used >= memoryPressure {
		out.gauge(gpuMemoryPressure, used, g.UUID)
	}
	out.gauge(gpuDemand, demand, g.UUID)
	out.gauge(gpuOpen, flag(open), g.UUID)
	out.gauge(gpuProvisionable, free*flag(room && !full && !q.missed), g.UUID)
	if open && demand == 0 {
		out.gauge(gpuMemoryIdle, free, g.UUID)
	}
	defer out.of("")
	for _, d := range q.due {
		out.of(d.container)
		out.gauge(taskWork, d.work, d.container, g.UUID)
		out.gauge(taskSlack, d.slack, d.container, g.UUID)
		if d.estimated {
			out.gauge(taskRemaining, d.remaining, d.container, g.UUID)
			if d.float < d.remaining && !d.brief {
				out.gauge(taskAtRisk, d.float, d.container, g.UUID)
			}
		}
	}
}

// lastFloatsOf returns P2's nodeFloattime.
func lastFloatsOf(containers []*containerFacts) float64 {
	sum, any := 0.0, false
	for _, v := range containers {
		least := math.Inf(1)
		for _, u := range v.uses {
			if v.live && u.last != nil {
				least = min(least, float64(u.last.Float(time.Time{})))
			}
		}
		if !math.IsInf(least, 1) {
			sum, any = sum+least, true
		}
	}
	if !any {
		return math.Inf(1)
	}
	return sum
}

// durationsOf returns how long the last tasks of each image ran: the longest of its
// containers' last ones.
func durationsOf(containers []*containerFacts) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, v := range containers {
		for _, u := range v.uses {
			if u.last == nil {
				continue
			}
			if image := v.image(u.last); image != "" {
				out[image] = max(out[image], u.last.Ran(time.Time{}))
			}
		}
	}
	return out
}

// image is that of the task's container, which may be gone.
func (v *containerFacts) image(t *task.Task) string { return cmp.Or(t.Image, v.facts.Image) }
