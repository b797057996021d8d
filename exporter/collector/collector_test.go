package collector_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/clocktest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var t0 = time.Unix(1_800_000_000, 0).UTC()

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

const (
	gpuA = "GPU-a"
	gpuB = "GPU-b"
)

func id(name string) string { return strings.Repeat("0", 64-len(name)) + name }

// node is one that answers, with two GPUs.
func node() *task.Snapshot {
	return &task.Snapshot{
		Time: at(-0.5), Node: "n",
		GPUs: []task.GPU{
			{UUID: gpuA, Index: 0, Name: "H200", Driver: "580", MemoryTotal: 1000, MemoryUsed: 250, Utilization: 0.5},
			{UUID: gpuB, Index: 1, Name: "H200", Driver: "580", MemoryTotal: 1000, Utilization: task.Ratio(math.NaN())},
		},
		Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceDevice},
	}
}

func withDeadline(name string, deadline task.Seconds) task.Container {
	c := task.Container{ID: id(name), Name: name, Image: "img:1", VisibleGPUs: []string{gpuA},
		Spec: task.Spec{Managed: true, Deadline: deadline, Class: task.ClassBatch}}
	if deadline > 0 {
		c.Spec.Class = task.ClassDeadline
	}
	return c
}

func begun(name string, start, deadline float64) task.Task {
	t := task.Task{ID: fmt.Sprint(name, start), Container: name, ContainerID: id(name), GPUs: []string{gpuA},
		State: task.Running, Start: task.Mark{Time: at(start)}}
	if deadline != 0 {
		t.Deadline = at(deadline)
	}
	return t
}

func over(name string, start, deadline, end float64) task.Task {
	t := begun(name, start, deadline)
	t.State, t.End = task.Ended, &task.Mark{Time: at(end)}
	return t
}

// scene is a collector with its registry, its snapshot, and its clock. The registry is
// pedantic: it looks at names, help and labels as described, and for doubles.
type scene struct {
	*collector.Collector
	*prometheus.Registry
	s   *task.Snapshot
	now time.Time
}

func newScene(s *task.Snapshot, opt collector.Options) *scene {
	c := &scene{s: s, now: t0}
	opt.Snapshot = func() *task.Snapshot { return c.s }
	opt.Now = func() time.Time { return c.now }
	c.Collector, c.Registry = collector.New(opt), prometheus.NewPedanticRegistry()
	c.MustRegister(c.Collector)
	return c
}

