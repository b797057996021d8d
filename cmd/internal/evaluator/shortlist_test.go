package evaluator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	querier "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/rules"
)

// randomNode is what the exporter of a node says: some GPUs, each with up to four
// containers that work, waited or did work, some with deadlines.
func randomNode(r *rand.Rand, now time.Time) *prometheus.Registry {
	s := &task.Snapshot{Time: now, Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceDevice}}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for i := range 1 + r.IntN(3) {
		gpu := fmt.Sprint("GPU-", i)
		s.GPUs = append(s.GPUs, task.GPU{UUID: gpu, Index: i, MemoryTotal: 80, MemoryUsed: uint64(r.IntN(9) * 10), Utilization: task.Ratio(r.IntN(5)) / 4})
		for j := range r.IntN(5) {
			name := fmt.Sprintf("c%d%d", i, j)
			s.Containers = append(s.Containers, task.Container{ID: name, Name: name, Image: "m", VisibleGPUs: []string{gpu}, Spec: task.Spec{Managed: true}})
			one := task.Task{ID: name, Container: name, ContainerID: name, GPUs: []string{gpu}, State: task.Held}
			if r.IntN(4) > 0 { // its last task
				last := one
				last.State, last.End = task.Ended, &task.Mark{Time: now.Add(-seconds(1 + r.IntN(900)))}
				last.Start.Time = last.End.Time.Add(-seconds(1 + r.IntN(6)))
				last.Deadline = last.End.Time.Add(seconds(r.IntN(60) - 2))
				s.Ended = append(s.Ended, last)
			}
			one.Start.Time = now.Add(-seconds(r.IntN(4)))
			if r.IntN(2) > 0 {
				one.State = task.Running
			}
			if r.IntN(3) > 0 {
				one.Deadline = now.Add(seconds(r.IntN(40) - 1))
			}
			s.Tasks = append(s.Tasks, one)
		}
	}
	return collector.NewRegistry(collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }, Now: func() time.Time { return now }}), false)
}

// What the short lists leave out does not come before what they have: by either
// ranking the first of a list, where the list settles it, is as good as the first
// of all nodes; a list that is not full has all candidates; and by the list of all
// GPUs it is the same first.
func TestShortListsAgreeWithAllFacts(t *testing.T) {
	random, now := rand.New(rand.NewPCG(5, 5)), time.Unix(1_800_000_000, 0)
	var targets []evaluator.Target
	for i := range 60 {
		targets = append(targets, evaluator.Target{Gatherer: randomNode(random, now), Job: "laxity-exporter", Node: fmt.Sprintf("n%02d", i)})
	}
	e, err := evaluator.New(evaluator.Options{Targets: targets, Rules: rules.FS, Interval: time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	evaluate(t, e)
	source := querier.NewSource(e)
	all, err := source.Nodes(t.Context())
	if err != nil || len(all) != len(targets) {
		t.Fatalf("%d nodes, %v", len(all), err)
	}
	settled, refused := map[string]int{}, 0
	for range 150 {
		req := placement.Request{GPUMemory: uint64(random.IntN(10) * 10)}
		if random.IntN(4) > 0 {
			req.Deadline, req.Estimate = task.Seconds(1+random.IntN(50)), task.Seconds(random.IntN(12))
		}
		for _, l := range []placer.List{
			{Method: placement.Paper}, {Method: placement.Predictive}, {Method: placement.Predictive, Busy: true},
		} {
			l.For, l.Limit = req, 1+random.IntN(12)
			got, err := source.Facts(t.Context(), placer.Ask{List: &l})
			if err != nil || got.Rest == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			full, ranked := l.Method.Rank(all, req, now), l.Method.Rank(got.Nodes, req, now)
			want, possible := full.Best()
			best, ok := ranked.Best()
			kind := fmt.Sprint(l.Method, l.Busy)
			switch {
			case ok && !possible, !ok && possible && got.Rest.None:
				t.Errorf("%s %+v: on the list %s, of all %s", kind, l, ranked.Summary(), full.Summary())
			case !ok:
				refused++
			case l.Busy && (best.Score != want.Score || req.Deadline <= 0 && best.Load > want.Load+1e-6):
				t.Errorf("%s %+v: %s with %v, of all %s with %v", kind, l, best.Node.Name, best.Score, want.Node.Name, want.Score)
			case l.Method.Settles(best, req, got.Rest):
				settled[kind]++
				if best.Score != want.Score || !l.Busy && best.Load > want.Load {
					t.Errorf("%s %+v is settled: %s with %v and %v, of all %s with %v and %v", kind, l, best.Node.Name, best.Score, best.Load, want.Node.Name, want.Score, want.Load)
				}
			}
		}
	}
	if len(settled) != 3 || refused == 0 {
		t.Errorf("not everything was tried: settled %v, refused %d", settled, refused)
	}
}
