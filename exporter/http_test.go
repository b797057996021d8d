package exporter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
)

// api is an exporter on a simulated GPU and an engine in memory.
type api struct {
	*running
	engine *containertest.Fake
	gpu    *sim.GPU
	server http.Handler
}

func serve(t *testing.T, change func(*exporter.Options)) *api {
	t.Helper()
	gpu, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &api{engine: &containertest.Fake{}, gpu: gpu}
	opt := exporter.Options{Node: "test", StateDir: t.TempDir(),
		Parts: exporter.Parts{Device: gpu.Device(), Containers: a.engine}}
	if change != nil {
		change(&opt)
	}
	a.running = startWith(t, opt)
	a.server = a.Handler()
	a.engine.Put(container.Container{Name: "web", Image: "img", Labels: deadline9s})
	a.await("the container", func(s *task.Snapshot) bool { return len(s.Containers) == 1 && len(s.GPUs) == 1 })
	return a
}

// call makes a request from this machine.
func (a *api) call(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:9870"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, r)
	return w
}

func TestEndpoints(t *testing.T) {
	a := serve(t, nil)
	<-a.Ready()
	for path, want := range map[string]string{
		"/":             "Laxity exporter",
		"/metrics":      `gpu_container_deadline_seconds{container="web"} 9`,
		"/api/v1/tasks": `"name":"web"`,
		"/-/healthy":    "healthy",
		"/-/ready":      "ready",
	} {
		if w := a.call("GET", path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s; want %q in it", path, w.Code, w.Body, want)
		}
	}
	var s task.Snapshot
	if err := json.Unmarshal(a.call("GET", "/api/v1/tasks", "").Body.Bytes(), &s); err != nil || s.Node != "test" {
		t.Errorf("snapshot %+v, %v", s, err)
	}
	for request, want := range map[string]int{"GET /nowhere": 404, "GET /api/v1/tasks?watch=please": 400, "POST /metrics": 405, "GET /api/v1/containers/web": 405} {
		method, path, _ := strings.Cut(request, " ")
		w := a.call(method, path, "")
		if w.Code != want || !strings.Contains(w.Body.String(), `"hint"`) {
			t.Errorf("%s: %d %s", request, w.Code, w.Body)
		}
	}
}

// Profiles are for clients of this machine that may act.
func TestProfilesAreLocal(t *testing.T) {
	a := serve(t, nil)
	for remote, want := range map[string]int{"127.0.0.1:4711": 200, "192.0.2.1:4711": 403} {
		w := a.call("GET", "/debug/pprof/heap", "", func(r *http.Request) { r.RemoteAddr = remote })
		if w.Code != want {
			t.Errorf("from %s: %d", remote, w.Code)
		}
	}
}

func TestMetricsAreClean(t *testing.T) {
	a := serve(t, func(o *exporter.Options) { o.RuntimeMetrics = true })
	problems, err := testutil.GatherAndLint(a.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "go_") { // the Go runtime's own names
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}
}

func TestFormatsOfMetrics(t *testing.T) {
	a := serve(t, nil)
	for accept, want := range map[string]struct{ kind, begin, end string }{
		"":           {"text/plain; version=0.0.4", "# HELP ", "\n"},
		"text/plain": {"text/plain; version=0.0.4", "# HELP ", "\n"},
		"application/openmetrics-text;version=1.0.0":                                                 {"application/openmetrics-text; version=1.0.0", "# HELP ", "# EOF\n"},
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": {"application/vnd.google.protobuf", "", ""},
	} {
		w := a.call("GET", "/metrics", "", func(r *http.Request) { r.Header.Set("Accept", accept) })
		body := w.Body.String()
		if kind := w.Header().Get("Content-Type"); w.Code != 200 || !strings.HasPrefix(kind, want.kind) ||
			!strings.HasPrefix(body, want.begin) || !strings.HasSuffix(body, want.end) || !strings.Contains(body, "laxity_exporter_device_up") {
			t.Errorf("asked for %q: %d, %q, %d bytes", accept, w.Code, kind, len(body))
		}
	}
}

