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
func (s *scrape) of(container string) { s.pod = podLabels(container) }

// podLabels are those of the pod that a container is in, sorted; nil where it is in none.
func podLabels(container string) []*dto.LabelPair {
	namespace, pod := task.PodOf(container)
	if pod == "" {
		return nil
	}
	namespace, pod = valid(namespace), valid(pod)
	return []*dto.LabelPair{{Name: &labelNamespace, Value: &namespace}, {Name: &labelPod, Value: &pod}}
}

var labelContainer, labelGPU, labelNamespace, labelPod = "container", "gpu", "namespace", "pod"

// podHistogram is a histogram with the labels of a pod. The registry allows it: series of one name may
// differ in their labels, and an absent label is an empty one to Prometheus.
type podHistogram struct {
	prometheus.Histogram
	labels []*dto.LabelPair // all of them, sorted
}

// inPod adds the labels of the container's pod, where it is in one.
func inPod(h prometheus.Histogram, container, gpu string) prometheus.Histogram {
	pod := podLabels(container)
	if pod == nil {
		return h
	}
	labels := []*dto.LabelPair{{Name: &labelContainer, Value: &container}, {Name: &labelGPU, Value: &gpu}}
	return &podHistogram{h, append(labels, pod...)}
}

// Write implements prometheus.Metric.
func (h *podHistogram) Write(out *dto.Metric) error {
	err := h.Histogram.Write(out)
	out.Label = h.labels
	return err
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.GaugeValue, v, labels)
}

func (s *scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.CounterValue, v, labels)
}

func (s *scrape) value(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	if s.left <= 0 {
		s.dropped++
		return
	}
	s.left--
	s.ch <- &constant{d, kind, v, s.labels(d, labels)}
}

// labels pairs the values with the description's names, in the order of the names, with those of the
// pod among them.
func (s *scrape) labels(d *prometheus.Desc, values []string) []*dto.LabelPair {
	names := labelNames[d]
	pairs, merged := make([]dto.LabelPair, len(values)), make([]*dto.LabelPair, 0, len(values)+len(s.pod))
	pod := s.pod
	for i := range values {
		name := &names[i]
		values[name.at] = valid(values[name.at])
		pairs[i].Name, pairs[i].Value = &name.name, &values[name.at]
		for len(pod) > 0 && *pod[0].Name < name.name {
			merged, pod = append(merged, pod[0]), pod[1:]
		}
		merged = append(merged, &pairs[i])
	}
	return append(merged, pod...)
}

// constant is a metric with one value, of one scrape. Those of client_golang cost more for a pod than for
// another container: their labels have to be put together once more.
type constant struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType // gauge or counter
	value  float64
	labels []*dto.LabelPair // sorted by name
}

// Desc implements prometheus.Metric.
func (c *constant) Desc() *prometheus.Desc { return c.desc }

// Write implements prometheus.Metric.
func (c *constant) Write(out *dto.Metric) error {
	out.Label = c.labels
	if c.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &c.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &c.value}
	}
	return nil
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
