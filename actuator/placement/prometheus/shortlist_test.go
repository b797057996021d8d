package prometheus_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/prometheus"
)

func TestListQuery(t *testing.T) {
	for want, l := range map[string]placer.List{
		`topk(3, node:rank:score > 0)`:                                         {},
		`topk(3, node:rank:score > 0 and node:float:seconds > 0.25)`:           {For: placement.Request{Deadline: 0.25}},
		`topk(3, node:rank:score >= 4294967296 and node:float:seconds > 3600)`: {For: placement.Request{Deadline: 3600, GPUMemory: 4 << 30}},
		`topk(3, node:memory_idle:bytes)`:                                      {Method: placement.Predictive, For: placement.Request{Deadline: 9}},
		`topk(3, node:memory_idle:bytes >= 8)`:                                 {Method: placement.Predictive, For: placement.Request{GPUMemory: 8}},
		`bottomk(3, min by (node) (gpu_demand_seconds and on (node, gpu) gpu_open == 1 and on (node, gpu) gpu_memory_free_bytes >= 8 and on (node) node:fresh:bool == 1))`: {Method: placement.Predictive, Busy: true, For: placement.Request{GPUMemory: 8}},
	} {
		l.Limit = 3
		if got := prometheus.ListQuery(l); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// steps answers queries one after another; count(…) with the number of nodes.
type steps struct {
	nodes   float64
	answers []model.Vector
	err     error
	exprs   []string
	at      []time.Time
}

func (s *steps) Query(_ context.Context, expr string, at time.Time) (model.Vector, error) {
	if strings.HasPrefix(expr, "count(") && s.nodes > 0 {
		return model.Vector{{Value: model.SampleValue(s.nodes)}}, nil
	}
	s.exprs, s.at = append(s.exprs, expr), append(s.at, at)
	if len(s.answers) == 0 {
		return nil, s.err
	}
	v := s.answers[0]
	s.answers = s.answers[1:]
	return v, nil
}

func list(limit int) *placer.List {
	return &placer.List{Method: placement.Paper, For: placement.Request{Deadline: 9}, Limit: limit}
}

// Of a large fleet the first nodes are read, and those that are named, at the
// moment of the order; and it is known what the rest has.
func TestShortList(t *testing.T) {
	first := sample("node:rank:score", "b.example", "", 7e9)
	first.Timestamp = 1_800_000_000_000
	q := &steps{nodes: 1000, answers: []model.Vector{{first, sample("node:rank:score", `odd"name|x`, "", 6e9)},
		{sample("gpu_memory_free_bytes", "b.example", "0", 7e9), sample("gpu_memory_provisionable_bytes", "b.example", "0", 7e9), sample("node:fresh:bool", "b.example", "", 1)}}}
	q.answers[0][1].Timestamp = first.Timestamp
	got, err := prometheus.NewSource(q).Facts(t.Context(), placer.Ask{List: list(2), Nodes: []string{"c"},
		Containers: map[string][]string{"c": {"id1"}, "elsewhere": {"id2"}}})
	if err != nil || len(got.Nodes) != 1 || got.Nodes[0].Name != "b.example" || got.Nodes[0].Score != 7e9 {
		t.Fatalf("%+v %v", got, err)
	}
	if len(q.exprs) != 2 || !strings.Contains(q.exprs[1], `,node=~"b\\.example|c|odd\"name\\|x"}`) || !q.at[1].Equal(time.UnixMilli(1_800_000_000_000)) {
		t.Errorf("asked %q at %v", q.exprs, q.at)
	}
	if !strings.Contains(q.exprs[1], `{node=~"c",id=~"id1"}`) || strings.Contains(q.exprs[1], "id2") {
		t.Errorf("the containers of the nodes that are read are asked about: %s", q.exprs[1])
	}
	if got.Rest.None || got.Rest.Free != 6e9 || got.Rest.For != list(2).For {
		t.Errorf("rest = %+v", got.Rest)
	}

	// No candidate is an answer, and costs one query.
	q = &steps{nodes: 1000}
	if got, err := prometheus.NewSource(q).Facts(t.Context(), placer.Ask{List: list(8)}); err != nil || len(got.Nodes) != 0 || !got.Rest.None || len(q.exprs) != 1 {
		t.Errorf("%+v %v %v", got, err, q.exprs)
	}
	// Nodes by name: nothing is said of the rest.
	q = &steps{nodes: 1000, answers: []model.Vector{{first}}}
	if got, err := prometheus.NewSource(q).Facts(t.Context(), placer.Ask{Nodes: []string{"b"}}); err != nil ||
		placement.Paper.Settles(placement.Verdict{Score: 1e18}, placement.Request{}, got.Rest) || len(q.exprs) != 1 {
		t.Errorf("%+v %v %v", got, err, q.exprs)
	}
}

func TestRestOfALongList(t *testing.T) {
	for name, tc := range map[string]struct {
		list placer.List
		want placement.Rest
	}{
		"without work":     {placer.List{Limit: 2}, placement.Rest{Free: 5}},
		"without, short":   {placer.List{Limit: 3}, placement.Rest{}},
		"by float":         {placer.List{Limit: 2, Busy: true, For: placement.Request{Deadline: 9}}, placement.Rest{For: placement.Request{Deadline: 9}, Busy: true, Float: 5}},
		"by work":          {placer.List{Limit: 2, Busy: true}, placement.Rest{Busy: true, Demand: 6}},
		"by float, short":  {placer.List{Limit: 3, Busy: true, For: placement.Request{Deadline: 9}}, placement.Rest{For: placement.Request{Deadline: 9}, Busy: true, None: true}},
		"without, by time": {placer.List{Limit: 2, For: placement.Request{Deadline: 9, Estimate: 3, GPUMemory: 4}}, placement.Rest{For: placement.Request{GPUMemory: 4}, Free: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.list.Method = placement.Predictive
			q := &steps{nodes: 1000, answers: []model.Vector{{sample("", "a", "", 5), sample("", "b", "", 6)}, nil}}
			got, err := prometheus.NewSource(q).Facts(t.Context(), placer.Ask{List: &tc.list})
			if err != nil || *got.Rest != tc.want {
				t.Errorf("rest = %+v, %v, want %+v", got.Rest, err, tc.want)
			}
		})
	}
}

// A small fleet is read whole, by one query; it is counted once.
func TestSmallFleet(t *testing.T) {
	q := &steps{nodes: prometheus.Small, answers: []model.Vector{{sample("node:fresh:bool", "a", "", 1)}, {sample("node:fresh:bool", "a", "", 1)}}}
	source := prometheus.NewSource(q)
	for range 2 {
		got, err := source.Facts(t.Context(), placer.Ask{List: list(8)})
		if err != nil || got.Rest != nil || len(got.Nodes) != 1 {
			t.Fatalf("%+v %v", got, err)
		}
		q.nodes = 0 // to be asked again would find no answer
	}
	if slices.ContainsFunc(q.exprs, func(e string) bool { return e != prometheus.Query }) || len(q.exprs) != 2 {
		t.Errorf("asked %q", q.exprs)
	}
}

func TestShortListFails(t *testing.T) {
	down := errors.New("down")
	first := model.Vector{sample("node:rank:score", "a", "", 1)}
	for _, q := range []*steps{{err: down}, {nodes: 1000, err: down}, {nodes: 1000, answers: []model.Vector{first}, err: down}} {
		if _, err := prometheus.NewSource(q).Facts(t.Context(), placer.Ask{List: list(8)}); !errors.Is(err, down) {
			t.Errorf("error = %v", err)
		}
	}
	if _, _, err := prometheus.NewSource(&steps{err: down}).Tenants(t.Context(), map[string][]string{"a": {"c"}}); !errors.Is(err, down) {
		t.Errorf("error = %v", err)
	}
}
