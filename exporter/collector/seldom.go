package collector

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Runtime has the metrics of this process. Those of the Go runtime are left out:
// forty series of each node, for what processor time, resident memory and open
// files of the process say already.
func Runtime() prometheus.Collector {
	return Seldom(time.Second, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Seldom asks the collectors at most once a period, and says the same again in
// between: for metrics of the process and its runtime, which cost as much as a
// small node's own scrape (all of /proc/stat is read for one of them). Only for
// collectors of const metrics: others change after they were collected.
func Seldom(period time.Duration, of ...prometheus.Collector) prometheus.Collector {
	return &seldom{period: period, of: of}
}

type seldom struct {
	period time.Duration
	of     []prometheus.Collector

	mu    sync.Mutex
	asked time.Time
	last  []prometheus.Metric
}

// Describe implements prometheus.Collector.
func (s *seldom) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.of {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *seldom) Collect(ch chan<- prometheus.Metric) {
	for _, m := range s.metrics() {
		ch <- m
	}
}

func (s *seldom) metrics() []prometheus.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last == nil || now.Sub(s.asked) >= s.period {
		s.asked, s.last = now, nil
		for _, c := range s.of {
			each(c, func(m prometheus.Metric) { s.last = append(s.last, m) })
		}
	}
	return s.last
}

// each calls do with every metric that a collector has now.
func each(c prometheus.Collector, do func(prometheus.Metric)) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	for m := range ch {
		do(m)
	}
}
