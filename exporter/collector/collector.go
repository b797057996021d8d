// Package collector turns task.Snapshots into Prometheus metrics.
//
// A scrape reads the latest snapshot and nothing else: it never waits for a
// driver or a container engine. Gauges are set anew for every scrape, so that
// the series of what is gone are gone; counts and histograms are fed by the
// tracker (Began, Ended, Polled). Of ours it imports exporter/task.
//
// It is a Gatherer and no prometheus.Collector: a registry sends each series
// through a channel, and hashes and sorts all of them to find doubles, which was
// most of what a scrape cost. That names, labels and help are consistent is checked
// by the tests instead. Families come by name, their series in no fixed order.
package collector

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/exporter/task"
)

// Options are what a Collector is made of.
type Options struct {
	// Snapshot returns the latest snapshot; never nil.
	Snapshot func() *task.Snapshot
	// Retention is how long the last task and the counts of a container that is
	// gone stay: a rule that looks back must find them, also when the container
	// ended with its task. Default 15 minutes (the rules look back 10).
	Retention time.Duration
	// MaxSeries bounds the series of one scrape. Default 20,000.
	MaxSeries int
	// ClassicHistograms adds classic buckets to the native histograms, for
	// Prometheus servers that do not scrape native ones.
	ClassicHistograms bool
	// Beside has the metrics that are gathered with the collector's own, and their
	// names are others; nil: none. They do not count towards MaxSeries.
	Beside prometheus.Gatherer
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Collector implements prometheus.Gatherer and tracker.Observer. It is safe for
// concurrent use.
type Collector struct {
	opt    Options
	counts *counts
	spares spares
	polls  *prometheus.HistogramVec

	mu      sync.Mutex
	labels  labels
	dropped float64
}

// New returns a collector.
func New(opt Options) *Collector {
	if opt.Retention <= 0 {
		opt.Retention = 15 * time.Minute
	}
	if opt.MaxSeries <= 0 {
		opt.MaxSeries = 20_000
	}
	if opt.Beside == nil {
		opt.Beside = prometheus.Gatherers{}
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Collector{
		opt:    opt,
		counts: newCounts(opt.ClassicHistograms, opt.MaxSeries),
		spares: make(spares, 1),
		polls:  newHistograms(famPolls, opt.ClassicHistograms, prometheus.ExponentialBuckets(1e-5, 4, 10), "result"),
		labels: labels{boxes: map[string]*boxLabels{}},
	}
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

// replaced reports whether the container of a task, of which it is told late, is gone, and
// another one that is there has its name: that one's counts must not begin anew.
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

// Describe sends the descriptions of all metrics that a Collector can have.
func (*Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- prometheus.NewDesc(f.name, f.help, f.labels, nil)
	}
}

// Gather implements prometheus.Gatherer. Labels and histograms of what it returns are
// shared with later gatherings: they are to be read only.
func (c *Collector) Gather() ([]*dto.MetricFamily, error) {
	return c.gather(newPage())
}

func (c *Collector) gather(p *page) ([]*dto.MetricFamily, error) {
	others, err := c.opt.Beside.Gather()
	if failed := c.fill(p); failed != nil {
		err = errors.Join(err, failed)
	}
	return p.sorted(others), err
}

// fill writes everything on the page.
func (c *Collector) fill(p *page) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.opt.Snapshot(), c.opt.Now()
	p.clear(c.opt.MaxSeries)
	// The exporter's own health comes first: it must survive the limit.
	health(p, s, now)
	err := c.readings(p)
	gpus(p, s)
	p.view.arrange(s, now, c.opt.Retention)
	p.dropped += c.counts.follow(p.view.containers, now, c.opt.Retention)
	c.labels.begin()
	for _, cv := range p.view.containers {
		cv.publish(p, c.labels.of(cv), s, now)
		err = errors.Join(err, c.counts.publish(p, cv.id))
	}
	c.labels.end()
	c.dropped += float64(p.dropped)
	p.left = 1 // how many were dropped always has room
	p.set(famDropped, c.dropped)
	return err
}

func health(p *page, s *task.Snapshot, now time.Time) {
	p.set(famDeviceUp, flag(s.Health.DeviceUp))
	p.set(famEngineUp, flag(s.Health.EngineUp))
	for i, sensor := range sensors {
		p.set(famSensor, flag(s.Health.Sensor == sensor), sensorLabels[i])
	}
	p.set(famEventsLost, float64(s.Health.EventsLost))
	reasons := map[string]int{"gone": 0, "host_process": 0, "unknown_container": 0}
	maps.Copy(reasons, s.Health.Unattributed)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		p.set(famUnattributed, float64(reasons[reason]), newLabel("reason", reason))
	}
	if !s.Time.IsZero() {
		p.set(famAge, max(0, now.Sub(s.Time).Seconds()))
	}
}

// readings publishes how long the device took.
func (c *Collector) readings(p *page) error {
	ch := make(chan prometheus.Metric, 2) // success, error
	c.polls.Collect(ch)
	close(ch)
	for m := range ch {
		out := &dto.Metric{}
		if err := m.Write(out); err != nil {
			return err
		}
		p.put(famPolls, out)
	}
	return nil
}

// gpus publishes the GPUs, without measurements of those that do not answer: a stale
// reading looks like a fresh one.
func gpus(p *page, s *task.Snapshot) {
	for _, g := range s.GPUs {
		gpu := newLabel("gpu", g.UUID)
		p.set(famGPUInfo, 1, newLabel("driver", g.Driver), gpu,
			newLabel("index", strconv.Itoa(g.Index)), newLabel("name", g.Name))
		p.set(famGPUUp, flag(s.Health.DeviceUp && g.Error == ""), gpu)
		if !s.Health.DeviceUp || g.MemoryTotal == 0 {
			continue
		}
		p.set(famGPUMemoryTotal, float64(g.MemoryTotal), gpu)
		p.set(famGPUMemoryUsed, float64(g.MemoryUsed), gpu)
		if u := float64(g.Utilization); u == u { // NaN: the driver does not say
			p.set(famGPUUtilization, u, gpu)
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var _ prometheus.Gatherer = (*Collector)(nil)
