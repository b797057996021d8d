package service_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/actuator/placement/service"
)

// facts are those of one idle node; or an error.
type facts struct{ err error }

func (f *facts) Query(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
	if f.err != nil {
		return nil, f.err
	}
	if strings.HasPrefix(expr, "count(") {
		return model.Vector{{Value: 1}}, nil
	}
	var v model.Vector
	for name, value := range map[string]float64{"node:fresh:bool": 1, "gpu_open": 1, "gpu_memory_free_bytes": 8 << 30, "gpu_memory_total_bytes": 8 << 30} {
		m := model.Metric{model.MetricNameLabel: model.LabelValue(name), "node": "a"}
		if !strings.HasPrefix(name, "node:") {
			m["gpu"] = "GPU-a"
		}
		v = append(v, &model.Sample{Metric: m, Value: model.SampleValue(value)})
	}
	return v, nil
}

func open(t *testing.T, dir string, f *facts) (*service.Service, *httptest.Server, *api.Client) {
	t.Helper()
	list, err := nodes.Open(filepath.Join(dir, "nodes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := service.New(service.Options{StateDir: dir, Querier: f, Nodes: list, Local: func() string { return "a" }})
	if err != nil {
		t.Fatal(err)
	}
	mux := chi.NewRouter()
	s.Register(mux, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Stranger") != "" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	}, func(h http.Handler) http.Handler { return h })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := api.NewClient(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, server, c
}

// What was promised before a restart is promised after it, and what the page says
// is what the API says.
func TestRestartAndPage(t *testing.T) {
	dir, f := t.TempDir(), &facts{}
	nodes := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "nodes.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nodes("[{node: a, docker: {context: one}}]")
	s, _, c := open(t, dir, f)
	placed, err := c.Place(t.Context(), api.Wanted{Deadline: "9s", GPUMemory: "6GiB"})
	if err != nil || placed.Placements[0].Docker.Context != "one" {
		t.Fatalf("%+v, %v", placed, err)
	}
	nodes("[{node: a, docker: {context: two}}]")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	s, server, c := open(t, dir, f)
	defer func() { _ = s.Close() }()
	list, err := c.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != placed.Placements[0].ID || list[0].Docker.Context != "two" {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
	want := "0/1 nodes: 1 GPU memory short (need 4GiB, free 8GiB − 6GiB reserved)"
	if _, err := c.Place(t.Context(), api.Wanted{GPUMemory: "4GiB"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v", err)
	}
	page := get(t, server, "/placements?gpu_memory=4GiB")
	for _, text := range []string{want, list[0].ID, "assumed", "6GiB"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	for query, text := range map[string]string{"deadline=0": "longer than 0", "deadline=%3Cscript%3E": "&lt;script&gt;"} {
		if page := get(t, server, "/placements?"+query); !strings.Contains(page, text) {
			t.Errorf("%s: the page does not say %q", query, text)
		}
	}
	f.err = errors.New("prometheus is down")
	if page := get(t, server, "/placements"); !strings.Contains(page, "prometheus is down") {
		t.Error("the page does not say that Prometheus is down")
	}
}

func get(t *testing.T, server *httptest.Server, path string) string {
	t.Helper()
	resp, err := http.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestChangesAreGuarded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nodes.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, server, _ := open(t, dir, &facts{})
	defer func() { _ = s.Close() }()
	for path, want := range map[string]int{
		"POST /api/v1/placements": 403, "DELETE /api/v1/placements/x": 403, "POST /api/v1/placements/x/check": 403,
		"PUT /api/v1/placements/x/container": 403, "GET /api/v1/placements": 200, "GET /api/v1/nodes": 200,
	} {
		method, path, _ := strings.Cut(path, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Stranger", "1")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s %s: %s", method, path, resp.Status)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]service.Options{
		"nothing":     {},
		"no querier":  {StateDir: t.TempDir()},
		"no such way": {StateDir: t.TempDir(), Querier: &facts{}, Method: "best"},
	} {
		if s, err := service.New(o); err == nil {
			t.Errorf("%s was taken", name)
			_ = s.Close()
		}
	}
}

// TestPodIsListed: who looks at the reservations sees for which pod one is, also after a restart.
func TestPodIsListed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nodes.yaml"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := reservation.Pod{Namespace: "team", Name: "infer", UID: "7a0c"}
	s, _, _ := open(t, dir, &facts{})
	e, _, err := s.PlacePod(t.Context(), pod, []string{"a", "b"}, placer.Request{Request: placement.Request{GPUMemory: 6 << 30}})
	if err != nil || e.Node != "a" || e.GPU != "GPU-a" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, server, c := open(t, dir, &facts{})
	if list, err := c.List(t.Context()); err != nil || len(list) != 1 || list[0].Pod != pod {
		t.Errorf("%+v, %v", list, err)
	}
	if page := get(t, server, "/placements"); !strings.Contains(page, "pod team/infer<") {
		t.Errorf("the page does not say for which pod: %s", page)
	}
}
