package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/exporter/task"
)

type source struct {
	nodes []placement.Node
	err   error
}

func (s *source) Facts(context.Context, placer.Ask) (placer.Facts, error) {
	return placer.Facts{Nodes: s.nodes}, s.err
}

func (s *source) Tenants(context.Context, map[string][]string) (map[string]placer.Tenant, map[string]bool, error) {
	return nil, nil, s.err
}

func (s *source) Pods(context.Context, []placer.PodOn) (map[placer.PodOn]placer.Use, error) {
	return nil, s.err
}

func (s *source) Estimate(context.Context, string) (task.Seconds, error) { return 3, s.err }

const gib = 1 << 30

func known() *source {
	inf, nan := task.Seconds(math.Inf(1)), task.Ratio(math.NaN())
	return &source{nodes: []placement.Node{
		{Name: "a", Fresh: true, Provisionable: true, Float: 5, MemoryFree: 20 * gib, Score: 20 * gib, GPUs: []placement.GPU{{
			UUID: "GPU-a", Name: "H200", Driver: "580.0-sim", Provisionable: true, Open: true, MemoryTotal: 80 * gib, MemoryFree: 20 * gib, Utilization: nan,
			Work: []placement.Work{{Container: "web", Due: 5, Left: 4}}}}},
		{Name: "b", Fresh: true, Provisionable: true, Float: inf, MemoryFree: 10 * gib, Score: 10 * gib, GPUs: []placement.GPU{{
			UUID: "GPU-b", Provisionable: true, Open: true, MemoryTotal: 80 * gib, MemoryFree: 10 * gib}}},
	}}
}

