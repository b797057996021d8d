package collector

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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

func (s *sink) gauge(d *prometheus.Desc, v float64, labels ...label) {
	s.put(&sample{desc: d, value: v, labels: labels})
}

func (s *sink) counter(d *prometheus.Desc, v float64, labels ...label) {
	s.put(&sample{desc: d, value: v, labels: labels, counter: true})
}

// all passes on everything that a collector of client_golang has.
func (s *sink) all(c prometheus.Collector) { each(c, s.put) }

// label is made once a scrape and shared by all samples that have it: a const
// metric of client_golang makes labels of its own, which is most of what it costs.
type label = *dto.LabelPair

// newLabel makes the value UTF-8: one bad byte from an engine or a driver would
// fail the whole scrape.
func newLabel(name, value string) label {
	value = strings.ToValidUTF8(value, "\uFFFD")
	return &dto.LabelPair{Name: &name, Value: &value}
}

// newLabels makes the labels of one name, by value.
func newLabels[T ~string](name string, values ...T) map[T]label {
	out := make(map[T]label, len(values))
	for _, v := range values {
		out[v] = newLabel(name, string(v))
	}
	return out
}

// sample is a gauge or a counter. Its labels are in the order of their names.
type sample struct {
	desc    *prometheus.Desc
	labels  []label
	value   float64
	counter bool
}

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.counter {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}
