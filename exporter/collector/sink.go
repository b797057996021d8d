package collector

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// sink passes metrics on until the limit, and counts what it drops.
type sink struct {
	ch      chan<- prometheus.Metric
	left    int
	dropped int
}

func (s *sink) put(m prometheus.Metric) {
	if s.left <= 0 {
		s.dropped++
		return
	}
	s.left--
	s.ch <- m
}

func (s *sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.put(prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, valid(labels)...))
}

func (s *sink) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.put(prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, valid(labels)...))
}

// all passes on everything that a collector of client_golang has.
func (s *sink) all(c prometheus.Collector) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	for m := range ch {
		s.put(m)
	}
}

// valid makes every label value UTF-8: one bad byte from an engine or a driver
// would fail the whole scrape.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return labels
}