func TestChangeRequests(t *testing.T) {
	path := "/api/v1/containers/web"
	remote := func(r *http.Request) { r.RemoteAddr = "192.0.2.1:4711" }
	page := func(r *http.Request) { r.Header.Set("Origin", "https://example.org") }
	proxy := func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }
	forwarded := func(r *http.Request) { r.Header.Set("Forwarded", "for=192.0.2.1") }
	rebound := func(r *http.Request) { r.Host = "evil.example:9870" }
	tests := []struct {
		name, path, body string
		change           func(*http.Request)
		code             int
		deadline         task.Seconds // afterwards, as the share
		share            float64
	}{
		{"a duration", path, `{"deadline":"5s"}`, nil, 200, 5, 0},
		{"by id", "/api/v1/containers/" + containertest.ID("web"), `{"deadline":"250ms"}`, nil, 200, 0.25, 0},
		{"a number of seconds", path, `{"deadline":1.5}`, nil, 200, 1.5, 0},
		{"back to the label", path, `{"deadline":null}`, nil, 200, 9, 0},
		{"not a duration", path, `{"deadline":"soon"}`, nil, 400, 9, 0},
		{"zero", path, `{"deadline":"0s"}`, nil, 400, 9, 0},
		{"negative", path, `{"deadline":-1}`, nil, 400, 9, 0},
		{"an object", path, `{"deadline":{}}`, nil, 400, 9, 0},
		{"nothing", path, ``, nil, 400, 9, 0},
		{"no deadline", path, `{}`, nil, 400, 9, 0},
		{"a misspelt field", path, `{"dedline":"5s"}`, nil, 400, 9, 0},
		{"not JSON", path, `deadline=5s`, nil, 400, 9, 0},
		{"too large", path, `{"deadline":"` + strings.Repeat("5", 5000) + `s"}`, nil, 400, 9, 0},
		{"no such container", "/api/v1/containers/nobody", `{"deadline":"5s"}`, nil, 404, 9, 0},
		{"from another machine", path, `{"deadline":"5s"}`, remote, 403, 9, 0},
		{"from a web page", path, `{"deadline":"5s"}`, page, 403, 9, 0},
		{"through a proxy", path, `{"deadline":"5s"}`, proxy, 403, 9, 0},
		{"through another proxy", path, `{"deadline":"5s"}`, forwarded, 403, 9, 0},
		{"by another's name", path, `{"deadline":"5s"}`, rebound, 421, 9, 0},
		{"shorter than allowed", path, `{"deadline":"99ms"}`, nil, 422, 9, 0},
		{"as short as allowed", path, `{"deadline":"100ms"}`, nil, 200, 0.1, 0},
		{"back to the label again", path, `{"deadline":null}`, nil, 200, 9, 0},
		{"a share", path, `{"share":"12.5%"}`, nil, 200, 9, 0.125},
		{"the deadline alone", path, `{"deadline":"2s"}`, nil, 200, 2, 0.125},
		{"both", path, `{"share":"30%","deadline":null}`, nil, 200, 9, 0.3},
		{"as large as allowed", path, `{"share":"40%"}`, nil, 200, 9, 0.4},
		{"larger than allowed", path, `{"share":"41%"}`, nil, 422, 9, 0.4},
		{"one of two too large", path, `{"deadline":"1s","share":"41%"}`, nil, 422, 9, 0.4},
		{"a share without its sign", path, `{"share":0.3}`, nil, 400, 9, 0.4},
		{"a share of nothing", path, `{"share":"0%"}`, nil, 400, 9, 0.4},
		{"a share from another machine", path, `{"share":"20%"}`, remote, 403, 9, 0.4},
		{"without a share", path, `{"share":null}`, nil, 200, 9, 0},
		{"the old route", path + "/deadline", `{"deadline":"5s"}`, nil, 404, 9, 0},
	}
	a := serve(t, func(o *exporter.Options) { o.Limits = task.Limits{MinDeadline: 100 * time.Millisecond, MaxShare: 0.4} })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var change []func(*http.Request)
			if tt.change != nil {
				change = append(change, tt.change)
			}
			w := a.call("PATCH", tt.path, tt.body, change...)
			if w.Code != tt.code {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tt.code)
			}
			var answer struct{ Error, Hint string }
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || (tt.code != 200) != (answer.Error != "" && answer.Hint != "") {
				t.Errorf("answer %s, %v", w.Body, err)
			}
			is := func(s task.Spec) bool { return s.Deadline == tt.deadline && s.Share == tt.share }
			var changed task.Container
			if tt.code == 200 && (json.Unmarshal(w.Body.Bytes(), &changed) != nil || !is(changed.Spec)) {
				t.Errorf("answer %s, want the container as it is now", w.Body)
			}
			a.await("the change", func(s *task.Snapshot) bool { return is(s.Containers[0].Spec) })
		})
	}
}

// Nobody takes the change any more, as during a shutdown: the answer does not say that it holds.
func TestChangeThatWasNotMade(t *testing.T) {
	a := serve(t, nil)
	a.stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := a.call("PATCH", "/api/v1/containers/web", `{"deadline":"5s"}`, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if w.Code != 503 || !strings.Contains(w.Body.String(), "nothing was changed") || strings.Contains(w.Body.String(), "holds") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	five := 5 * time.Second
	err := a.Change(ctx, "web", task.Change{Deadline: &five})
	if !errors.Is(err, tracker.ErrNotChanged) || !errors.Is(err, context.Canceled) {
		t.Errorf("Change = %v", err)
	}
	if is := a.Snapshot().Containers[0].Spec.Deadline; is != 9 {
		t.Errorf("deadline %v", is)
	}
}

// A setting is changed by who has a token, where there is one: not by whoever is
// on this machine.
func TestChangeNeedsTheToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := serve(t, func(o *exporter.Options) { o.Access.Tokens = access.TokensIn(path) })
	for header, want := range map[string]int{"": 401, "Bearer 0123456789abcdeF": 401, "Bearer 0123456789abcdef": 200} {
		w := a.call("PATCH", "/api/v1/containers/web", `{"deadline":"5s"}`, func(r *http.Request) { r.Header.Set("Authorization", header) })
		if w.Code != want {
			t.Errorf("%q: %d %s", header, w.Code, w.Body)
		}
	}
	if w := a.call("GET", "/api/v1/tasks", ""); w.Code != 200 {
		t.Errorf("reading needs no token: %d", w.Code)
	}
}

