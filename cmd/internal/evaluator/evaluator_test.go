package evaluator_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/actuator/placement"
	querier "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/rules"
)

// node is the metrics of one node with one GPU, and a clock.
type node struct {
	*prometheus.Registry
	tasks    *prometheus.GaugeVec
	used, up prometheus.Gauge
	mu       sync.Mutex
	now      time.Time
	notified chan webhook.Alert
	refuse   bool
}

func newNode() *node {
	gauge := func(name string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: prometheus.Labels{"gpu": "0"}})
	}
	n := &node{
		Registry: prometheus.NewPedanticRegistry(),
		tasks:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gpu_tasks"}, []string{"container", "gpu", "state"}),
		used:     gauge("gpu_memory_used_bytes"),
		up:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "laxity_exporter_device_up"}),
		now:      time.Unix(1_800_000_000, 0),
		notified: make(chan webhook.Alert, 100),
	}
	total, open := gauge("gpu_memory_total_bytes"), gauge("gpu_open")
	total.Set(100)
	open.Set(1)
	n.up.Set(1)
	derived := func(name string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, ConstLabels: prometheus.Labels{"gpu": "0"}}, value)
	}
	n.MustRegister(n.tasks, n.used, total, open, n.up, gauge("gpu_utilization_ratio"), gauge("gpu_demand_seconds"),
		pressure{prometheus.NewDesc("gpu_memory_pressure_ratio", "", nil, prometheus.Labels{"gpu": "0"}), n.used},
		derived("gpu_memory_free_bytes", func() float64 { return 100 - sumOf(n.used) }),
		derived("gpu_memory_provisionable_bytes", func() float64 { return 100 - sumOf(n.used) }),
		derived("gpu_unfinished_tasks", func() float64 { return sumOf(n.tasks) }),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "laxity_exporter_snapshot_age_seconds"}))
	return n
}

// pressure is absent below 0.9, as the exporter's metric is.
type pressure struct {
	desc *prometheus.Desc
	used prometheus.Gauge
}

func (p pressure) Describe(descs chan<- *prometheus.Desc) { descs <- p.desc }

func (p pressure) Collect(metrics chan<- prometheus.Metric) {
	if used := sumOf(p.used) / 100; used >= 0.9 {
		metrics <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, used)
	}
}

// sumOf adds up the series of a gauge.
func sumOf(c prometheus.Collector) (sum float64) {
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	close(ch)
	for m := range ch {
		var v dto.Metric
		if err := m.Write(&v); err != nil {
			panic(err)
		}
		sum += v.Gauge.GetValue()
	}
	return sum
}

func (n *node) Now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *node) advance(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = n.now.Add(d)
}

func (n *node) set(container, state string, v float64) {
	n.tasks.WithLabelValues(container, "0", state).Set(v)
}

func (n *node) notify(_ context.Context, m webhook.Message) error {
	n.mu.Lock()
	refuse := n.refuse
	n.mu.Unlock()
	if refuse {
		return webhook.ErrFull
	}
	if err := m.Validate(); err != nil {
		return err
	}
	n.notified <- m.Alerts[0]
	return nil
}

func (n *node) options() evaluator.Options {
	return evaluator.Options{
		Targets: []evaluator.Target{{Gatherer: n, Job: "laxity-exporter", Instance: "local", Node: "a"}},
		Rules:   rules.FS,
		Notify:  n.notify,
		Now:     n.Now,
		// The tests evaluate when they want to.
		Interval: time.Hour,
	}
}

func start(t *testing.T, n *node, change func(*evaluator.Options)) *evaluator.Evaluator {
	t.Helper()
	opts := n.options()
	if change != nil {
		change(&opts)
	}
	gathered := make(chan struct{})
	var once sync.Once
	inner := opts.Targets[0].Gatherer
	opts.Targets[0].Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		defer once.Do(func() { close(gathered) })
		return inner.Gather()
	})
	e, err := evaluator.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	<-gathered // Run evaluates once at its start; the rest is the test's
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return e
}

