package collector

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/exporter/task"
)

// seriesPerPair is roughly what one container on one GPU costs in counts and
// histograms; with it the limit on series also bounds memory.
const seriesPerPair = 8

// count is what happened to one container on one GPU since the exporter began, or since the
// container came.
type count struct {
	started   float64
	completed map[task.Outcome]float64
	observed  bool
	// observers of the three histograms
	duration, tardiness, held prometheus.Observer
	// unheld counts the ended tasks that did not stand still, before the first that
	// did; held is nil until then: most containers never have one.
	unheld int
}

// counts are the counters and histograms by container and GPU.
type counts struct {
	max int

	mu    sync.Mutex
	boxes map[string]*box   // by container id
	names map[string]string // container name → id
	pairs int               // counts in all boxes
	// The histograms carry the container's name, as the metrics do. A new
	// container of the same name begins anew.
	duration, tardiness, held *prometheus.HistogramVec
}

// box is one container.
type box struct {
	name     string
	lastSeen time.Time
	counts   map[string]*count // by GPU
}

func histogram(name, help string, classic bool, buckets []float64) prometheus.HistogramOpts {
	opt := prometheus.HistogramOpts{
		Name: name, Help: help,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
	if classic {
		opt.Buckets = buckets
	}
	return opt
}

func newCounts(classic bool, maxSeries int) *counts {
	seconds := []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600, 1800, 3600}
	vec := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(histogram(name, help, classic, seconds), containerGPU)
	}
	return &counts{
		max:       max(1, maxSeries/seriesPerPair),
		boxes:     map[string]*box{},
		names:     map[string]string{},
		duration:  vec("gpu_task_duration_seconds", "Time from start to end of ended GPU tasks."),
		tardiness: vec("gpu_task_tardiness_seconds", "How far past their deadlines GPU tasks ended; 0 for those in time."),
		held:      vec("gpu_task_held_seconds", "How long ended GPU tasks had stood still: held at the gate, or their container paused. Absent until one has."),
	}
}

func (c *counts) describe(ch chan<- *prometheus.Desc) {
	c.duration.Describe(ch)
	c.tardiness.Describe(ch)
	c.held.Describe(ch)
}

func (c *counts) began(t task.Task, gpu string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.get(t.ContainerID, t.Container, gpu, now); n != nil {
		n.started++
	}
}

func (c *counts) ended(t task.Task, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, gpu := range t.GPUs {
		n := c.get(t.ContainerID, t.Container, gpu, now)
		if n == nil {
			continue
		}
		n.completed[t.Outcome()]++
		if t.State == task.Lost {
			continue // when it ended is not known
		}
		c.observe(n, t, c.boxes[t.ContainerID].name, gpu)
	}
}

func (c *counts) observe(n *count, t task.Task, name, gpu string) {
	if !n.observed {
		n.observed = true
		n.duration = c.duration.WithLabelValues(name, gpu)
		n.tardiness = c.tardiness.WithLabelValues(name, gpu)
	}
	n.duration.Observe(t.Duration(time.Time{}).Seconds())
	switch still := float64(t.HeldSeconds + t.PausedSeconds + t.SwappedSeconds); {
	case n.held == nil && still == 0:
		n.unheld++
	case n.held == nil:
		n.held = c.held.WithLabelValues(name, gpu)
		for range n.unheld {
			n.held.Observe(0)
		}
		n.held.Observe(still)
	default:
		n.held.Observe(still)
	}
	if t.HasDeadline() {
		n.tardiness.Observe(t.Tardiness().Seconds())
	}
}

// get returns the count of a container on a GPU, made where it is missing; nil at
// the limit. A container under the name of an older one takes the name over, and
// one that was renamed begins anew.
func (c *counts) get(id, name, gpu string, now time.Time) *count {
	name = strings.ToValidUTF8(name, "\uFFFD")
	gpu = strings.ToValidUTF8(gpu, "\uFFFD")
	b := c.boxes[id]
	if b != nil && b.name == name {
		if n := b.counts[gpu]; n != nil {
			return n
		}
	}
	if c.pairs >= c.max {
		return nil
	}
	if b == nil || b.name != name {
		c.drop(id)
		c.drop(c.names[name])
		b = &box{name: name, lastSeen: now, counts: map[string]*count{}}
		c.boxes[id], c.names[name] = b, id
	}
	n := &count{completed: map[task.Outcome]float64{}}
	b.counts[gpu] = n
	c.pairs++
	return n
}

// drop forgets a container and its series.
func (c *counts) drop(id string) {
	b := c.boxes[id]
	if b == nil {
		return
	}
	for gpu := range b.counts {
		c.duration.DeleteLabelValues(b.name, gpu)
		c.tardiness.DeleteLabelValues(b.name, gpu)
		c.held.DeleteLabelValues(b.name, gpu)
	}
	c.pairs -= len(b.counts)
	delete(c.boxes, id)
	if c.names[b.name] == id {
		delete(c.names, b.name)
	}
}

// follow brings the counts in line with the containers of the view: known ones
// begin at 0, those gone for longer than the retention vanish.
func (c *counts) follow(v view, now time.Time, retention time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cv := range v.containers {
		if !cv.live {
			continue
		}
		for _, gpu := range cv.gpus {
			if gpu != task.UnknownGPU { // as a rule it is learned within a moment
				c.get(cv.id, cv.name, gpu, now)
			}
		}
		if b := c.boxes[cv.id]; b != nil {
			b.lastSeen = now
		}
	}
	for id, b := range c.boxes {
		if now.Sub(b.lastSeen) > retention {
			c.drop(id)
		}
	}
}

// emit publishes the counts of one container.
func (c *counts) emit(out *sink, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.boxes[id]
	if b == nil {
		return
	}
	name := newLabel("container", b.name)
	for gpu, n := range b.counts {
		gpu := newLabel("gpu", gpu)
		out.counter(descStarted, n.started, name, gpu)
		for _, o := range task.Outcomes {
			out.counter(descCompleted, n.completed[o], name, gpu, outcomeLabels[o])
		}
		if !n.observed {
			continue
		}
		out.put(n.duration.(prometheus.Metric))
		if n.held != nil {
			out.put(n.held.(prometheus.Metric))
		}
		if n.completed[task.Hit]+n.completed[task.Miss] > 0 {
			out.put(n.tardiness.(prometheus.Metric))
		}
	}
}