// A command line may hold a password: nothing of it is in what anybody may read.
func TestCommandLinesAreNotTold(t *testing.T) {
	a := serve(t, nil)
	for name, command := range map[string]string{"one": "train --password=hunter2", "same": "train --password=hunter2", "other": "train --password=swordfish"} {
		a.engine.Put(container.Container{Name: name, Image: "img", Command: command, Labels: deadline9s})
	}
	s := a.await("the containers", func(s *task.Snapshot) bool { return len(s.Containers) == 4 })
	for _, path := range []string{"/api/v1/tasks", "/metrics", "/"} {
		if body := a.call("GET", path, "").Body.String(); strings.Contains(body, "train") || strings.Contains(body, "hunter2") {
			t.Errorf("%s tells a command line", path)
		}
	}
	id := func(name string) string { c, _ := s.FindContainer(name); return c.CommandID }
	if id("one") == "" || id("one") != id("same") || id("one") == id("other") || id("web") != "" {
		t.Errorf("equal command lines cannot be told from others: %q %q %q %q", id("one"), id("same"), id("other"), id("web"))
	}
}

func TestChangeFromAfarWhereClientsAreAuthenticated(t *testing.T) {
	a := serve(t, func(o *exporter.Options) {
		path := filepath.Join(t.TempDir(), "web.yml")
		if err := os.WriteFile(path, []byte("basic_auth_users: {alice: hash}"), 0o600); err != nil {
			t.Fatal(err)
		}
		web, err := access.OpenWebConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Access.Web = web
	})
	w := a.call("PATCH", "/api/v1/containers/web", `{"deadline":"5s"}`, func(r *http.Request) { r.RemoteAddr = "192.0.2.1:4711" })
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A stream goes on beyond the server's limit on answers.
func TestWatchStreams(t *testing.T) {
	a := serve(t, nil)
	server := httptest.NewUnstartedServer(a.server)
	server.Config.WriteTimeout = 50 * time.Millisecond // a heartbeat is a second
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/tasks?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (s task.Snapshot) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := next(); len(s.Containers) != 1 {
		t.Errorf("first: %+v", s)
	}
	next()
	a.engine.Put(container.Container{Name: "second"})
	for s := next(); len(s.Containers) != 2; s = next() {
	}
	cancel()
}

func TestScrapeWaitsForNobody(t *testing.T) {
	a := serve(t, func(o *exporter.Options) { o.DeviceTimeout = 50 * time.Millisecond })
	release := a.gpu.HangReads()
	defer release()
	a.await("the hang", func(s *task.Snapshot) bool { return !s.Health.DeviceUp })
	text := a.call("GET", "/metrics", "").Body.String()
	for _, want := range []string{"laxity_exporter_device_up 0", `gpu_container_deadline_seconds{container="web"} 9`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in a scrape while the driver hangs", want)
		}
	}
	if strings.Contains(text, "gpu_memory_used_bytes{") {
		t.Error("memory of a GPU that does not answer")
	}
	if e := a.Snapshot().Health.DeviceError; !strings.Contains(e, "does not answer since") {
		t.Errorf("device error %q", e)
	}
	release()
	a.await("the recovery", func(s *task.Snapshot) bool { return s.Health.DeviceUp })
}

func TestDockerDown(t *testing.T) {
	gpu, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := startWith(t, exporter.Options{Engine: engine.Choice{DockerHost: "unix:///nonexistent/docker.sock"},
		Parts: exporter.Parts{Device: gpu.Device()}})
	s := e.await("the engine's failure", func(s *task.Snapshot) bool { return s.Health.DeviceUp && s.Health.EngineError != "" })
	if s.Health.EngineUp {
		t.Errorf("health: %+v", s.Health)
	}
	<-e.Ready() // it stays up and says so
}

func TestWhatCannotBeOpened(t *testing.T) {
	gpu, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	parts := exporter.Parts{Device: gpu.Device()}
	for name, tt := range map[string]struct {
		opt  exporter.Options
		want string
	}{
		"no such device": {exporter.Options{Device: "tpu"}, "write auto, nvml, or sim:"},
		"no socket":      {exporter.Options{Device: "sim:"}, "sim:/path"},
		"nobody there":   {exporter.Options{Device: "sim:/nonexistent/gpu.sock"}, "/nonexistent/gpu.sock"},
		"no such sensor": {exporter.Options{Sensor: "sixth", Parts: parts}, "write auto"},
		"bad state dir":  {exporter.Options{StateDir: "/proc/nowhere", Parts: parts}, "--state-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := exporter.New(tt.opt)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}
