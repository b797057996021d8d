// Package collector turns task.Snapshots into Prometheus metrics.
//
// A scrape reads the latest snapshot and nothing else: it never waits for a driver or a
// container engine. It sends gauges anew at every scrape, so that series vanish together with
// what they describe. The tracker feeds counts and histograms (Began, Ended, Polled). Of ours
// it imports exporter/task.
//
// NewRegistry registers it beside the metrics of the program itself.
package collector

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/collectors/version"

	"github.com/laxity/laxity/exporter/task"
)

// Options are what a Collector is made of.
type Options struct {
	// Snapshot returns the latest snapshot; never nil.
	Snapshot func() *task.Snapshot
	// Retention is how long the last task and the counts of a container stay after it is
	// gone. A rule with a range must find them, also when the container ended with its task.
	// Default 15 minutes (the rules' ranges are up to 10).
	Retention time.Duration
	// MaxSeries bounds the series that Collect sends; a histogram counts as one. The one that
	// counts the dropped series is always sent. Default 20,000.
	MaxSeries int
	// EndLag is how long after its end that of a busy interval (laxity.release=busy) is known.
	// Until then an unfinished one does not count as late.
	EndLag time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Collector implements prometheus.Collector and tracker.Observer. It is safe for
// concurrent use.
type Collector struct {
	opt     Options
	counts  *counts
	polls   *prometheus.HistogramVec
	dropped prometheus.Counter

	// mu admits one scrape at a time. A scrape with an older snapshot than the scrape before
	// it would bring back the counts of containers that are gone.
	mu sync.Mutex
}

// New returns a collector.
func New(opt Options) *Collector {
	if opt.Retention <= 0 {
		opt.Retention = 15 * time.Minute
	}
	if opt.MaxSeries <= 0 {
		opt.MaxSeries = 20_000
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Collector{
		opt:     opt,
		counts:  newCounts(opt.MaxSeries),
		polls:   newPolls(),
		dropped: newDropped(),
	}
}

// NewRegistry returns a registry with the collector and the program's version. With runtime
// it also has client_golang's metrics of the Go runtime, and those of the process, at most a second old.
func NewRegistry(c *Collector, runtime bool) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c, version.NewCollector("laxity_exporter"))
	if runtime {
		process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
		r.MustRegister(collectors.NewGoCollector(), &seldom{of: process, every: processEvery, now: c.opt.Now})
	}
	return r
}

// Polled implements tracker.Observer.
func (c *Collector) Polled(took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	c.polls.WithLabelValues(result).Observe(took.Seconds())
}

// Began implements tracker.Observer.
func (c *Collector) Began(t task.Task, gpu string) {
	if !c.replaced(t) {
		c.counts.began(t, gpu, c.opt.Now())
	}
}

// Ended implements tracker.Observer.
func (c *Collector) Ended(t task.Task) {
	if !c.replaced(t) {
		c.counts.ended(t, c.opt.Now())
	}
}

// replaced reports whether the container of a late task is gone and a running one has its
// name. The counts of the running one must not begin anew.
func (c *Collector) replaced(t task.Task) bool {
	holder := c.counts.holder(t.Container)
	if holder == "" || holder == t.ContainerID {
		return false
	}
	s := c.opt.Snapshot()
	there := func(id string) bool {
		return slices.ContainsFunc(s.Containers, func(c task.Container) bool { return c.ID == id })
	}
	return there(holder) && !there(t.ContainerID)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
	c.counts.describe(ch)
	c.polls.Describe(ch)
	c.dropped.Describe(ch)
}

// Collect implements prometheus.Collector. All gauges are of one snapshot, with its times on the
// wall clock as that is set now, as the API has them. Counts have what the tracker has reported by now.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Now()
	s := c.opt.Snapshot().At(now)
	out := &scrape{ch: ch, left: c.opt.MaxSeries}
	// The exporter's own health comes first: the limit on series must not drop it.
	health(out, s, now)
	c.readings(out)
	containers := arrange(s, now, c.opt.Retention)
	images := durationsOf(containers)
	gpus(out, s, queuesOf(containers, images, now))
	out.gauge(lastFloats, lastFloatsOf(containers))
	for _, image := range slices.Sorted(maps.Keys(images)) {
		out.gauge(imageDuration, images[image].Seconds(), image)
	}
	cards(out, s)
	out.dropped += c.counts.follow(containers, now, c.opt.Retention)
	for _, v := range containers {
		out.of(v.name)
		v.publish(out, s, now, c.opt.EndLag)
		c.counts.publish(out, v.id)
	}
	c.dropped.Add(float64(out.dropped))
	ch <- c.dropped
}

// sensors are the values of the label sensor.
var sensors = []task.Source{task.SourceUprobe, task.SourceFanotify, task.SourceDevice}

func health(out *scrape, s *task.Snapshot, now time.Time) {
	out.gauge(deviceUp, flag(s.Health.DeviceUp))
	if s.Health.CardsError != "" || len(s.Cards) > 0 {
		out.gauge(cardsUp, flag(s.Health.CardsError == ""))
	}
	out.gauge(engineUp, flag(s.Health.EngineUp))
	for _, sensor := range sensors {
		out.gauge(sensorInUse, flag(s.Health.Sensor == sensor), string(sensor))
	}
	out.counter(eventsLost, float64(s.Health.EventsLost))
	for _, reason := range task.UnattributedReasons {
		out.gauge(unattributed, float64(s.Health.Unattributed[reason]), reason)
	}
	if !s.Time.IsZero() {
		out.gauge(snapshotAge, max(0, now.Sub(s.Time).Seconds()))
	}
}

// readings sends how long the device took.
func (c *Collector) readings(out *scrape) {
	ch := make(chan prometheus.Metric, 2) // success, error
	c.polls.Collect(ch)
	close(ch)
	for m := range ch {
		out.send(m)
	}
}

// gpus sends the GPUs. It leaves out the measurements of a GPU that does not answer: nobody
// can tell an old reading from a fresh one.
func gpus(out *scrape, s *task.Snapshot, queues map[string]*queue) {
	cut := map[string]bool{}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		q := queues[g.UUID]
		if q == nil {
			q = &queue{}
		}
		if g.Parent != "" && !cut[g.Parent] {
			cut[g.Parent] = true
			name, _, _ := strings.Cut(g.Name, " MIG ") // NVIDIA H200 MIG 1g.18gb
			out.gauge(gpuMIGCard, 1, g.Parent, strconv.Itoa(g.Index), name)
		}
		out.gauge(gpuInfo, 1, g.UUID, s.GPUName(g.UUID), g.Name, g.Driver)
		if g.Parent != "" {
			out.gauge(gpuMIG, 1, g.UUID, g.Parent)
		}
		out.gauge(gpuUp, flag(s.Health.DeviceUp && g.Error == ""), g.UUID)
		out.gauge(gpuUnfinished, float64(q.unfinished), g.UUID)
		if !s.Health.DeviceUp || g.MemoryTotal == 0 {
			continue
		}
		out.gauge(gpuMemoryTotal, float64(g.MemoryTotal), g.UUID)
		out.gauge(gpuMemoryUsed, float64(g.MemoryUsed), g.UUID)
		if u := float64(g.Utilization); u == u { // NaN: the driver does not say
			out.gauge(gpuUtilization, u, g.UUID)
		}
		q.publish(out, g)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var _ prometheus.Collector = (*Collector)(nil)
