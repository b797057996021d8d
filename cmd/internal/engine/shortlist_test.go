package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	querier "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/cmd/internal/engine"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/rules"
)

// randomNode is what the exporter of a node says: some GPUs, each with up to four
// containers that work, waited or did work, some with deadlines.
func randomNode(r *rand.Rand, now time.Time) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	gauges := map[string]*prometheus.GaugeVec{}
	set := func(name string, v float64, pairs ...string) {
		labels := prometheus.Labels{}
		var names []string
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]], names = pairs[i+1], append(names, pairs[i])
		}
		if gauges[name] == nil {
			gauges[name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, names)
			registry.MustRegister(gauges[name])
		}
		gauges[name].With(labels).Set(v)
	}
	set("laxity_exporter_device_up", 1)
	set("laxity_exporter_snapshot_age_seconds", 0)
	at := float64(now.Unix())
	for i := range 1 + r.IntN(3) {
		gpu := fmt.Sprint("GPU-", i)
		set("gpu_memory_total_bytes", 80, "gpu", gpu)
		set("gpu_memory_used_bytes", float64(r.IntN(9)*10), "gpu", gpu)
		set("gpu_utilization_ratio", float64(r.IntN(5))/4, "gpu", gpu)
		for j := range r.IntN(5) {
			name := fmt.Sprintf("c%d%d", i, j)
			on := []string{"container", name, "gpu", gpu}
			if r.IntN(4) > 0 { // its last task
				end := at - float64(1+r.IntN(900))
				set("gpu_task_last_end_timestamp_seconds", end, on...)
				set("gpu_task_last_start_timestamp_seconds", end-float64(1+r.IntN(6)), on...)
				set("gpu_task_last_float_seconds", float64(r.IntN(60)-2), on...)
			}
			running := float64(r.IntN(2))
			set("gpu_tasks", running, append([]string{"state", "running"}, on...)...)
			set("gpu_tasks", 1, append([]string{"state", "held"}, on...)...)
			set("gpu_task_start_timestamp_seconds", at-float64(r.IntN(4)), on...)
			if r.IntN(3) > 0 {
				set("gpu_task_float_seconds", float64(r.IntN(40)-1), on...)
			}
		}
	}
	return registry
}

// What the short lists leave out does not come before what they have: by either
// ranking the first of a list, where the list settles it, is as good as the first
// of all nodes; a list that is not full has all candidates; and by the list of all
// GPUs it is the same first.
func TestShortListsAgreeWithAllFacts(t *testing.T) {
	random, now := rand.New(rand.NewPCG(5, 5)), time.Unix(1_800_000_000, 0)
	var targets []engine.Target
	for i := range 60 {
		targets = append(targets, engine.Target{Gatherer: randomNode(random, now), Job: "laxity-exporter", Node: fmt.Sprintf("n%02d", i)})
	}
	e, err := engine.New(engine.Options{Targets: targets, Rules: rules.FS, Interval: time.Hour, Now: func() time.Time { return now }})
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