// format renders one scrape, or some of its metrics.
func format(t *testing.T, g prometheus.Gatherer, metrics ...string) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		if len(metrics) > 0 && !slices.Contains(metrics, f.GetName()) {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func golden(t *testing.T, g prometheus.Gatherer, name string, metrics ...string) {
	t.Helper()
	path := filepath.Join("testdata", name+".metrics")
	if *update {
		if err := os.WriteFile(path, []byte(format(t, g, metrics...)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := testutil.GatherAndCompare(g, f, metrics...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(g)
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
}

func TestGolden(t *testing.T) {
	tests := map[string]func() *scene{
		"idle": func() *scene {
			s := node()
			s.Containers = []task.Container{withDeadline("web", 9), {ID: id("db"), Name: "db"}}
			return newScene(s, collector.Options{})
		},
		"working": func() *scene {
			s := node()
			web := withDeadline("web", 9)
			web.MemoryUsed = map[string]uint64{gpuA: 250}
			web.SMUtilization = map[string]float64{gpuA: 0.25}
			web.Invalid = []task.InvalidLabel{{Label: task.LabelPause, Value: "maybe"}}
			s.Containers = []task.Container{web, withDeadline("batch", 0)}
			paused := begun("web", -2, 7)
			paused.State, paused.StateSince = task.Paused, at(-1.5)
			s.Tasks = []task.Task{begun("web", -3, 6), paused, begun("batch", -1, 0)}
			s.Ended = []task.Task{over("web", -20, -11, -12.5), over("web", -40, -31, -30), over("batch", -9, 0, -8)}
			c := newScene(s, collector.Options{})
			for _, t := range s.Tasks {
				c.Began(t, gpuA)
			}
			for _, t := range s.Ended {
				c.Began(t, gpuA)
				c.Ended(t)
			}
			return c
		},
		"trouble": func() *scene {
			s := node()
			s.Health = task.Health{DeviceError: "hangs", EngineError: "gone", Sensor: task.SourceUprobe, EventsLost: 7,
				Unattributed: map[string]int{"host_process": 2}}
			web := withDeadline("web", 9)
			web.MemoryUsed = map[string]uint64{gpuA: 250}
			s.Containers = []task.Container{web}
			s.Tasks = []task.Task{begun("web", -30, -21)}
			lost := over("web", -50, -41, -40)
			lost.State = task.Lost
			s.Ended = []task.Task{lost}
			c := newScene(s, collector.Options{})
			c.Ended(lost)
			return c
		},
		"never_read": func() *scene {
			return newScene(&task.Snapshot{Health: task.Health{Sensor: task.SourceDevice}}, collector.Options{})
		},
		"lost_gpu": func() *scene {
			s := node()
			s.Health.DeviceError = gpuB + ": GPU is lost"
			s.GPUs[1].MemoryTotal, s.GPUs[1].Error = 0, "GPU is lost"
			return newScene(s, collector.Options{})
		},
		"cards": func() *scene {
			s := node()
			s.GPUs[1].Parent, s.GPUs[1].Name = "GPU-c", "H200 MIG 1g.18gb"
			s.Containers = []task.Container{withDeadline("web", 9)}
			watts, limit, joules, other, web, gone := 300.5, 700.0, 123456.789, 0.5, 2000.25, 10.0
			s.Cards = []task.Card{
				{
					UUID: gpuA, Power: &watts, PowerLimit: &limit, Energy: &joules,
					Temperature: map[string]float64{"gpu": 61, "memory": 70}, Clock: map[string]float64{"sm": 1980e6, "memory": 3201e6},
					Throttled: map[string]bool{"power_cap": true, "thermal": false}, Xids: map[uint64]uint64{79: 1, 13: 2},
					LastXids: map[uint64]time.Time{79: time.Unix(1e9, 5e8), 13: time.Unix(1e9+1, 0)},
					ECC:      map[string]uint64{"corrected": 3, "uncorrected": 0},
					PCIe:     map[string]float64{"transmit": 1e9, "receive": 2e9}, NVLink: map[string]uint64{"transmit": 1 << 30, "receive": 1 << 31}, Switches: &task.Switches{Rate: 471.5},
					Unattributed: map[string]float64{"idle": 750, "other": 25, "unknown": 0}, OtherSeconds: &other,
					Uses: []task.Use{
						{ContainerID: id("old"), Container: "web", GPUSeconds: 99, Energy: &gone}, // web is another one now
						{ContainerID: id("web"), Container: "web", GPUSeconds: 7.5, Energy: &web},
						{ContainerID: id("done"), Container: "done", GPUSeconds: 1.5, Energy: &gone},
						{ContainerID: id("done2"), Container: "done", GPUSeconds: 2, Energy: &gone},
					},
				},
				{UUID: "GPU-c", Temperature: map[string]float64{"gpu": 33}, Xids: map[uint64]uint64{}}, // reports little
			}
			return newScene(s, collector.Options{})
		},
		"cards_silent": func() *scene {
			s := node()
			s.Health.CardsError = "no permission"
			return newScene(s, collector.Options{})
		},
		"two_gpus": func() *scene {
			s := node()
			web := withDeadline("web", 9)
			web.VisibleGPUs = []string{gpuA, gpuB}
			s.Containers = []task.Container{web}
			both := begun("web", -3, 6)
			both.GPUs = []string{gpuA, gpuB}
			unknown := begun("web", -2, 7)
			unknown.GPUs, unknown.GPUReason = []string{task.UnknownGPU}, "its container can see 2"
			s.Tasks = []task.Task{both, unknown}
			c := newScene(s, collector.Options{})
			c.Began(both, gpuA)
			c.Began(both, gpuB)
			return c
		},
	}
	for name, scene := range tests {
		t.Run(name, func(t *testing.T) { golden(t, scene(), name) })
	}
}

// Series of containers in pods say of which pod; those of others are as they are without Kubernetes.
func TestPods(t *testing.T) {
	s := node()
	s.Cards = []task.Card{{UUID: gpuA, Uses: []task.Use{{Container: "team/train-0/main", ContainerID: id("team/train-0/main"), GPUSeconds: 3}}}}
	for _, name := range []string{"plain", "team/train-0/main", "team/train-1/main"} {
		c := withDeadline(name, 9)
		c.MemoryUsed = map[string]uint64{gpuA: 1}
		s.Containers = append(s.Containers, c)
		s.Tasks = append(s.Tasks, begun(name, -1, 8))
		s.Ended = append(s.Ended, over(name, -9, 0, -2))
	}
	s.Ended = append(s.Ended, over("team/gone/main", -9, 0, -2))
	c := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }, Now: func() time.Time { return t0 }})
	for _, ended := range s.Ended {
		c.Began(ended, gpuA)
		c.Ended(ended)
	}
	text := format(t, collector.NewRegistry(c, false))
	for line := range strings.Lines(text) {
		want := ""
		for _, pod := range []string{"train-0", "train-1", "gone"} {
			if strings.Contains(line, `container="team/`+pod+`/main"`) {
				want = pod
			}
		}
		if got := strings.Contains(line, `namespace="team"`) && strings.Contains(line, `pod="`+want+`"`); got != (want != "") {
			t.Errorf("pod %q: %s", want, line)
		}
	}
	for _, name := range []string{"gpu_task_float_seconds", "gpu_task_last_end_timestamp_seconds", "gpu_tasks_started_total", "gpu_container_info", "gpu_container_gpu_seconds_total", "gpu_task_duration_seconds"} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("no series %s", name)
		}
	}
	c2 := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }, Now: func() time.Time { return t0 }})
	golden(t, collector.NewRegistry(c2, false), "pods", "gpu_container_info", "gpu_task_float_seconds", "gpu_tasks", "gpu_container_gpu_seconds_total")
}

