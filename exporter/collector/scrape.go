package collector

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape sends the metrics of one scrape, up to a limit on series.
type scrape struct {
	ch      chan<- prometheus.Metric
	left    int // how many more there may be
	dropped int
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.GaugeValue, v, labels)
}

func (s *scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.CounterValue, v, labels)
}

func (s *scrape) value(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	for i, l := range labels {
		labels[i] = valid(l)
	}
	s.send(prometheus.MustNewConstMetric(d, kind, v, labels...))
}

func (s *scrape) send(m prometheus.Metric) {
	if s.left <= 0 {
		s.dropped++
		return
	}
	s.left--
	s.ch <- m
}

// valid makes the value of a label UTF-8: one bad byte from an engine or a driver would
// fail the whole scrape.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
