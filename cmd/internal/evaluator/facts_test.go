package evaluator_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	querier "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/exporter/task"
)

// What placement asks is PromQL that Prometheus's own engine answers: nodes, the
// work on their GPUs, and containers, of one moment.
func TestPlacementFactsFromTheEngine(t *testing.T) {
	n := newNode()
	set := func(name string, labels prometheus.Labels, v float64) {
		var names []string
		for l := range labels {
			names = append(names, l)
		}
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, names)
		n.MustRegister(g)
		g.With(labels).Set(v)
	}
	on := prometheus.Labels{"container": "web", "gpu": "0"}
	began := float64(n.Now().Unix())
	set("gpu_container_info", prometheus.Labels{"container": "web", "id": "c1", "image": "matmul:1", "class": "deadline"}, 1)
	set("gpu_container_memory_used_bytes", on, 30)
	n.set("web", "running", 1)
	set("gpu_task_start_timestamp_seconds", on, began)
	set("gpu_task_float_seconds", on, 20)
	set("gpu_task_work_seconds", on, 5)
	set("gpu_image_task_duration_seconds", prometheus.Labels{"image": "matmul:1"}, 6)
	set("gpu_info", prometheus.Labels{"gpu": "0", "index": "3", "name": "H200", "driver": "580"}, 1)
	e := start(t, n, nil)
	n.used.Set(40)
	n.advance(time.Second)
	evaluate(t, e)

	source := querier.NewSource(e)
	containers := map[string][]string{"a": {"c1", "c2"}}
	facts, err := source.Facts(t.Context(), placer.Ask{All: true, Containers: containers})
	if err != nil {
		t.Fatal(err)
	}
	nodes, tenants := facts.Nodes, facts.Tenants
	if alone, fresh, err := source.Tenants(t.Context(), containers); err != nil || !fresh["a"] || !reflect.DeepEqual(alone, tenants) {
		t.Errorf("alone: %+v, %v, %v", alone, fresh, err)
	}
	if len(tenants) != 1 || tenants["c1"].Memory["0"] != 30 || tenants["c1"].Tasks != 1 {
		t.Errorf("tenants = %+v", tenants)
	}
	if len(nodes) != 1 || len(nodes[0].GPUs) != 1 {
		t.Fatalf("nodes = %+v", nodes)
	}
	g := nodes[0].GPUs[0]
	if g.Index != 3 || g.Name != "H200" || g.MemoryFree != 60 || g.MemoryTotal != 100 || !g.Open || len(g.Work) != 1 {
		t.Fatalf("GPU = %+v", g)
	}
	if w := g.Work[0]; w.Container != "web" || w.Due != 20 || w.Left != 5 {
		t.Errorf("work = %+v", w)
	}
	for need, want := range map[task.Seconds]bool{9: true, 16: false} {
		r := placement.Predictive.Rank(nodes, placement.Request{Deadline: need, Estimate: need}, n.Now())
		if _, ok := r.Best(); ok != want {
			t.Errorf("%v s of work: %s", need, r.Summary())
		}
	}
	if estimate, err := source.Estimate(t.Context(), "matmul:1"); err != nil || estimate != 6 {
		t.Errorf("estimate = %v, %v", estimate, err)
	}
	if estimate, err := source.Estimate(t.Context(), "other"); err != nil || estimate != 0 {
		t.Errorf("estimate of an unknown image = %v, %v", estimate, err)
	}
}

// TestPodsFromTheEngine: pods are told by what the exporter says of their containers, and which of these
// uses a GPU.
func TestPodsFromTheEngine(t *testing.T) {
	n := newNode()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gpu_container_info"}, []string{"container", "id", "image", "class", "namespace", "pod"})
	memory := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gpu_container_memory_used_bytes"}, []string{"container", "gpu", "namespace", "pod"})
	n.MustRegister(info, memory)
	for container, id := range map[string]string{"proxy": "c1", "main": "c2", "second": "c3"} {
		for _, pod := range []string{"holds", "begins", "computes"} {
			info.WithLabelValues("team/"+pod+"/"+container, pod+"-"+id, "image:1", "deadline", "team", pod).Set(1)
		}
	}
	info.WithLabelValues("other/holds/main", "c4", "image:1", "deadline", "other", "holds").Set(1)
	for _, container := range []string{"main", "second"} {
		memory.WithLabelValues("team/holds/"+container, "1", "team", "holds").Set(7)
	}
	memory.WithLabelValues("team/holds/proxy", "0", "team", "holds").Set(0)
	n.tasks.WithLabelValues("team/computes/main", "0", "running").Set(1)
	n.tasks.WithLabelValues("team/begins/main", "0", "running").Set(0)
	e := start(t, n, nil)
	evaluate(t, e)

	var asked []placer.PodOn
	for _, pod := range []string{"team/holds", "team/begins", "team/computes", "team/gone"} {
		asked = append(asked, placer.PodOn{Node: "a", Pod: pod})
	}
	asked = append(asked, placer.PodOn{Node: "b", Pod: "team/holds"})
	source := querier.NewSource(e)
	got, err := source.Pods(t.Context(), asked)
	want := map[placer.PodOn]placer.Use{asked[0]: {Container: "holds-c2", GPU: "1"}, asked[1]: {}, asked[2]: {Container: "computes-c2", GPU: "0"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := source.Pods(t.Context(), nil); err != nil || len(got) > 0 {
		t.Errorf("no pods: %v, %v", got, err)
	}
}