func serve(t *testing.T, s *source, ids ...string) (*httptest.Server, *api.Client) {
	t.Helper()
	dir := t.TempDir()
	l, _, err := reservation.Open(filepath.Join(dir, "placements.db"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	path := filepath.Join(dir, "nodes.yaml")
	if err := os.WriteFile(path, []byte("[{node: b, docker: {host: 'ssh://admin@b'}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := nodes.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	next := func() string { id := ids[0]; ids = ids[1:]; return id }
	if len(ids) == 0 {
		next = nil
	}
	now := func() time.Time { return time.Unix(1_800_000_000, 0) }
	p, err := placer.New(placer.Options{Source: s, Reservations: l, Method: placement.Paper, Now: now, NewID: next})
	if err != nil {
		t.Fatal(err)
	}
	mux := chi.NewRouter()
	open := func(h http.Handler) http.Handler { return h }
	api.NewServer(api.Options{Placer: p, Nodes: list, Local: func() string { return "a" }, Now: now}).Register(mux, open, open)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := api.NewClient(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

func call(t *testing.T, server *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	var v any
	if err := json.NewDecoder(resp.Body).Decode(&v); err == nil {
		_ = json.NewEncoder(&b).Encode(v)
	}
	return resp.StatusCode, b.String()
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path, body string
		code               int
		says               []string
	}{
		"all nodes":           {"GET", "/api/v1/nodes", "", 200, []string{`"summary":"2/2 nodes"`, `"float_seconds":null`, `"float_reason":"no task with a deadline has ended there"`, `"utilization_ratio":null`, `"utilization_reason":"Prometheus has no value of it"`, `"reasons":[]`, `"ranking":"paper"`}},
		"nodes by deadline":   {"GET", "/api/v1/nodes?deadline=9s", "", 200, []string{"float short (deadline 9s, float 5s)", `"code":"float_short"`}},
		"nodes by memory":     {"GET", "/api/v1/nodes?gpu_memory=15GiB", "", 200, []string{"GPU memory short (need 15GiB, free 10GiB)"}},
		"nodes, predictive":   {"GET", "/api/v1/nodes?deadline=6s&estimate=3s&ranking=predictive", "", 200, []string{"time short (due in 6s, needs 3s after 4s of work", `"ranking":"predictive"`}},
		"nodes, by image":     {"GET", "/api/v1/nodes?deadline=6s&image=m&ranking=predictive", "", 200, []string{"needs 3s after 4s"}},
		"an unknown ranking":  {"GET", "/api/v1/nodes?ranking=best", "", 400, []string{"paper predictive"}},
		"nodes, bad deadline": {"GET", "/api/v1/nodes?deadline=-1", "", 400, []string{"deadline"}},

		"placed":                    {"POST", "/api/v1/placements", `{"deadline":"4s","gpu_memory":"4GiB"}`, 201, []string{`"node":"a"`, `"gpu":"GPU-a"`, `"simulated":true`, `"local":true`, `"state":"assumed"`}},
		"placed on another machine": {"POST", "/api/v1/placements", `{"deadline":9,"gpu_memory":4294967296}`, 201, []string{`"node":"b"`, `"host":"ssh://admin@b"`, `"float short (deadline 9s, float 5s)"`}},
		"several":                   {"POST", "/api/v1/placements", `{"gpu_memory":"6GiB","count":4}`, 201, []string{`"node":"a"`, `"node":"b"`}},
		"dry run":                   {"POST", "/api/v1/placements", `{"deadline":"4s","dry_run":true}`, 200, []string{`"placements":[]`, `"summary":"2/2 nodes"`}},
		"no room":                   {"POST", "/api/v1/placements", `{"gpu_memory":"30GiB"}`, 409, []string{`no node can take it: 0/2 nodes: 2 GPU memory short (need 30GiB, free 20GiB)`, `"code":"memory_short"`}},
		"no room for all":           {"POST", "/api/v1/placements", `{"gpu_memory":"6GiB","count":5}`, 409, []string{"only 4 of 5 find a place", "18GiB reserved"}},
		"larger than any GPU":       {"POST", "/api/v1/placements", `{"gpu_memory":"100GiB"}`, 422, []string{"need 100GiB, the largest has 80GiB"}},
		"an unknown node":           {"POST", "/api/v1/placements", `{"node":"c"}`, 404, []string{`no node \"c\": known are a, b`}},
		"deadline 0":                {"POST", "/api/v1/placements", `{"deadline":0}`, 400, []string{"deadline", "longer than 0"}},
		"deadline below 0":          {"POST", "/api/v1/placements", `{"deadline":"-9s"}`, 400, []string{"longer than 0"}},
		"estimate 0":                {"POST", "/api/v1/placements", `{"estimate":"0s"}`, 400, []string{"estimate"}},
		"memory is no size":         {"POST", "/api/v1/placements", `{"gpu_memory":"much"}`, 400, []string{"gpu_memory", "4GiB"}},
		"count 0":                   {"POST", "/api/v1/placements", `{"count":0}`, 400, []string{"1 to 1000"}},
		"count too high":            {"POST", "/api/v1/placements", `{"count":1001}`, 400, []string{"1 to 1000"}},
		"no JSON":                   {"POST", "/api/v1/placements", `deadline=9`, 400, []string{"cannot be read"}},
		"a field that is not known": {"POST", "/api/v1/placements", `{"dedline":9}`, 400, []string{"dedline"}},
		"more than JSON":            {"POST", "/api/v1/placements", `{} {}`, 400, []string{"behind"}},
		"ranking of its own":        {"POST", "/api/v1/placements", `{"ranking":"predictive"}`, 400, []string{"dry_run"}},
		"check of nothing":          {"POST", "/api/v1/placements/x/check", ``, 404, []string{"no such placement"}},
		"bind of nothing":           {"PUT", "/api/v1/placements/x/container", `{"container_id":"c"}`, 404, []string{"no such placement"}},
		"bind without container":    {"PUT", "/api/v1/placements/x/container", `{}`, 400, []string{"container_id"}},
		"release of nothing":        {"DELETE", "/api/v1/placements/x", ``, 404, []string{"no such placement"}},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := serve(t, known())
			code, body := call(t, server, tc.method, tc.path, tc.body)
			if code != tc.code {
				t.Errorf("code = %d, want %d", code, tc.code)
			}
			for _, s := range tc.says {
				if !strings.Contains(body, s) {
					t.Errorf("%s does not say %s", body, s)
				}
			}
			if code, list := call(t, server, "GET", "/api/v1/placements", ""); code != 200 || (tc.code != 201) != (list == "[]\n") {
				t.Errorf("reservations: %d %s", code, list)
			}
		})
	}
}

func TestSourceDown(t *testing.T) {
	s := known()
	s.err = errors.New("prometheus answered with partial data")
	server, _ := serve(t, s)
	for _, path := range []string{"GET /api/v1/nodes", "POST /api/v1/placements"} {
		method, path, _ := strings.Cut(path, " ")
		if code, body := call(t, server, method, path, "{}"); code != 503 || !strings.Contains(body, "nothing can be placed now: prometheus answered with partial data") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestClient(t *testing.T) {
	s := known()
	_, c := serve(t, s, "p1", "p2")
	ctx := t.Context()
	got, err := c.Place(ctx, api.Wanted{Deadline: "4s", GPUMemory: "4GiB"})
	if err != nil || len(got.Placements) != 1 || got.Placements[0].ID != "p1" || got.Placements[0].Memory != 4*gib {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := c.Check(ctx, "p1"); err != nil {
		t.Error(err)
	}
	if err := c.Bind(ctx, "p1", "c1"); err != nil {
		t.Error(err)
	}
	if list, err := c.List(ctx); err != nil || len(list) != 1 || list[0].Container != "c1" || list[0].State != reservation.Created {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.Release(ctx, "p1"); err != nil {
		t.Error(err)
	}
	if n, err := c.Nodes(ctx, api.Wanted{Deadline: "9s"}); err != nil || n.Summary != "1/2 nodes: 1 float short (deadline 9s, float 5s)" {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := c.Place(ctx, api.Wanted{Deadline: "4s"}); err != nil {
		t.Fatal(err)
	}
	s.nodes[0].Fresh = false
	var refused *api.RefusedError
	if err := c.Check(ctx, "p2"); !errors.As(err, &refused) || refused.Code != 409 || refused.Ranking == nil {
		t.Errorf("check: %v", err)
	}
	gone, err := api.NewClient("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	var away *api.UnreachableError
	if _, err := gone.List(ctx); !errors.As(err, &away) || !strings.Contains(err.Error(), "laxity up") {
		t.Errorf("error = %v", err)
	}
	if _, err := api.NewClient("localhost:9871", nil); err == nil {
		t.Error("an address without a scheme was taken")
	}
}