// A Prometheus as it comes, which scrapes no native histograms, has buckets.
func TestClassicHistograms(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("web", 9)}
	s.Ended = []task.Task{over("web", -20, -11, -12.5)}
	c := newScene(s, collector.Options{})
	c.Ended(s.Ended[0])
	if n := count(t, c, "gpu_task_held_seconds"); n != 0 {
		t.Errorf("no task stood still, and there are %d series of how long", n)
	}
	// With the first that did, those before count too: as 0.
	stood := over("web", -10, -1, -2)
	stood.HeldSeconds, stood.PausedSeconds = 2, 0.5
	c.Ended(stood)
	golden(t, c, "classic", "gpu_task_duration_seconds", "gpu_task_tardiness_seconds", "gpu_task_held_seconds")
}

func count(t *testing.T, c prometheus.Gatherer, metrics ...string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(format(t, c, metrics...)) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// A container that ended with its task stays as long as the rules look back.
func TestContainerThatIsGone(t *testing.T) {
	s := node()
	s.Ended = []task.Task{over("web", -20, -11, -10)}
	c := newScene(s, collector.Options{Retention: 15 * time.Minute})
	c.Began(s.Ended[0], gpuA)
	c.Ended(s.Ended[0])
	golden(t, c, "gone", "gpu_task_last_deadline_hit", "gpu_task_last_end_timestamp_seconds",
		"gpu_tasks_completed_total", "gpu_tasks", "gpu_container_info")
	c.now = at(16 * 60)
	for _, m := range []string{"gpu_task_last_deadline_hit", "gpu_tasks_completed_total", "gpu_task_duration_seconds"} {
		if n := count(t, c, m); n != 0 {
			t.Errorf("%d series of %s after the retention", n, m)
		}
	}
}

// A container whose only label has an unknown name is not managed, and its owner must learn of it.
func TestUnknownLabelAloneIsReported(t *testing.T) {
	s := node()
	mistyped := task.Container{ID: id("web"), Name: "web", Invalid: []task.InvalidLabel{{Label: "laxity.puase", Value: "never"}}}
	s.Containers = []task.Container{mistyped, {ID: id("db"), Name: "db"}}
	if n := count(t, newScene(s, collector.Options{}), "laxity_exporter_invalid_labels"); n != 1 {
		t.Errorf("%d series of laxity_exporter_invalid_labels", n)
	}
}

func TestNewContainerOfTheSameName(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("web", 9)}
	s.Ended = []task.Task{over("web", -20, -11, -10)}
	c := newScene(s, collector.Options{})
	c.Began(s.Ended[0], gpuA)
	c.Ended(s.Ended[0])
	next := *s
	next.Containers = []task.Container{{ID: id("other"), Name: "web", VisibleGPUs: []string{gpuA}, Spec: task.Spec{Managed: true}}}
	c.s = &next
	golden(t, c, "successor", "gpu_tasks_started_total", "gpu_tasks_completed_total",
		"gpu_task_last_deadline_hit", "gpu_task_duration_seconds")
}

