package collector

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/exporter/task"
)

// scrape sends the metrics of one scrape, up to a limit on series.
type scrape struct {
	ch      chan<- prometheus.Metric
	left    int // how many more there may be
	dropped int
	pod     []*dto.LabelPair // of the container whose series are sent
}

// of says whose series follow: those of a container in a pod carry the labels namespace and pod.
// Empty: of no container.
func (s *scrape) of(container string) {
	s.pod = nil
	if namespace, pod := task.PodOf(container); pod != "" {
		namespace, pod = valid(namespace), valid(pod)
		s.pod = []*dto.LabelPair{{Name: &labelNamespace, Value: &namespace}, {Name: &labelPod, Value: &pod}}
	}
}

var labelNamespace, labelPod = "namespace", "pod"

// podMetric is a metric with the labels of a pod. The registry allows it: series of one name may
// differ in their labels, and an absent label is an empty one to Prometheus.
type podMetric struct {
	prometheus.Metric
	pod []*dto.LabelPair // sorted, as all labels of a metric
}

// Write implements prometheus.Metric.
func (m *podMetric) Write(out *dto.Metric) error {
	err := m.Metric.Write(out)
	labels := make([]*dto.LabelPair, 0, len(out.Label)+len(m.pod)) // the metric keeps its own
	pod := m.pod
	for _, l := range out.Label {
		for len(pod) > 0 && pod[0].GetName() < l.GetName() {
			labels, pod = append(labels, pod[0]), pod[1:]
		}
		labels = append(labels, l)
	}
	labels = append(labels, pod...)
	out.Label = labels
	return err
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
	if s.pod != nil {
		m = &podMetric{m, s.pod}
	}
	s.ch <- m
}

// valid makes the value of a label UTF-8: one bad byte from an engine or a driver would
// fail the whole scrape.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
