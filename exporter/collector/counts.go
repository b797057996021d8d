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

// pair is one container, by id, on one GPU.
type pair struct {
	id, gpu string
}

// count is what happened to a pair since the exporter began, or since the
// container came.
type count struct {
	name      string // the container's
	started   float64
	completed map[task.Outcome]float64
	observed  bool
	// observers of the three histograms
	duration, tardiness, held prometheus.Observer
}

// counts are the counters and histograms by container and GPU.
type counts struct {
	max int

	mu       sync.Mutex
	pairs    map[pair]*count
	lastSeen map[string]time.Time // by container id
	// The histograms carry the container's name, as the metrics do. A new
	// container of the same name begins anew.
	duration, tardiness, held *prometheus.HistogramVec
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
		pairs:     map[pair]*count{},
		lastSeen:  map[string]time.Time{},
		duration:  vec("gpu_task_duration_seconds", "Time from start to end of ended GPU tasks."),
		tardiness: vec("gpu_task_tardiness_seconds", "How far past their deadlines GPU tasks ended; 0 for those in time."),
		held:      vec("gpu_task_held_seconds", "How long ended GPU tasks had stood still: held at the gate, or their container paused."),
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
		c.observe(n, t, gpu)
	}
}

func (c *counts) observe(n *count, t task.Task, gpu string) {
	if !n.observed {
		n.observed = true
		n.duration = c.duration.WithLabelValues(n.name, gpu)
		n.tardiness = c.tardiness.WithLabelValues(n.name, gpu)
		n.held = c.held.WithLabelValues(n.name, gpu)
	}
	n.duration.Observe(t.Duration(time.Time{}).Seconds())
	n.held.Observe(float64(t.HeldSeconds + t.PausedSeconds))
	if t.HasDeadline() {
		n.tardiness.Observe(t.Tardiness().Seconds())
	}
}

// get returns the count of a pair, made where it is missing; nil at the limit.
// A container under the name of an older one takes the name over.
func (c *counts) get(id, name, gpu string, now time.Time) *count {
	name = strings.ToValidUTF8(name, "\uFFFD")
	n := c.pairs[pair{id, gpu}]
	if n != nil && n.name == name {
		return n
	}
	if n == nil && len(c.pairs) >= c.max {
		return nil
	}
	for p, other := range c.pairs {
		if other.name == name && p.id != id || p.id == id && other.name != name {
			c.drop(p)
		}
	}
	n = &count{name: name, completed: map[task.Outcome]float64{}}
	c.pairs[pair{id, gpu}] = n
	if _, ok := c.lastSeen[id]; !ok {
		c.lastSeen[id] = now
	}
	return n
}

func (c *counts) drop(p pair) {
	n := c.pairs[p]
	delete(c.pairs, p)
	c.duration.DeleteLabelValues(n.name, p.gpu)
	c.tardiness.DeleteLabelValues(n.name, p.gpu)
	c.held.DeleteLabelValues(n.name, p.gpu)
}

// follow brings the pairs in line with the containers of the view: known ones
// begin at 0, those gone for longer than the retention vanish.
func (c *counts) follow(v view, now time.Time, retention time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cv := range v.containers {
		if !cv.live {
			continue
		}
		c.lastSeen[cv.id] = now
		for _, gpu := range cv.gpus {
			if gpu == task.UnknownGPU {
				continue // as a rule it is learned within a moment
			}
			c.get(cv.id, cv.name, gpu, now)
		}
	}
	for id, seen := range c.lastSeen {
		if now.Sub(seen) <= retention {
			continue
		}
		delete(c.lastSeen, id)
		for p := range c.pairs {
			if p.id == id {
				c.drop(p)
			}
		}
	}
}

// emit publishes the counts of one container.
func (c *counts) emit(out *sink, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, n := range c.pairs {
		if p.id != id {
			continue
		}
		out.counter(descStarted, n.started, n.name, p.gpu)
		for _, o := range task.Outcomes {
			out.counter(descCompleted, n.completed[o], n.name, p.gpu, string(o))
		}
		if n.observed {
			for _, h := range []prometheus.Observer{n.duration, n.held} {
				out.put(h.(prometheus.Metric))
			}
			if n.completed[task.Hit]+n.completed[task.Miss] > 0 {
				out.put(n.tardiness.(prometheus.Metric))
			}
		}
	}
}