// A task of its predecessor that is told late does not take the counts of a container.
func TestLateTaskOfAPredecessor(t *testing.T) {
	old := over("web", -20, -11, -10)
	next := task.Container{ID: id("other"), Name: "web", VisibleGPUs: []string{gpuA}, Spec: task.Spec{Managed: true}}
	s := node()
	c := newScene(s, collector.Options{})
	c.Began(old, gpuA)
	c.Ended(old)
	s.Containers = []task.Container{next}
	begun := begun("web", -1, 8)
	begun.ContainerID = next.ID
	c.Began(begun, gpuA)
	c.Began(old, gpuA)
	c.Ended(old)
	text := format(t, c, "gpu_tasks_started_total", "gpu_tasks_completed_total")
	if !strings.Contains(text, "gpu_tasks_started_total{container=\"web\",gpu=\"GPU-a\"} 1\n") || strings.Contains(text, "\"hit\"} 1") {
		t.Errorf("of a container that began one task:\n%s", text)
	}
}

func TestSeriesLimit(t *testing.T) {
	s := node()
	for i := range 100 {
		s.Containers = append(s.Containers, withDeadline(fmt.Sprint("c", i), 9))
	}
	s.Tasks = []task.Task{begun("c99", -1, 8)}
	c := newScene(s, collector.Options{MaxSeries: 200})
	if n := count(t, c); n > 201 {
		t.Errorf("%d series, the limit is 200 and the counter of dropped ones", n)
	}
	if n := count(t, c, "gpu_task_float_seconds"); n != 1 {
		t.Error("the one task that runs was dropped before idle containers")
	}
	if n := count(t, c, "laxity_exporter_device_up"); n != 1 {
		t.Error("the exporter's own health was dropped")
	}
	if text := format(t, c, "laxity_exporter_series_dropped_total"); strings.HasSuffix(text, " 0\n") {
		t.Errorf("what was dropped is not counted: %s", text)
	}
}