func evaluate(t *testing.T, e *evaluator.Evaluator) {
	t.Helper()
	if err := e.Evaluate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (n *node) next(t *testing.T) webhook.Alert {
	t.Helper()
	select {
	case a := <-n.notified:
		return a
	case <-time.After(30 * time.Second):
		t.Fatal("no notification")
		return webhook.Alert{}
	}
}

func (n *node) none(t *testing.T) {
	t.Helper()
	select {
	case a := <-n.notified:
		t.Fatalf("an alert nobody asked for: %+v", a)
	default:
	}
}

func value(t *testing.T, e *evaluator.Evaluator, expr string) float64 {
	t.Helper()
	v, err := e.Query(t.Context(), expr, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	switch len(v) {
	case 0:
		return math.NaN()
	case 1:
		return float64(v[0].Value)
	default:
		t.Fatalf("%s: %d results: %v", expr, len(v), v)
		return 0
	}
}

func TestContentionFiresIsRenewedAndResolves(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	n.set("first", "running", 1)
	evaluate(t, e)
	n.none(t)

	n.advance(time.Second)
	n.set("second", "running", 1)
	evaluate(t, e)
	fired := n.next(t)
	if fired.Status != webhook.Firing || fired.Name() != "GPUContention" || fired.Action() != "arbitrate" ||
		fired.Labels["node"] != "a" || fired.Labels["gpu"] != "0" || !fired.StartsAt.Equal(n.Now()) || fired.Fingerprint == "" {
		t.Fatalf("fired: %+v", fired)
	}

	// Paused tasks count; and what was just said is not said again.
	n.advance(time.Second)
	n.set("second", "running", 0)
	n.set("second", "paused", 1)
	evaluate(t, e)
	n.none(t)

	n.advance(evaluator.DefaultResend)
	evaluate(t, e)
	if a := n.next(t); a.Status != webhook.Firing || a.Fingerprint != fired.Fingerprint {
		t.Fatalf("not renewed: %+v", a)
	}

	n.advance(time.Second)
	n.set("first", "running", 0)
	evaluate(t, e)
	if a := n.next(t); a.Status != webhook.Resolved || a.Fingerprint != fired.Fingerprint || !a.EndsAt.Equal(n.Now()) {
		t.Fatalf("not resolved: %+v", a)
	}
	n.advance(time.Minute)
	evaluate(t, e)
	n.none(t)
}

// The hysteresis needs the ALERTS series, which a rule writes only when told
// that there is no state to restore.
func TestMemoryPressureRemembers(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	for _, step := range []struct {
		used   float64
		status string
	}{{94, ""}, {95, webhook.Firing}, {91, ""}, {89, webhook.Resolved}, {91, ""}} {
		n.advance(time.Second)
		n.used.Set(step.used)
		evaluate(t, e)
		if step.status == "" {
			n.none(t)
			continue
		}
		if a := n.next(t); a.Status != step.status || a.Name() != "GPUMemoryPressure" {
			t.Fatalf("at %v %%: %+v", step.used, a)
		}
	}
}

func TestRankingQuery(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	n.used.Set(30)
	n.advance(time.Second)
	evaluate(t, e)
	v, err := e.Query(t.Context(), `sort_desc(node:rank:score > 0 and node:float:seconds > 9)`, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(v) != 1 || v[0].Value != 70 || v[0].Metric["node"] != "a" {
		t.Errorf("ranking = %v", v)
	}
	if up := value(t, e, `up{job="laxity-exporter",instance="local",node="a"}`); up != 1 {
		t.Errorf("up = %v", up)
	}
	if s := value(t, e, "1+1"); s != 2 {
		t.Errorf("scalar = %v", s)
	}
}

func TestMetricsThatFailEndEverySeries(t *testing.T) {
	n := newNode()
	failing := false
	e := start(t, n, func(o *evaluator.Options) {
		o.Targets[0].Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			if failing {
				return nil, errors.New("no")
			}
			return n.Gather()
		})
	})
	n.set("c", "running", 2)
	n.advance(time.Second)
	evaluate(t, e)
	if n.next(t).Status != webhook.Firing {
		t.Fatal("not firing")
	}
	n.advance(time.Second)
	failing = true
	evaluate(t, e)
	if n.next(t).Status != webhook.Resolved {
		t.Fatal("not resolved")
	}
	if up := value(t, e, "up"); up != 0 {
		t.Errorf("up = %v", up)
	}
	if v := value(t, e, `count({__name__=~"gpu_.+"})`); !math.IsNaN(v) {
		t.Errorf("%v series are left", v)
	}
	if v := value(t, e, "node:rank:score"); v != 0 {
		t.Errorf("a node that is gone is a candidate: %v", v)
	}
}

func TestSeriesThatVanishEnd(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	n.set("c", "running", 1)
	n.advance(time.Second)
	evaluate(t, e)
	n.tasks.Reset()
	n.advance(time.Second)
	evaluate(t, e)
	if v := value(t, e, "gpu_tasks"); !math.IsNaN(v) {
		t.Errorf("gpu_tasks = %v after its container is gone", v)
	}
}

func TestEveryMetricType(t *testing.T) {
	n := newNode()
	nativeH := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "native_seconds", NativeHistogramBucketFactor: 1.1})
	empty := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "empty_seconds", NativeHistogramBucketFactor: 1.1})
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "classic_seconds", Buckets: []float64{0.5, 1}})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "summary_seconds", Objectives: map[float64]float64{0.5: 0}})
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", ConstLabels: prometheus.Labels{"node": "own"}})
	n.MustRegister(nativeH, empty, classic, summary, counter)
	for range 3 {
		nativeH.Observe(2)
		classic.Observe(0.7)
		summary.Observe(4)
		counter.Inc()
	}
	e := start(t, n, nil)
	n.advance(time.Second)
	evaluate(t, e)
	for expr, want := range map[string]float64{
		"histogram_count(native_seconds)":     3,
		"histogram_sum(native_seconds)":       6,
		"histogram_count(empty_seconds)":      0,
		`classic_seconds_bucket{le="0.5"}`:    0,
		`classic_seconds_bucket{le="1"}`:      3,
		`classic_seconds_bucket{le="+Inf"}`:   3,
		"classic_seconds_count":               3,
		`summary_seconds{quantile="0.5"}`:     4,
		"summary_seconds_sum":                 12,
		`things_total{exported_node="own"}`:   3,
		`count(things_total{node="a"})`:       1,
		`count(native_seconds{node="a"}) + 0`: 1,
	} {
		if got := value(t, e, expr); got != want {
			t.Errorf("%s = %v, want %v", expr, got, want)
		}
	}
	for expr, hint := range map[string]string{"native_seconds": "histogram_quantile", "up[1m]": "instant vector", "nonsense(": "nonsense"} {
		if _, err := e.Query(t.Context(), expr, time.Time{}); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: error %v does not say %q", expr, err, hint)
		}
	}
}

