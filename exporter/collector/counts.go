package collector

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/exporter/task"
)

// seriesPerPair is about how many counts and histograms one container on one GPU has. With it
// the limit on series also bounds memory.
const seriesPerPair = 8

// count has the counters and histograms of one container on one GPU, since the exporter or
// the container began.
type count struct {
	started   float64
	completed map[task.Outcome]float64
	// duration and tardiness are nil until a task began, held until one had stood still
	duration, tardiness, held prometheus.Histogram
	// unheld counts the tasks that ended without having been held, paused or swapped, before
	// the first that was. Until then held is nil: most containers never need it.
	unheld int
}

// counts are the counters and histograms by container and GPU.
type counts struct {
	max int

	mu         sync.Mutex
	containers map[string]*containerCounts // by container id
	names      map[string]string           // container name → id
	pairs      int                         // counts in all containers
	last       time.Time                   // when follow was last called
	// The histograms carry the container's name, as the metrics do. A new
	// container of the same name begins anew.
	duration, tardiness, held *prometheus.HistogramVec
}

// containerCounts are the counts of one container.
type containerCounts struct {
	name     string
	lastSeen time.Time
	counts   map[string]*count // by GPU
}

func newCounts(maxSeries int) *counts {
	return &counts{
		max:        max(1, maxSeries/seriesPerPair),
		containers: map[string]*containerCounts{},
		names:      map[string]string{},
		duration:   newDurations(),
		tardiness:  newTardiness(),
		held:       newHeld(),
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
		c.begin(n, t, c.containers[t.ContainerID].name, gpu)
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
		c.observe(n, t, c.containers[t.ContainerID].name, gpu)
	}
}

// begin makes the histograms that the task will be in. They are there, at 0, before it ends: a
// rate has nothing to say of a series that begins with its first task, and many a container has
// one task only.
func (c *counts) begin(n *count, t task.Task, name, gpu string) {
	if n.duration == nil {
		n.duration = histogram(c.duration, name, gpu)
	}
	if n.tardiness == nil && t.HasDeadline() {
		n.tardiness = histogram(c.tardiness, name, gpu)
	}
}

func (c *counts) observe(n *count, t task.Task, name, gpu string) {
	c.begin(n, t, name, gpu)
	n.duration.Observe(t.Duration(time.Time{}).Seconds())
	switch still := float64(t.HeldSeconds + t.PausedSeconds + t.SwappedSeconds); {
	case n.held == nil && still == 0:
		n.unheld++
	case n.held == nil:
		n.held = histogram(c.held, name, gpu)
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

func histogram(of *prometheus.HistogramVec, name, gpu string) prometheus.Histogram {
	name, gpu = valid(name), valid(gpu)
	return inPod(of.WithLabelValues(name, gpu).(prometheus.Histogram), name, gpu)
}

// get returns the count of a container on a GPU, and makes it where it is missing. At the
// limit it returns nil, unless it can forget a container that is gone. A container with the
// name of an older one takes the name over. A renamed container begins anew.
func (c *counts) get(id, name, gpu string, now time.Time) *count {
	name, gpu = valid(name), valid(gpu)
	b := c.containers[id]
	if b != nil && b.name == name {
		if n := b.counts[gpu]; n != nil {
			return n
		}
	}
	if c.pairs >= c.max && !c.makeRoom() {
		return nil
	}
	if b = c.containers[id]; b == nil || b.name != name {
		c.drop(id)
		c.drop(c.names[name])
		b = &containerCounts{name: name, lastSeen: now, counts: map[string]*count{}}
		c.containers[id], c.names[name] = b, id
	}
	n := &count{completed: map[task.Outcome]float64{}}
	b.counts[gpu] = n
	c.pairs++
	return n
}

// holder returns the id of the container that has counts under a name; "" if none has.
func (c *counts) holder(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[valid(name)]
}

// makeRoom forgets the container that has been gone for longest.
func (c *counts) makeRoom() bool {
	oldest := ""
	for id, b := range c.containers {
		if b.lastSeen.Before(c.last) && (oldest == "" || b.lastSeen.Before(c.containers[oldest].lastSeen)) {
			oldest = id
		}
	}
	c.drop(oldest)
	return oldest != ""
}

// drop forgets a container and its series.
func (c *counts) drop(id string) {
	b := c.containers[id]
	if b == nil {
		return
	}
	for gpu := range b.counts {
		c.duration.DeleteLabelValues(b.name, gpu)
		c.tardiness.DeleteLabelValues(b.name, gpu)
		c.held.DeleteLabelValues(b.name, gpu)
	}
	c.pairs -= len(b.counts)
	delete(c.containers, id)
	if c.names[b.name] == id {
		delete(c.names, b.name)
	}
}

// follow brings the counts in line with the containers. Those of a new container begin at 0.
// Those of a container that has been gone for longer than the retention vanish. It returns
// how many series have no room.
func (c *counts) follow(containers []*containerFacts, now time.Time, retention time.Duration) (dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = now
	for _, cv := range containers {
		if b := c.containers[cv.id]; b != nil && cv.live {
			b.lastSeen = now
		}
	}
	for _, cv := range containers {
		if !cv.live {
			continue
		}
		for _, u := range cv.uses {
			// An unknown GPU is known a moment later, as a rule.
			if u.gpu != task.UnknownGPU && c.get(cv.id, cv.name, u.gpu, now) == nil {
				dropped += 1 + len(task.Outcomes)
			}
		}
	}
	for id, b := range c.containers {
		if now.Sub(b.lastSeen) > retention {
			c.drop(id)
		}
	}
	return dropped
}

// publish sends the counts of one container.
func (c *counts) publish(s *scrape, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.containers[id]
	if b == nil {
		return
	}
	for _, gpu := range slices.Sorted(maps.Keys(b.counts)) {
		n := b.counts[gpu]
		s.counter(tasksStarted, n.started, b.name, gpu)
		for _, o := range task.Outcomes {
			s.counter(tasksCompleted, n.completed[o], b.name, gpu, string(o))
		}
		for _, h := range []prometheus.Histogram{n.duration, n.held, n.tardiness} {
			if h != nil {
				s.send(h)
			}
		}
	}
}
