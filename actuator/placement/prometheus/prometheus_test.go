package prometheus_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/prometheus"
)

type querier func(expr string) (model.Vector, error)

func (q querier) Query(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
	return q(expr)
}

func sample(name, node, gpu string, v float64) *model.Sample {
	m := model.Metric{model.MetricNameLabel: model.LabelValue(name), "node": model.LabelValue(node)}
	if gpu != "" {
		m["gpu"] = model.LabelValue(gpu)
	}
	return &model.Sample{Metric: m, Value: model.SampleValue(v)}
}

func TestNodes(t *testing.T) {
	source := prometheus.NewSource(querier(func(string) (model.Vector, error) {
		return model.Vector{
			sample("gpu_memory_free_bytes", "b", "1", 7e9),
			sample("node:float:seconds", "b", "", math.Inf(1)),
			sample("node:fresh:bool", "b", "", 1),
			sample("node:seen:timestamp_seconds", "b", "", 1_800_000_000.5),
			sample("gpu_memory_provisionable_bytes", "b", "1", 7e9),
			sample("gpu_utilization_ratio", "b", "1", 0.5),
			sample("gpu_memory_free_bytes", "b", "0", -1),
			sample("node:fresh:bool", "a", "", 0),
			sample("something:else", "a", "", 1),
		}, nil
	}))
	nodes, err := source.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || nodes[0].Name != "a" || nodes[0].Fresh || nodes[0].Score != 0 || len(nodes[0].GPUs) != 0 {
		t.Fatalf("nodes = %+v", nodes)
	}
	b := nodes[1]
	if !b.Fresh || !b.Provisionable || b.Score != 7e9 || b.MemoryFree != 7e9 || !math.IsInf(float64(b.Float), 1) || b.Seen.UnixMilli() != 1_800_000_000_500 {
		t.Errorf("b = %+v", b)
	}
	if len(b.GPUs) != 2 || b.GPUs[0].UUID != "0" ||
		b.GPUs[0].MemoryFree != 0 || !math.IsNaN(float64(b.GPUs[0].Utilization)) || b.GPUs[0].Provisionable {
		t.Errorf("GPU 0 = %+v", b.GPUs[0])
	}
	if g := b.GPUs[1]; !g.Provisionable || g.MemoryFree != 7e9 || g.Utilization != 0.5 {
		t.Errorf("GPU 1 = %+v", g)
	}
}

func TestNodesFails(t *testing.T) {
	_, err := prometheus.NewSource(querier(func(string) (model.Vector, error) { return nil, nil })).Nodes(t.Context())
	if !errors.Is(err, prometheus.ErrNoNodes) || !strings.Contains(err.Error(), "recording.yml") {
		t.Errorf("error = %v", err)
	}
	down := errors.New("down")
	_, err = prometheus.NewSource(querier(func(string) (model.Vector, error) { return nil, down })).Nodes(t.Context())
	if !errors.Is(err, down) {
		t.Errorf("error = %v", err)
	}
}

// A Prometheus that has just begun knows no node: that is no answer, also to who asks for some. One that
// knows others says that these are not there.
func TestNamedNodesOfAnEmptyPrometheus(t *testing.T) {
	for others, want := range map[float64]error{0: prometheus.ErrNoNodes, 3: nil} {
		source := prometheus.NewSource(querier(func(expr string) (model.Vector, error) {
			if strings.HasPrefix(expr, "count(") && others > 0 {
				return model.Vector{sample("", "", "", others)}, nil
			}
			return nil, nil
		}))
		facts, err := source.Facts(t.Context(), placer.Ask{Nodes: []string{"a"}})
		if !errors.Is(err, want) || len(facts.Nodes) != 0 {
			t.Errorf("%v others are known: %+v, %v; want %v", others, facts.Nodes, err, want)
		}
		_, fresh, err := source.Tenants(t.Context(), map[string][]string{"a": {"c"}})
		if !errors.Is(err, want) || len(fresh) != 0 {
			t.Errorf("%v others are known: %v, %v; want %v", others, fresh, err, want)
		}
	}
}

// A node whose exporter does not reach its container engine says nothing about containers.
func TestNodeWithoutItsEngineIsNotFresh(t *testing.T) {
	down := func(node string) *model.Sample {
		return &model.Sample{Metric: model.Metric{"fact": "engine down", "node": model.LabelValue(node)}}
	}
	for name, tc := range map[string]struct {
		answer model.Vector
		want   map[string]bool
	}{
		"engine up, or no series": {model.Vector{sample("node:fresh:bool", "a", "", 1)}, map[string]bool{"a": true}},
		"engine down":             {model.Vector{sample("node:fresh:bool", "a", "", 1), down("a")}, map[string]bool{"a": false}},
		"in the other order":      {model.Vector{down("a"), sample("node:fresh:bool", "a", "", 1)}, map[string]bool{"a": false}},
		"of another node":         {model.Vector{sample("node:fresh:bool", "a", "", 1), sample("node:fresh:bool", "b", "", 1), down("b")}, map[string]bool{"a": true, "b": false}},
		"of a node not known":     {model.Vector{sample("node:fresh:bool", "a", "", 1), down("b")}, map[string]bool{"a": true}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			source := prometheus.NewSource(querier(func(expr string) (model.Vector, error) {
				asked = expr
				return tc.answer, nil
			}))
			tenants, fresh, err := source.Tenants(t.Context(), map[string][]string{"a": {"c"}, "b": {"d"}})
			if err != nil || !maps.Equal(fresh, tc.want) || len(tenants) > 0 {
				t.Errorf("%v, %v, %v", fresh, tenants, err)
			}
			if !strings.Contains(asked, `min by (node) (laxity_exporter_engine_up{node=~"a|b"}) == 0`) {
				t.Errorf("asked %s", asked)
			}
		})
	}
}