func TestDeliveryIsRepeatedUntilAccepted(t *testing.T) {
	n := newNode()
	n.refuse = true
	e := start(t, n, nil)
	n.set("c", "running", 2)
	n.advance(time.Second)
	evaluate(t, e)
	n.none(t)
	n.mu.Lock()
	n.refuse = false
	n.mu.Unlock()
	if a := n.next(t); a.Status != webhook.Firing {
		t.Errorf("%+v", a)
	}
}

func TestTimestampsIncreaseThoughTheClockDoesNot(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	var evaluations sync.WaitGroup
	for range 4 {
		evaluations.Go(func() {
			for range 5 {
				if err := e.Evaluate(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	evaluations.Wait()
	if got := value(t, e, "count_over_time(up[1m])"); got < 20 {
		t.Errorf("%v samples, want 20 or more", got)
	}
}

func TestBadRules(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		says    []string
	}{
		"not yaml":       {"groups:\n\t- x", []string{"bad.yml", "line 2"}},
		"unknown field":  {"groups:\n  - name: g\n    rool: []\n", []string{"bad.yml", "line 3", "rool"}},
		"bad expression": {"groups:\n  - name: g\n    rules:\n      - record: a:b\n        expr: sum(\n", []string{"bad.yml:5:", "a:b"}},
		"bad template":   {"groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: up\n        annotations: {summary: '{{ nope }}'}\n", []string{"bad.yml", "nope"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.yml")
			if err := os.WriteFile(bad, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			opts := newNode().options()
			opts.RuleFiles = []string{bad}
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			_, err := evaluator.New(opts)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if left, _ := os.ReadDir(temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	opts := newNode().options()
	opts.RuleFiles = []string{"/does/not/exist.yml"}
	if _, err := evaluator.New(opts); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestClosedEngine(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	e, err := evaluator.New(newNode().options())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = e.Query(t.Context(), "up", time.Time{})
	for _, err := range []error{e.Evaluate(t.Context()), err} {
		if !errors.Is(err, evaluator.ErrClosed) {
			t.Errorf("error = %v", err)
		}
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := evaluator.New(evaluator.Options{}); err == nil {
		t.Error("no target is accepted")
	}
}

// A query sees what whole evaluations have written, never less: before the first one it waits.
func TestQueryWaitsForTheFirstEvaluation(t *testing.T) {
	n := newNode()
	opts := n.options()
	var e *evaluator.Evaluator
	var asked []float64 // what is the latest evaluation, from within one
	opts.Targets[0].Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ctx := t.Context()
		if len(asked) == 0 { // it would wait for this evaluation
			ended, stop := context.WithCancel(ctx)
			stop()
			ctx = ended
		}
		v, err := e.Query(ctx, "time()", time.Time{})
		if first := len(asked) == 0; first != errors.Is(err, context.Canceled) {
			t.Errorf("error within an evaluation: %v; is the first: %v", err, first)
		}
		at := math.NaN()
		if len(v) > 0 {
			at = float64(v[0].Value)
		}
		asked = append(asked, at)
		return n.Gather()
	})
	var err error
	if e, err = evaluator.New(opts); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	answered := make(chan float64)
	go func() {
		v, err := e.Query(t.Context(), "count(node:seen:timestamp_seconds)", time.Time{})
		if err != nil || len(v) != 1 {
			t.Errorf("before the first evaluation: %v, %v", v, err)
			close(answered)
			return
		}
		answered <- float64(v[0].Value)
	}()
	evaluate(t, e)
	if nodes := <-answered; nodes != 1 {
		t.Errorf("%v nodes, want 1", nodes)
	}
	first := float64(n.Now().UnixMilli()) / 1000
	n.advance(time.Second)
	evaluate(t, e)
	if len(asked) != 2 || asked[1] != first {
		t.Errorf("the latest evaluation was %v from within two, want the first, %v, from within the second", asked, first)
	}
}

// In a folder of its own an evaluator begins anew, whatever a killed one left there, and leaves nothing.
func TestItsFolder(t *testing.T) {
	n := newNode()
	opts := n.options()
	opts.Dir = filepath.Join(t.TempDir(), "samples")
	left := filepath.Join(opts.Dir, "left")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := evaluator.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
	n.advance(time.Second)
	evaluate(t, e)
	if got := value(t, e, "count_over_time(up[1m])"); got != 1 {
		t.Errorf("%v samples", got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(opts.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
}

// The evaluator is a querier of the placement: the whole way from a gauge to a
// ranked node.
func TestPlacementReadsTheEngine(t *testing.T) {
	n := newNode()
	e := start(t, n, nil)
	n.used.Set(40)
	n.advance(time.Second)
	evaluate(t, e)
	nodes, err := querier.NewSource(e).Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	best, ok := placement.Paper.Rank(nodes, placement.Request{Deadline: 9, GPUMemory: 60}, n.Now()).Best()
	if !ok || best.Node.Name != "a" || best.GPU != "0" || best.Node.MemoryFree != 60 {
		t.Errorf("best = %+v, %v", best, ok)
	}
	n.up.Set(0)
	n.advance(time.Second)
	evaluate(t, e)
	if nodes, err = querier.NewSource(e).Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := placement.Paper.Rank(nodes, placement.Request{}, n.Now()).Summary(); s != "0/1 nodes: 1 stale (its GPU driver does not answer)" {
		t.Error(s)
	}
}

// One evaluation on a node with 8 containers that have run tasks on one GPU.
func BenchmarkEvaluate(b *testing.B) {
	n := newNode()
	perTask := []string{
		"gpu_task_start_timestamp_seconds", "gpu_task_deadline_timestamp_seconds", "gpu_task_float_seconds",
		"gpu_task_last_start_timestamp_seconds", "gpu_task_last_end_timestamp_seconds",
		"gpu_task_last_float_seconds", "gpu_task_last_deadline_hit",
	}
	for _, name := range perTask {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, []string{"container", "gpu"})
		n.MustRegister(g)
		for c := range 8 {
			g.WithLabelValues(fmt.Sprint("c", c), "0").Set(float64(n.now.Unix()))
		}
	}
	for c := range 8 {
		for _, state := range []string{"running", "held", "paused", "swapped"} {
			n.set(fmt.Sprint("c", c), state, 1)
		}
	}
	opts := n.options()
	opts.Now = nil
	e, err := evaluator.New(opts)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Evaluate(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
