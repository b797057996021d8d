package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/exporter/task"
)

type source struct {
	nodes []placement.Node
	err   error
}

func (s source) Nodes(context.Context) ([]placement.Node, error) { return s.nodes, s.err }

func TestNodesHandler(t *testing.T) {
	inf, nan := task.Seconds(math.Inf(1)), task.Seconds(math.NaN())
	known := source{nodes: []placement.Node{
		{Name: "a", Fresh: true, Provisionable: true, Float: 5, MemoryFree: 100, Score: 100,
			GPUs: []placement.GPU{{UUID: "g", Provisionable: true, MemoryFree: 100, Float: 5, Utilization: nan}}},
		{Name: "b", Fresh: true, Provisionable: true, Float: inf, MemoryFree: 50, Score: 50,
			GPUs: []placement.GPU{{UUID: "h", Provisionable: true, MemoryFree: 50, Float: inf}}},
	}}
	for name, tc := range map[string]struct {
		source source
		method string
		query  string
		code   int
		says   []string
		first  string
	}{
		"all":           {known, "GET", "", 200, []string{`"summary":"2/2 nodes"`, `"float_seconds":"+Inf"`, `"utilization_ratio":"NaN"`, `"reasons":[]`}, "a"},
		"a deadline":    {known, "GET", "?deadline=9s", 200, []string{"float short (deadline 9s, float 5s)", `"code":"float_short"`}, "b"},
		"memory":        {known, "GET", "?gpu_memory=70", 200, []string{"GPU memory short (need 70B, free 50B)"}, "a"},
		"bad deadline":  {known, "GET", "?deadline=-1", 400, []string{"deadline"}, ""},
		"bad memory":    {known, "GET", "?gpu_memory=x", 400, []string{"gpu_memory"}, ""},
		"no prometheus": {source{err: errors.New("it is down")}, "GET", "", 503, []string{"it is down"}, ""},
		"post":          {known, "POST", "", 405, []string{"GET"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h := api.NodesHandler(tc.source, promslog.NewNopLogger(), func() time.Time { return time.Unix(1, 0) })
			h.ServeHTTP(w, httptest.NewRequest(tc.method, "/api/v1/nodes"+tc.query, nil))
			if w.Code != tc.code || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%d %s", w.Code, w.Header().Get("Content-Type"))
			}
			for _, s := range tc.says {
				if !strings.Contains(w.Body.String(), s) {
					t.Errorf("%s does not say %s", w.Body, s)
				}
			}
			if tc.first == "" {
				return
			}
			var got api.Nodes
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Nodes) != 2 || got.Nodes[0].Name != tc.first || !got.Nodes[0].Candidate || got.Nodes[0].GPU == "" {
				t.Errorf("nodes = %+v", got.Nodes)
			}
		})
	}
}
