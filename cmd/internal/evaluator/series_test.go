package evaluator_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/rules"
)

// everything is a node with 4 GPUs and 8 containers of which each has all that a
// container can have on its GPU: a deadline, a past and a present task, its memory
// and use known.
func everything(now time.Time) *task.Snapshot {
	s := &task.Snapshot{Time: now, Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceUprobe}}
	for i := range 4 {
		s.GPUs = append(s.GPUs, task.GPU{UUID: fmt.Sprint("GPU-", i), Index: i, Name: "H200", Driver: "580", MemoryTotal: 80 << 30, MemoryUsed: 1 << 30, Utilization: 0.5})
	}
	for i := range 8 {
		gpu := s.GPUs[i%4].UUID
		c := task.Container{ID: fmt.Sprint("id-", i), Name: fmt.Sprint("tenant-", i), Image: "model:1", VisibleGPUs: []string{gpu},
			MemoryUsed: map[string]uint64{gpu: 1 << 29}, SMUtilization: map[string]float64{gpu: 0.2},
			Spec: task.Spec{Managed: true, Class: task.ClassDeadline, Deadline: 100}}
		s.Containers = append(s.Containers, c)
		work := func(id string, began time.Duration) task.Task {
			start := now.Add(-began)
			return task.Task{ID: c.Name + id, Container: c.Name, ContainerID: c.ID, GPUs: []string{gpu}, State: task.Running,
				Start: task.Mark{Time: start, Source: task.SourceUprobe}, Deadline: start.Add(100 * time.Second)}
		}
		last := work("last", 200*time.Second)
		last.State, last.End = task.Ended, &task.Mark{Time: last.Start.Time.Add(5 * time.Second), Source: task.SourcePidfd}
		if i%2 == 0 {
			last.End.Time = last.Deadline.Add(time.Second) // missed
		}
		s.Ended, s.Tasks = append(s.Ended, last), append(s.Tasks, work("now", time.Second))
	}
	return s
}

// Series stay in bounds: what the exporter of such a node says, but for go_* and process_*
// of itself, and what the rules make of it is fewer than 400 series in a Prometheus that scrapes
// native histograms, and fewer than 550 in one that takes their classic buckets. README.md says
// how many.
func TestSeriesOfANode(t *testing.T) {
	const bound, classicBound = 380, 530 // less than that, for what others add
	now := time.Now()
	s := everything(now)
	c := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }, Now: func() time.Time { return now }})
	r := collector.NewRegistry(c, true)
	for _, ended := range s.Ended {
		c.Began(ended, ended.GPUs[0])
		c.Ended(ended)
	}
	c.Polled(time.Millisecond, nil)
	e, err := evaluator.New(evaluator.Options{Targets: []evaluator.Target{{Gatherer: r, Job: "laxity-exporter", Node: "a"}}, Rules: rules.FS, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	evaluate(t, e)
	evaluate(t, e)
	count := func(selector string) int {
		v, err := e.Query(t.Context(), "count("+selector+")", time.Time{})
		if err != nil || len(v) != 1 {
			t.Fatalf("%s: %v, %v", selector, v, err)
		}
		return int(v[0].Value)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exposed, own, buckets := 0, 0, 0
	for _, mf := range families {
		each := 1
		switch mf.GetType() { //nolint:exhaustive // the others are one series each
		case dto.MetricType_HISTOGRAM:
			more := 2 + len(mf.GetMetric()[0].GetHistogram().GetBucket()) // sum, count; +Inf instead of the native one
			each, buckets = 1+more, buckets+more*len(mf.GetMetric())
		case dto.MetricType_SUMMARY:
			each = 2 + len(mf.GetMetric()[0].GetSummary().GetQuantile())
		}
		exposed += each * len(mf.GetMetric())
		if strings.HasPrefix(mf.GetName(), "go_") || strings.HasPrefix(mf.GetName(), "process_") {
			own += each * len(mf.GetMetric())
		}
		if testing.Verbose() {
			t.Logf("%4d %s", each*len(mf.GetMetric()), mf.GetName())
		}
	}
	const scrape = 5 // up and scrape_*, which Prometheus adds
	recorded := count(`{node="a",__name__=~".*:.*|ALERTS|ALERTS_FOR_STATE"}`)
	if recorded < 20 || exposed < 300 {
		t.Errorf("%d exposed and %d recorded: is that all?", exposed, recorded)
	}
	sum := exposed + recorded + scrape
	t.Logf("%d exposed (%d of itself), %d recorded, %d of the scrape: %d", exposed, own, recorded, scrape, sum)
	if sum-own > classicBound || sum-buckets-own > bound {
		t.Errorf("%d series of a node, %d with native histograms, and %d of the exporter itself; at most %d and %d", sum-own, sum-buckets-own, own, classicBound, bound)
	}
	readme, err := os.ReadFile("../../../rules/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{
		fmt.Sprintf("%d series: %d that its exporter exposes (%d of them go_* and process_*, of itself), %d recorded", sum, exposed, own, recorded),
		fmt.Sprintf("scrapes native histograms it is %d", sum-buckets),
	} {
		if !strings.Contains(string(readme), says) {
			t.Errorf("rules/README.md does not say %q", says)
		}
	}
}
