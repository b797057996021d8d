package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/actuator/placement/service"
)

// oneNode is a Prometheus that knows one idle node.
type oneNode struct{}

func (oneNode) Query(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
	if strings.Contains(expr, "image:") { // how long tasks of an image took: nobody knows
		return nil, nil
	}
	var v model.Vector
	for name, value := range map[string]float64{"node:fresh:bool": 1, "gpu_memory_provisionable_bytes": 8 << 30, "gpu_open": 1,
		"gpu_memory_free_bytes": 8 << 30, "gpu_memory_total_bytes": 8 << 30} {
		m := model.Metric{model.MetricNameLabel: model.LabelValue(name), "node": "gpu-1"}
		if !strings.HasPrefix(name, "node:") {
			m["gpu"] = "GPU-a"
		}
		v = append(v, &model.Sample{Metric: m, Value: model.SampleValue(value)})
	}
	return v, nil
}

func placing(t *testing.T) string {
	t.Helper()
	at, _ := placingPods(t)
	return at
}

// placingPods is placing, and what kube-scheduler's extender asks.
func placingPods(t *testing.T) (string, *service.Service) {
	t.Helper()
	s, err := service.New(service.Options{StateDir: t.TempDir(), Querier: oneNode{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	mux := chi.NewRouter()
	open := func(h http.Handler) http.Handler { return h }
	s.Register(mux, open, open)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return "--actuator.url=" + server.URL, s
}

func TestNodesAndPlace(t *testing.T) {
	at := placing(t)
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"nodes"}, exitOK, "1/1 nodes  (ranking: predictive)"},
		{[]string{"nodes", "--gpu-memory=6GiB", "--ranking=paper"}, exitOK, "gpu-1"},
		{[]string{"place", "--dry-run", "--gpu-memory=6GiB"}, exitOK, "yes"},
		{[]string{"placements"}, exitOK, "PLACEMENT"},
		{[]string{"place", "--deadline=9s", "--gpu-memory=6GiB"}, exitOK, "node gpu-1  GPU GPU-a"},
		{[]string{"place", "--gpu-memory=6GiB"}, exitFailure, "no node can take it: 0/1 nodes: 1 GPU memory short (need 6GiB, free 8GiB − 6GiB reserved)"},
		{[]string{"nodes", "--gpu-memory=6GiB"}, exitOK, "need 6GiB, free 8GiB − 6GiB reserved"},
		{[]string{"place", "--gpu-memory=9GiB"}, exitFailure, "the largest has 8GiB"},
		{[]string{"place", "--deadline=0"}, exitUsage, "longer than 0"},
		{[]string{"place", "--node=gpu-7"}, exitFailure, `no node "gpu-7": known are gpu-1`},
		{[]string{"nodes", "--deadline=abc"}, exitUsage, "'laxity nodes --help'"},
		{[]string{"place", "--count=0"}, exitUsage, "1 to 1000"},
		{[]string{"nodes", "--ranking=best"}, exitUsage, "paper, predictive"},
		{[]string{"placements", "--release=nothing"}, exitFailure, "no such placement"},
	} {
		code, stdout, stderr := laxity(append(step.args, at)...)
		if code != step.code || !strings.Contains(stdout+stderr, step.says) {
			t.Errorf("%v: code %d, %s%s", step.args, code, stdout, stderr)
		}
	}
	code, stdout, _ := laxity("placements", "--json", at)
	var list []api.Placement
	if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil || len(list) != 1 {
		t.Fatalf("code %d, %v: %s", code, err, stdout)
	}
	if code, _, stderr := laxity("placements", "--release="+list[0].ID, at); code != exitOK {
		t.Errorf("release: code %d, %s", code, stderr)
	}
	var n api.Nodes
	if code, stdout, _ = laxity("nodes", "--json", at); code != exitOK || json.Unmarshal([]byte(stdout), &n) != nil || len(n.Nodes) != 1 {
		t.Errorf("nodes --json: code %d, %s", code, stdout)
	}
}

// A reservation for a pod says which pod it is for.
func TestPlacementsOfPods(t *testing.T) {
	at, s := placingPods(t)
	if code, _, stderr := laxity("place", "--gpu-memory=1GiB", at); code != exitOK {
		t.Fatal(stderr)
	}
	if _, stdout, _ := laxity("placements", at); strings.Contains(stdout, "POD") {
		t.Errorf("no pod has one: %s", stdout)
	}
	pod := reservation.Pod{Namespace: "team", Name: "infer-0", UID: "7a0c"}
	if _, _, err := s.PlacePod(t.Context(), pod, []string{"gpu-1"}, placer.Request{Request: placement.Request{GPUMemory: 4 << 30}}); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := laxity("placements", at)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != exitOK || len(lines) != 3 {
		t.Fatalf("code %d: %s", code, stdout)
	}
	for i, want := range []string{"POD", "-", "team/infer-0"} {
		if column := strings.Fields(lines[i])[6]; column != want {
			t.Errorf("%q in %q, want %q", column, lines[i], want)
		}
	}
	code, stdout, _ = laxity("placements", "--json", at)
	conforms(t, "placements", stdout)
	var list []api.Placement
	if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil || len(list) != 2 || list[1].Pod != pod || strings.Count(stdout, `"pod"`) != 1 {
		t.Errorf("code %d, %v: %s", code, err, stdout)
	}
	refusesToConform(t, "placements", `[{"id":"p1","node":"gpu-1","gpu":"GPU-a","state":"assumed","made":"2027-01-15T08:00:00Z","pod":{"name":"infer-0"}}]`)
}

func TestRunRefusesBeforeAnythingIsMade(t *testing.T) {
	at := placing(t)
	for says, args := range map[string][]string{
		"longer than 0":        {"run", "--deadline", "0", "img"},
		"amount of memory":     {"create", "--gpu-memory", "much", "img"},
		"no image":             {"run", at},
		"the largest has":      {"run", at, "--gpu-memory", "9GiB", "img"},
		`no node "gpu-7"`:      {"run", at, "--node", "gpu-7", "img"},
		"nodes.yaml":           {"run", at, "--deadline", "9s", "img"}, // gpu-1 is not this machine
		"is no actuator":       {"run", "--actuator.url", "here", "img"},
		"--node=local":         {"run", "--actuator.url", "http://127.0.0.1:1", "img"},
		"leave --gpus out":     {"run", "--gpus", "all", "img"},
		"laxity create --help": {"create"},
	} {
		if code, stdout, stderr := laxity(args...); code != 125 || !strings.Contains(stderr, says) {
			t.Errorf("%v: code %d, %s%s", args, code, stdout, stderr)
		}
	}
	if _, stdout, _ := laxity("placements", "--json", at); strings.TrimSpace(stdout) != "[]" {
		t.Errorf("left reserved: %s", stdout)
	}
	for _, command := range []string{"run", "create", "nodes", "place", "placements"} {
		if code, stdout, _ := laxity(command, "--help"); code != exitOK || len(stdout) < 100 {
			t.Errorf("%s --help: code %d: %s", command, code, stdout)
		}
	}
	if code, _, stderr := laxity("--log.level=debug", "run", "img"); code != exitUsage || !strings.Contains(stderr, "first") {
		t.Errorf("flags before run: code %d, %s", code, stderr)
	}
	// As Docker calls its plugin, with options of its own.
	if code, stdout, _ := as("docker-laxity", "--log-level", "info", "laxity", "placements", at); code != exitOK || !strings.Contains(stdout, "PLACEMENT") {
		t.Errorf("docker --log-level info laxity placements: code %d, %s", code, stdout)
	}
}