// Counts of containers that are gone make room for those of new ones, and what has no
// room is told.
func TestSeriesLimitOfCounts(t *testing.T) {
	s := node()
	c := newScene(s, collector.Options{MaxSeries: 200}) // counts of 25 containers
	run := func(i int) string {
		x := over(fmt.Sprint("c", i), -2, 8, -1)
		c.Began(x, gpuA)
		c.Ended(x)
		s.Containers = append(s.Containers, withDeadline(x.Container, 9))
		return format(t, c, "gpu_tasks_completed_total")
	}
	for i := range 40 { // one after the other
		s.Containers = nil
		c.now = at(float64(i))
		if want := fmt.Sprintf("gpu_tasks_completed_total{container=\"c%d\",gpu=\"GPU-a\",outcome=\"hit\"} 1\n", i); !strings.Contains(run(i), want) {
			t.Fatalf("container %d is not counted", i)
		}
	}
	if text := format(t, c, "laxity_exporter_series_dropped_total"); !strings.HasSuffix(text, " 0\n") {
		t.Errorf("nothing was dropped, but %s", text)
	}
	s.Containers = nil
	for i := range 5 {
		s.Containers = append(s.Containers, withDeadline(fmt.Sprint("c", i), 9))
	}
	all := count(t, newScene(s, collector.Options{}))
	limited := format(t, newScene(s, collector.Options{MaxSeries: 16})) // counts of two, and there are five
	shown := 0
	for line := range strings.Lines(limited) {
		if !strings.HasPrefix(line, "#") {
			shown++
		}
	}
	if want := fmt.Sprintf("laxity_exporter_series_dropped_total %d\n", all-shown); !strings.Contains(limited, want) {
		t.Errorf("%d series of %d are shown, want %s in\n%s", shown, all, want, limited)
	}
}

func TestBadBytes(t *testing.T) {
	s := node()
	c := withDeadline("web\xff", 9)
	c.Image = "\xfe"
	s.Containers = []task.Container{c}
	s.GPUs[0].Name = "\xff"
	scene := newScene(s, collector.Options{})
	scene.Began(begun("web\xff", -1, 8), "GPU-\xff")
	scene.Ended(over("web\xff", -2, 8, -1))
	if n := count(t, scene); n == 0 {
		t.Error("one bad byte spoilt the scrape")
	}
}

