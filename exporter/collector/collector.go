// Package collector turns task.Snapshots into Prometheus metrics.
//
// A scrape reads the latest snapshot and nothing else: it never waits for a
// driver or a container engine. Gauges are made anew for every scrape, so that
// the series of what is gone are gone; counts and histograms are fed by the
// tracker (Began, Ended, Polled). It imports exporter/task and client_golang.
package collector

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Collector implements prometheus.Collector and tracker.Observer. It is safe for
// concurrent use.
type Collector struct {
	opt    Options
	polls  *prometheus.HistogramVec
	counts *counts

	mu      sync.Mutex
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
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Collector{
		opt:    opt,
		counts: newCounts(opt.ClassicHistograms, opt.MaxSeries),
		polls: prometheus.NewHistogramVec(histogram("laxity_exporter_poll_duration_seconds",
			"Time that one reading of the GPU device took.",
			opt.ClassicHistograms, prometheus.ExponentialBuckets(1e-5, 4, 10)), []string{"result"}),
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
func (c *Collector) Began(t task.Task, gpu string) { c.counts.began(t, gpu, c.opt.Now()) }

// Ended implements tracker.Observer.
func (c *Collector) Ended(t task.Task) { c.counts.ended(t, c.opt.Now()) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descTasks, descStart, descDeadline, descFloat,
		descLastStart, descLastEnd, descLastDeadline, descLastFloat, descLastHit,
		descStarted, descCompleted,
		descContainerDeadline, descContainerMemory, descContainerSM, descContainerInfo,
		descGPUUtilization, descGPUMemoryUsed, descGPUMemoryTotal, descGPUInfo,
		descDeviceUp, descEngineUp, descSensor, descUnattributed, descInvalid, descAge, descDropped,
	} {
		ch <- d
	}
	c.polls.Describe(ch)
	c.counts.describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.opt.Snapshot(), c.opt.Now()
	// The exporter's own health comes first: it must survive the limit.
	out := &sink{ch: ch, left: c.opt.MaxSeries}
	c.health(out, s, now)
	gpus(out, s)
	v := viewOf(s, now, c.opt.Retention)
	c.counts.follow(v, now, c.opt.Retention)
	for i := range v.containers {
		c.container(out, &v.containers[i], s, now)
	}
	c.dropped += float64(out.dropped)
	ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, c.dropped)
}

func (c *Collector) health(out *sink, s *task.Snapshot, now time.Time) {
	out.gauge(descDeviceUp, flag(s.Health.DeviceUp))
	out.gauge(descEngineUp, flag(s.Health.EngineUp))
	for _, sensor := range []task.Source{task.SourceUprobe, task.SourceFanotify, task.SourceDevice} {
		out.gauge(descSensor, flag(s.Health.Sensor == sensor), newLabel("sensor", string(sensor)))
	}
	reasons := map[string]int{"gone": 0, "host_process": 0, "unknown_container": 0}
	for reason, n := range s.Health.Unattributed {
		reasons[reason] = n
	}
	for reason, n := range reasons {
		out.gauge(descUnattributed, float64(n), newLabel("reason", reason))
	}
	if !s.Time.IsZero() {
		out.gauge(descAge, max(0, now.Sub(s.Time).Seconds()))
	}
	out.all(c.polls)
}

// gpus publishes the GPUs, unless the device does not answer: a stale reading
// looks like a fresh one.
func gpus(out *sink, s *task.Snapshot) {
	for _, g := range s.GPUs {
		gpu := newLabel("gpu", g.UUID)
		out.gauge(descGPUInfo, 1, newLabel("driver", g.Driver), gpu,
			newLabel("index", strconv.Itoa(g.Index)), newLabel("name", g.Name))
		if !s.Health.DeviceUp || g.MemoryTotal == 0 { // or this one of several does not
			continue
		}
		out.gauge(descGPUMemoryTotal, float64(g.MemoryTotal), gpu)
		out.gauge(descGPUMemoryUsed, float64(g.MemoryUsed), gpu)
		if u := float64(g.Utilization); u == u { // NaN: the driver does not say
			out.gauge(descGPUUtilization, u, gpu)
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
