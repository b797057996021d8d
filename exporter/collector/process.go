package collector

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// processEvery is how often the metrics of the process are read at most. A reading opens half a dozen
// files of /proc, and cost a sixth of a scrape of 10 containers. Ten scrapes a second do not need ten
// readings: a scrape shows what was true at most this long ago.
const processEvery = time.Second

// seldom repeats what another collector sent for a while, instead of asking it at each scrape. What
// that one sends must not change: const metrics.
type seldom struct {
	of    prometheus.Collector
	every time.Duration
	now   func() time.Time

	mu      sync.Mutex
	asked   time.Time // zero: never
	metrics []prometheus.Metric
}

// Describe implements prometheus.Collector.
func (s *seldom) Describe(ch chan<- *prometheus.Desc) { s.of.Describe(ch) }

// Collect implements prometheus.Collector.
func (s *seldom) Collect(ch chan<- prometheus.Metric) {
	for _, m := range s.latest() {
		ch <- m
	}
}

// latest asks where it has been long enough.
func (s *seldom) latest() []prometheus.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.asked) >= s.every {
		s.metrics, s.asked = collected(s.of), now
	}
	return s.metrics
}

// collected returns what a collector sends. It sends from this goroutine: the registry catches its panic.
func collected(c prometheus.Collector) (metrics []prometheus.Metric) {
	ch, all := make(chan prometheus.Metric), make(chan struct{})
	go func() {
		defer close(all)
		for m := range ch {
			metrics = append(metrics, m)
		}
	}()
	func() {
		defer close(ch)
		c.Collect(ch)
	}()
	<-all
	return metrics
}
