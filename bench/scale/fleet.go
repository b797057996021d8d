package scale

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
)

const (
	gpusPerNode       = 4
	containersPerNode = 8
	gpuMemory         = 80 << 30
	// kinds is how many different nodes there are; the others are copies that differ in
	// the memory that is used, as GPUs do: an order by it has no ties.
	kinds      = 64
	memoryUsed = "gpu_memory_used_bytes"
)

// nodeName is the target label of node i.
func nodeName(i int) string { return fmt.Sprintf("n%05d", i) }

// fleet is what the exporters of all nodes say, by kind.
type fleet struct {
	// families are all but memoryUsed, which is used.
	families [kinds][]*dto.MetricFamily
	used     [kinds]*dto.MetricFamily
	// pages are the families as text, with placeholder for the node's name.
	pages [kinds][]byte
}

// placeholder is as long as a node's name, so that pages keep their size.
const placeholder = "@@@@@@"

// newFleet makes up the nodes, repeatable by seed. The exporter's own collector
// makes metrics of them, so that they are as many as in reality.
func newFleet(seed uint64, now time.Time) (*fleet, error) {
	f := &fleet{}
	for k := range f.families {
		registry := registryOf(snapshotOf(rand.New(rand.NewPCG(seed, uint64(k))), now, gpusPerNode, containersPerNode), now)
		families, err := registry.Gather()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(families, func(mf *dto.MetricFamily) bool { return mf.GetName() == memoryUsed })
		if i < 0 {
			return nil, fmt.Errorf("the exporter has no %s", memoryUsed)
		}
		f.used[k] = families[i]
		f.families[k] = slices.Delete(families, i, i+1)
		if f.pages[k], err = textOf(placeholder, f.families[k]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// usedOn is memoryUsed of node i.
func (f *fleet) usedOn(i int) *dto.MetricFamily {
	kind := f.used[i%kinds]
	own := &dto.MetricFamily{Name: kind.Name, Type: kind.Type}
	for _, m := range kind.Metric {
		v := m.Gauge.GetValue() * (1 - float64(i/kinds)/1000)
		own.Metric = append(own.Metric, &dto.Metric{Label: m.Label, Gauge: &dto.Gauge{Value: &v}})
	}
	return own
}

// gatherer is one node's.
func (f *fleet) gatherer(i int) prometheus.Gatherer {
	families := append(slices.Clone(f.families[i%kinds]), f.usedOn(i))
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
}

// page is one node's metrics with its name on them, as text.
func (f *fleet) page(i int) ([]byte, error) {
	used, err := textOf(nodeName(i), []*dto.MetricFamily{f.usedOn(i)})
	return append(bytes.ReplaceAll(f.pages[i%kinds], []byte(placeholder), []byte(nodeName(i))), used...), err
}

// textOf writes the families as a Prometheus without native histograms gets
// them, with the label node in each series.
func textOf(node string, families []*dto.MetricFamily) ([]byte, error) {
	name, value := "node", node
	var out bytes.Buffer
	for _, mf := range families {
		labelled := &dto.MetricFamily{Name: mf.Name, Type: mf.Type}
		for _, m := range mf.Metric {
			c := &dto.Metric{Gauge: m.Gauge, Counter: m.Counter, Summary: m.Summary, Untyped: m.Untyped, Histogram: m.Histogram}
			c.Label = append([]*dto.LabelPair{{Name: &name, Value: &value}}, m.Label...)
			labelled.Metric = append(labelled.Metric, c)
		}
		if _, err := expfmt.MetricFamilyToText(&out, labelled); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// registryOf has the metrics that an exporter makes of a snapshot.
func registryOf(s *task.Snapshot, now time.Time) prometheus.Gatherer {
	c := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }, Now: func() time.Time { return now }})
	for _, t := range s.Tasks {
		c.Began(t, t.GPUs[0])
	}
	for _, t := range s.Ended {
		c.Began(t, t.GPUs[0])
		c.Ended(t)
	}
	c.Polled(time.Millisecond, nil)
	return collector.NewRegistry(c, true)
}

// snapshotOf makes one node up: containers on each GPU in turn, most with deadlines;
// most GPUs work on one task, one in ten on two; some are full, and on one in
// twenty nodes a deadline was missed.
func snapshotOf(random *rand.Rand, now time.Time, gpus, containers int) *task.Snapshot {
	s := &task.Snapshot{Time: now, Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceUprobe}}
	for i := range gpus {
		g := task.GPU{UUID: fmt.Sprintf("GPU-%08x-%d", random.Uint32(), i), Index: i, Name: "NVIDIA H200", Driver: "580.65",
			MemoryTotal: gpuMemory, MemoryUsed: uint64(random.Float64() * 0.9 * gpuMemory), Utilization: task.Ratio(random.Float64())}
		if random.IntN(10) == 0 {
			g.Utilization = 1
		}
		s.GPUs = append(s.GPUs, g)
	}
	late := random.IntN(20) == 0
	for i := range containers {
		g := s.GPUs[i%gpus]
		c := task.Container{ID: fmt.Sprintf("%064x", random.Uint64()), Name: fmt.Sprintf("tenant-%d", i), Image: "registry.example/team/model:1.4",
			VisibleGPUs: []string{g.UUID}, MemoryUsed: map[string]uint64{g.UUID: g.MemoryUsed / 2}, SMUtilization: map[string]float64{g.UUID: 0.4},
			Spec: task.Spec{Managed: true, Class: task.ClassBatch}}
		if random.IntN(4) > 0 {
			c.Spec.Deadline, c.Spec.Class = task.Seconds(10+random.IntN(600)), task.ClassDeadline
		}
		s.Containers = append(s.Containers, c)
		last := taskOf(c, g, "last", now.Add(-time.Duration(30+random.IntN(500))*time.Second))
		last.State, last.End = task.Ended, &task.Mark{Time: last.Start.Time.Add(5 * time.Second), Source: task.SourcePidfd}
		if late && i == 0 && last.HasDeadline() {
			last.End.Time = last.Deadline.Add(time.Second)
		}
		s.Ended = append(s.Ended, last)
		if i < gpus && random.IntN(10) < 7 || i >= gpus && random.IntN(10) == 0 {
			s.Tasks = append(s.Tasks, taskOf(c, g, "now", now.Add(-time.Duration(random.IntN(5))*time.Second)))
		}
	}
	return s
}

func taskOf(c task.Container, g task.GPU, what string, start time.Time) task.Task {
	t := task.Task{ID: c.Name + what, Container: c.Name, ContainerID: c.ID, GPUs: []string{g.UUID}, State: task.Running,
		Start: task.Mark{Time: start, Source: task.SourceUprobe}, MemoryUsed: map[string]uint64{g.UUID: g.MemoryUsed / 2}}
	if c.Spec.Deadline > 0 {
		t.Deadline = start.Add(c.Spec.Deadline.Duration())
	}
	return t
}