// A histogram is there, at 0, before the first task of a container ends: that task counts in
// a rate. No metric is NaN, whatever is not known yet.
func TestHistogramsBeginAtZero(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("web", 9), withDeadline("batch", 0)}
	s.Tasks = []task.Task{begun("web", -1, 8), begun("batch", -1, 0)}
	c := newScene(s, collector.Options{})
	for _, t := range s.Tasks {
		c.Began(t, gpuA)
	}
	text := format(t, c)
	for _, want := range []string{
		`gpu_task_duration_seconds_count{container="web",gpu="GPU-a"} 0`, `gpu_task_duration_seconds_count{container="batch",gpu="GPU-a"} 0`,
		`gpu_task_tardiness_seconds_bucket{container="web",gpu="GPU-a",le="0"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, not := range []string{`gpu_task_tardiness_seconds_count{container="batch"`, "gpu_task_held_seconds_", "NaN"} {
		if strings.Contains(text, not) {
			t.Errorf("%s in\n%s", not, text)
		}
	}
}

func TestPolled(t *testing.T) {
	c := newScene(node(), collector.Options{})
	c.Polled(time.Millisecond, nil)
	c.Polled(time.Second, errors.New("hangs"))
	golden(t, c, "polled", "laxity_exporter_poll_duration_seconds")
}

// A scrape shows one snapshot, whatever comes while it goes on.
func TestScrapeShowsOneSnapshot(t *testing.T) {
	worlds := []*task.Snapshot{node(), node()}
	for i, s := range worlds {
		name := fmt.Sprint("web", i)
		s.Containers = []task.Container{withDeadline(name, 9)}
		s.Tasks = []task.Task{begun(name, -1, 8)}
	}
	asked := 0
	c := collector.New(collector.Options{Now: func() time.Time { return t0 }, Snapshot: func() *task.Snapshot {
		asked++
		return worlds[asked%2]
	}})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	for range 4 {
		text := format(t, r, "gpu_container_deadline_seconds", "gpu_tasks", "gpu_task_float_seconds")
		if zero, one := strings.Contains(text, "web0"), strings.Contains(text, "web1"); zero == one {
			t.Errorf("a scrape of two snapshots:\n%s", text)
		}
	}
}

// Scrapes at once, while tasks begin and end.
func TestScrapesAtOnce(t *testing.T) {
	c := crowd(20)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if families, err := c.Gather(); err != nil || len(families) < 20 {
					t.Errorf("%d families, %v", len(families), err)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 200 {
			c.Polled(time.Millisecond, nil)
			c.Began(c.s.Tasks[i%20], gpuA)
			c.Ended(c.s.Ended[i%20])
		}
	})
	all.Wait()
}

// What the program tells of itself stands beside the collector's metrics.
func TestRegistry(t *testing.T) {
	c := collector.New(collector.Options{Snapshot: node})
	for _, runtime := range []bool{true, false} {
		text := format(t, collector.NewRegistry(c, runtime))
		for name, want := range map[string]bool{"gpu_info": true, "laxity_exporter_build_info": true, "process_cpu_seconds_total": runtime, "go_goroutines": runtime} {
			if strings.Contains(text, "# TYPE "+name+" ") != want {
				t.Errorf("runtime %v: %s is there: %v", runtime, name, !want)
			}
		}
	}
}

// crowd is a node with n containers that run one task each and have ended another.
func crowd(n int) *scene { return crowdOf(n, "c%d") }

func crowdOf(n int, format string) *scene {
	s := node()
	for i := range n {
		name := fmt.Sprintf(format, i)
		b := withDeadline(name, 9)
		b.MemoryUsed, b.SMUtilization = map[string]uint64{gpuA: 1}, map[string]float64{gpuA: 0.01}
		s.Containers = append(s.Containers, b)
		s.Tasks = append(s.Tasks, begun(name, -1, 8))
		s.Ended = append(s.Ended, over(name, -9, 0, -2))
	}
	c := newScene(s, collector.Options{})
	for i := range n {
		c.Began(s.Tasks[i], gpuA)
		c.Ended(s.Ended[i])
	}
	return c
}

func BenchmarkGather100Containers(b *testing.B) { gather(b, crowd(100)) }

func BenchmarkGather100Pods(b *testing.B) { gather(b, crowdOf(100, "team/train-%d/main")) }

func gather(b *testing.B, c *scene) {
	registry := prometheus.NewRegistry() // the programs' own: a pedantic one costs more
	registry.MustRegister(c.Collector)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

// The wall clock was set during a task. Its start, end and deadline keep their distances, and are as
// the API has them.
func TestTimesAfterTheClockWasSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, 0, time.Hour} {
		start := time.Now()
		end := clocktest.Set(t, start.Add(5*time.Second), set)
		s := node()
		s.Containers = []task.Container{withDeadline("web", 9)}
		last := task.Task{ID: "1", Container: "web", ContainerID: id("web"), GPUs: []string{gpuA}, State: task.Ended,
			Start: task.Mark{Time: start}, End: &task.Mark{Time: end}, Deadline: start.Add(9 * time.Second)}
		s.Ended = []task.Task{last}
		s.Cards = []task.Card{{UUID: gpuA, LastXids: map[uint64]time.Time{79: start}}}
		c := newScene(s, collector.Options{})
		c.now = end.Add(time.Second)
		api := s.At(c.now).Ended[0]
		families, err := c.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if strings.HasSuffix(f.GetName(), "_timestamp_seconds") {
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		for name, want := range map[string]time.Time{
			"gpu_task_last_start_timestamp_seconds":    api.Start.Time,
			"gpu_task_last_end_timestamp_seconds":      api.End.Time,
			"gpu_task_last_deadline_timestamp_seconds": api.Deadline,
			"gpu_xid_last_timestamp_seconds":           api.Start.Time,
		} {
			if got[name] != float64(want.UnixMicro())/1e6 {
				t.Errorf("set by %v: %s is %.6f, want %.6f", set, name, got[name], float64(want.UnixMicro())/1e6)
			}
		}
		if ran := got["gpu_task_last_end_timestamp_seconds"] - got["gpu_task_last_start_timestamp_seconds"]; math.Abs(ran-5) > 1e-5 {
			t.Errorf("set by %v: the task of 5 s ran %v s", set, ran)
		}
	}
}