func TestClient(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string // of the vector, or in the error
	}{
		"vector":  {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"node":"a"},"value":[1,"+Inf"]}]}}`, `{node="a"} => +Inf @[1]`},
		"scalar":  {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, `{} => 2 @[1]`},
		"matrix":  {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "instant vector"},
		"partial": {200, `{"status":"success","warnings":["store x is away"],"data":{"resultType":"vector","result":[]}}`, "store x is away"},
		"refused": {400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, "parse error"},
		"broken":  {503, `down for maintenance`, "check that it runs"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// Now is Prometheus's: the clock here may be another one.
				if r.URL.Path != "/api/v1/query" || r.FormValue("query") != "up" || r.FormValue("time") != "" {
					t.Errorf("asked for %s %q at %q", r.URL.Path, r.FormValue("query"), r.FormValue("time"))
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer server.Close()
			client, err := prometheus.NewClient(server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			v, err := client.Query(t.Context(), "up", time.Time{})
			if err != nil {
				got = err.Error()
			} else {
				got = v.String()
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (name == "partial") != errors.Is(err, prometheus.ErrPartial) {
				t.Errorf("error = %v", err)
			}
		})
	}
	for _, address := range []string{"", "localhost:9090", "ftp://x", "http://", "://"} {
		if _, err := prometheus.NewClient(address, nil); err == nil || !strings.Contains(err.Error(), "http://localhost:9090") {
			t.Errorf("%q: error = %v", address, err)
		}
	}
}

func TestFacts(t *testing.T) {
	asked := ""
	source := prometheus.NewSource(querier(func(expr string) (model.Vector, error) {
		asked = expr
		tenant := func(fact, id, gpu string, v float64) *model.Sample {
			return &model.Sample{Metric: model.Metric{"fact": model.LabelValue(fact), "id": model.LabelValue(id), "gpu": model.LabelValue(gpu), "node": "a"}, Value: model.SampleValue(v)}
		}
		return model.Vector{
			sample("node:fresh:bool", "a", "", 1), sample("gpu_memory_total_bytes", "a", "0", 80), sample("gpu_open", "a", "0", 1),
			{Metric: model.Metric{model.MetricNameLabel: "gpu_task_float_seconds", "node": "a", "gpu": "0", "container": "web"}, Value: 5},
			{Metric: model.Metric{model.MetricNameLabel: "gpu_task_work_seconds", "node": "a", "gpu": "0", "container": "web"}, Value: 3},
			{Metric: model.Metric{model.MetricNameLabel: "gpu_info", "node": "a", "gpu": "0", "index": "2", "name": "H200", "driver": "580"}, Value: 1},
			tenant("known", "c1", "", 1), tenant("memory", "c1", "0", 7), tenant("tasks", "c1", "", 2), tenant("known", "c2", "", 1),
		}, nil
	}))
	facts, err := source.Facts(t.Context(), placer.Ask{All: true, Containers: map[string][]string{"a": {"c1", "c2"}}})
	nodes, tenants := facts.Nodes, facts.Tenants
	if err != nil || facts.Rest != nil || len(nodes) != 1 || len(nodes[0].GPUs) != 1 {
		t.Fatalf("%+v, %v", nodes, err)
	}
	if g := nodes[0].GPUs[0]; !g.Open || g.MemoryTotal != 80 || g.Index != 2 || g.Name != "H200" || len(g.Work) != 1 || g.Work[0].Left != 3 || g.Work[0].Due != 5 {
		t.Errorf("GPU = %+v", g)
	}
	if len(tenants) != 2 || tenants["c1"].Memory["0"] != 7 || tenants["c1"].Tasks != 2 || tenants["c2"].Tasks != 0 {
		t.Errorf("tenants = %+v", tenants)
	}
	if !strings.Contains(asked, `gpu_container_info{node=~"a",id=~"c1|c2"}`) {
		t.Errorf("asked %s", asked)
	}
	if e, err := source.Estimate(t.Context(), `a"b`); err != nil || e != 1 || !strings.Contains(asked, `{image="a\"b"}`) {
		t.Errorf("estimate = %v, %v: %s", e, err, asked)
	}
	// The exporter knows images by one name, whatever the engine or a pod calls them.
	if _, err := source.Estimate(t.Context(), "docker.io/team/model:latest"); err != nil || !strings.Contains(asked, `{image="team/model"}`) {
		t.Errorf("%v: %s", err, asked)
	}
}
