package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/kubetest"
	"github.com/laxity/laxity/internal/needtest"
)

// kubeScheduler is where make test-kubernetes builds it.
const kubeScheduler = "../../.tools/kube-scheduler"

const gib = 1 << 30

// fleet is what Prometheus knows of the nodes that have Laxity, one GPU each.
type fleet struct {
	mu    sync.Mutex
	nodes map[string]laxityNode
	// claimed is closed when a query asks about the container of a pod, by its id.
	claimed chan struct{}
}

type laxityNode struct {
	free uint64 // GiB, of 80
	work float64
	pod  string // whose container, with the id c1, holds 10 GiB
}

// Query implements prometheus.Querier.
func (f *fleet) Query(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var v model.Vector
	add := func(value float64, labels model.Metric) {
		v = append(v, &model.Sample{Metric: labels, Value: model.SampleValue(value)})
	}
	if strings.HasPrefix(expr, "count(") {
		add(float64(len(f.nodes)), nil)
		return v, nil
	}
	if strings.Contains(expr, `id=~"c1"`) && f.claimed != nil {
		close(f.claimed)
		f.claimed = nil
	}
	for name, n := range f.nodes {
		node, gpu := model.LabelValue(name), model.LabelValue("GPU-"+name)
		of := func(name model.LabelValue, value float64) {
			add(value, model.Metric{model.MetricNameLabel: name, "node": node, "gpu": gpu})
		}
		add(1, model.Metric{model.MetricNameLabel: "node:fresh:bool", "node": node})
		of("gpu_open", 1)
		of("gpu_provisionable", 1)
		of("gpu_memory_total_bytes", 80*gib)
		of("gpu_memory_free_bytes", float64(n.free)*gib)
		if n.work > 0 {
			add(n.work+1, model.Metric{model.MetricNameLabel: "gpu_task_float_seconds", "node": node, "gpu": gpu, "container": "c"})
			add(n.work, model.Metric{model.MetricNameLabel: "gpu_task_work_seconds", "node": node, "gpu": gpu, "container": "c"})
		}
		if n.pod != "" {
			pod := model.Metric{"node": node, "gpu": gpu, "namespace": kubetest.Namespace, "pod": model.LabelValue(n.pod), "id": "c1", "fact": "memory"}
			add(10*gib, pod)
		}
	}
	return v, nil
}

func (f *fleet) set(name string, n laxityNode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[name] = n
}

// world is a cluster with kube-scheduler, which asks our extender.
type world struct {
	*kubetest.Server
	t      *testing.T
	ctx    context.Context //nolint:containedctx // of the test
	fleet  *fleet
	places *service.Service
}

// newWorld starts them. Around is what the extender is behind; change edits the scheduler's configuration,
// which is else that of the chart.
func newWorld(t *testing.T, around func(http.Handler) http.Handler, change func(config map[string]any)) *world {
	t.Helper()
	if _, err := os.Stat(kubeScheduler); err != nil {
		needtest.Kubernetes.Skip(t, "kube-scheduler is not here, and takes minutes to build: make test-kubernetes")
	}
	w := &world{Server: &kubetest.Server{}, t: t, fleet: &fleet{nodes: map[string]laxityNode{}}}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(t.Context())
	if end, ok := t.Deadline(); ok {
		w.ctx, cancel = context.WithDeadline(t.Context(), end.Add(-5*time.Second)) // so that the log is shown
	}
	t.Cleanup(cancel)

	var err error
	if w.places, err = service.New(service.Options{StateDir: t.TempDir(), Querier: w.fleet}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.places.Run(w.ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	o := actuator.Options{Logger: slog.New(slog.DiscardHandler)}
	if _, err := (&clusterFlags{kubernetes: true}).open(&o, w.places); err != nil {
		t.Fatal(err)
	}
	mux, token := chi.NewRouter(), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mount := range o.Mount {
		mount(mux, access.New(access.Options{Tokens: access.TokensIn(token)}))
	}
	extender := httptest.NewServer(around(mux))
	t.Cleanup(extender.Close)
	api := httptest.NewServer(w.Server)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	w.schedule(schedulerConfiguration(t, api.URL, extender.URL, change))
	return w
}

// secret is the token, which comes as the password in urlPrefix.
const secret = "0123456789abcdef"

func asItIs(h http.Handler) http.Handler { return h }

// patient lets the scheduler wait for the extender on a machine that has much else to do.
func patient(config map[string]any) {
	config["extenders"].([]any)[0].(map[string]any)["httpTimeout"] = "5m"
}

// schedulerConfiguration writes the chart's configuration to a file, with the addresses of the test's servers.
func schedulerConfiguration(t *testing.T, api, extender string, change func(map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: t, clusters: [{name: t, cluster: {server: %q}}], contexts: [{name: t, context: {cluster: t, user: t}}], users: [{name: t}]}`, api), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("../../deploy/kubernetes/placement.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var text string
	for decode := yaml.NewDecoder(file); text == ""; {
		var manifest struct {
			Kind string
			Data map[string]string
		}
		if err := decode.Decode(&manifest); err != nil {
			t.Fatal(err)
		}
		text = manifest.Data["config.yaml"]
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	ours := config["extenders"].([]any)[0].(map[string]any)
	prefix := ours["urlPrefix"].(string)
	const there = "http://laxity:TOKEN@laxity-placement.laxity.svc:9871"
	if !strings.HasPrefix(prefix, there) {
		t.Fatal(prefix)
	}
	ours["urlPrefix"] = strings.Replace(extender, "://", "://laxity:"+secret+"@", 1) + strings.TrimPrefix(prefix, there)
	if change != nil {
		change(config)
	}
	// The API server of the test speaks no protobuf and keeps no leases.
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "contentType": "application/json", "acceptContentTypes": "application/json"}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// schedule runs kube-scheduler until the test ends.
func (w *world) schedule(config string) {
	log, err := os.Create(filepath.Join(w.t.TempDir(), "kube-scheduler.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(kubeScheduler, "--config="+config, "--secure-port=0", "-v=4")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); w.t.Failed() && err == nil {
			w.t.Logf("kube-scheduler: …%s", text[max(0, len(text)-8000):])
		}
	})
}

// node adds a node to the cluster; the zero laxityNode is one without Laxity.
func (w *world) node(name string, n laxityNode, labels ...string) {
	if n != (laxityNode{}) {
		w.fleet.set(name, n)
	}
	all := map[string]string{"kubernetes.io/hostname": name}
	for _, l := range labels {
		all[l] = "yes"
	}
	w.AddNode(kubetest.Node{Name: name, GPUs: 4, Labels: all})
}

func (w *world) bound(pod, want string) {
	w.t.Helper()
	if got, err := w.Bound(w.ctx, pod); err != nil || got != want {
		w.t.Fatalf("%s is bound to %q, want %q (%v)", pod, got, want, err)
	}
}

// best is what the placer would choose of all nodes.
func (w *world) best(req placement.Request) string {
	w.t.Helper()
	r, err := w.places.Explain(w.ctx, placer.Request{Request: req})
	if err != nil {
		w.t.Fatal(err)
	}
	v, _ := r.Best()
	return v.Node.Name
}

func annotations(of ...string) map[string]string {
	out := map[string]string{}
	for _, a := range of {
		name, value, _ := strings.Cut(a, "=")
		out["laxity.dev/"+name] = value
	}
	return out
}
