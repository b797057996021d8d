package actuator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

const gpu0 = "GPU-0"

// fakeSource is an exporter in memory. Every reading confirms the facts anew.
type fakeSource struct {
	mu         sync.Mutex
	seq        uint64
	gpus       []task.GPU
	containers []task.Container
	tasks      []task.Task
	ended      []task.Task
	health     task.Health
	watchers   []chan *task.Snapshot
	paused     func(id string) bool // what the engine says
	before     *task.Snapshot       // what others see while together runs
	err        error
	name       string        // of its run
	ahead      time.Duration // its wall clock, of ours
	age        task.Seconds  // of its facts
}

var _ source.Source = (*fakeSource)(nil)

func newSource() *fakeSource {
	return &fakeSource{
		gpus:   []task.GPU{{UUID: gpu0, Name: "fake", MemoryTotal: 100, MemoryUsed: 10, Utilization: 1}},
		health: task.Health{DeviceUp: true, EngineUp: true},
		paused: func(string) bool { return false },
	}
}

func (s *fakeSource) snapshot() *task.Snapshot {
	if s.before != nil {
		return s.before
	}
	// As it is read from JSON: without a monotonic clock.
	snap := &task.Snapshot{Run: s.name, Sequence: s.seq, Time: time.Now().Round(0).Add(s.ahead), Age: s.age, Node: "here", Health: s.health}
	snap.GPUs = append(snap.GPUs, s.gpus...)
	snap.Tasks = append(snap.Tasks, s.tasks...)
	snap.Ended = append(snap.Ended, s.ended...)
	for _, c := range s.containers {
		c.Paused = s.paused(c.ID)
		snap.Containers = append(snap.Containers, c)
	}
	return snap
}

func (s *fakeSource) Snapshot(context.Context) (*task.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.snapshot(), nil
}

func (s *fakeSource) Watch(ctx context.Context) (<-chan *task.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan *task.Snapshot, 1)
	ch <- s.snapshot()
	s.watchers = append(s.watchers, ch)
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = slices.DeleteFunc(s.watchers, func(c chan *task.Snapshot) bool { return c == ch })
		close(ch)
	})
	return ch, nil
}

// set changes the facts and tells those who watch.
func (s *fakeSource) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.tell()
}

// together makes several changes, which everybody else sees as one.
func (s *fakeSource) together(changes func()) {
	s.mu.Lock()
	s.before = s.snapshot()
	s.mu.Unlock()
	changes()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = nil
	s.tell()
}

// tell sends the facts to those who watch.
func (s *fakeSource) tell() {
	if s.before != nil {
		return
	}
	s.seq++
	for _, ch := range s.watchers {
		source.Latest(ch, s.snapshot())
	}
}

var epoch = time.Now().Add(-time.Minute)

// start adds a managed container with one task, younger than those before.
func (s *fakeSource) start(id string) {
	s.set(func() {
		n := len(s.containers) + 1
		s.containers = append(s.containers, task.Container{ID: id, Name: "name-" + id, Spec: task.Spec{Managed: true}})
		s.tasks = append(s.tasks, task.Task{
			ID: "task-" + id, PID: 100 + n, Container: "name-" + id, ContainerID: id, GPUs: []string{gpu0},
			State: task.Running, Start: task.Mark{Time: epoch.Add(time.Duration(n) * time.Second)},
		})
	})
}

// end finishes the tasks of a container.
func (s *fakeSource) end(id string) {
	s.set(func() {
		s.tasks = slices.DeleteFunc(s.tasks, func(t task.Task) bool { return t.ContainerID == id })
	})
}

func (s *fakeSource) remove(id string) {
	s.end(id)
	s.set(func() {
		s.containers = slices.DeleteFunc(s.containers, func(c task.Container) bool { return c.ID == id })
	})
}

// bench is an actuator on fakes.
type bench struct {
	*testing.T
	*actuator.Actuator
	source *fakeSource
	engine *enforcetest.Engine
	dir    string
	stop   func() error
	// stopFails: the test means it that stop returns an error.
	stopFails bool
}

func newBench(t *testing.T, change func(*actuator.Options)) *bench {
	t.Helper()
	b := &bench{T: t, source: newSource(), engine: enforcetest.NewEngine(), dir: t.TempDir()}
	b.source.paused = func(id string) bool { p, _ := b.engine.Paused(id); return p }
	b.restart(change)
	return b
}

func (b *bench) options() actuator.Options {
	return actuator.Options{
		StateDir: b.dir, Source: b.source, Guardian: watch.Warn, Tick: 5 * time.Millisecond,
		Config: config.Config{Policy: "fifo"},
		Logger: slog.New(slog.NewTextHandler(testWriter{b.T}, nil)),
		Mechanisms: mechanism.Options{NewEnforcer: func(j *journal.Journal) (enforce.Enforcer, error) {
			return docker.New(docker.Options{Engine: b.engine, Journal: j, Freezer: b.engine})
		}},
	}
}

func (b *bench) restart(change func(*actuator.Options)) {
	b.Helper()
	o := b.options()
	if change != nil {
		change(&o)
	}
	a, err := actuator.New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Actuator = a
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	b.stop = stop
	b.Cleanup(func() {
		if err := stop(); err != nil && !b.stopFails {
			b.Errorf("the actuator ended with: %v", err)
		}
	})
}

// calledOnly stops the actuator once it has planned with the present facts, which waits for what it began then. Up to its
// end the engine must have got these calls, and no others.
func (b *bench) calledOnly(want ...string) {
	b.Helper()
	b.source.set(func() {})
	b.seen()
	if err := b.stop(); err != nil {
		b.Fatal(err)
	}
	calls := b.engine.Calls()
	all, _ := b.Decisions().Last(0)
	for _, d := range all { // the calls of the end come last
		if d.Kind == decision.Unpause && d.Result == decision.Done && d.Reason == "the actuator ends" {
			calls = calls[:max(len(calls)-1, 0)]
		}
	}
	if !slices.Equal(calls, want) {
		b.Errorf("the engine was asked for %q, want %q", calls, want)
	}
}

// run starts containers in engine and source.
func (b *bench) run(ids ...string) {
	for _, id := range ids {
		b.engine.Run(id)
		b.source.start(id)
	}
}

// seen waits until the actuator knows what the source says now.
func (b *bench) seen() {
	b.Helper()
	b.source.mu.Lock()
	now := b.source.seq
	b.source.mu.Unlock()
	b.await("the latest snapshot is seen", func() bool { return b.State().SnapshotSequence >= now })
}

// awaitHandled waits until all that was sent took effect. State is a copy from the last step, which may be older; and
// messages leave the inbox before the step that plans with them, which the next snapshot comes after.
func (b *bench) awaitHandled() {
	b.Helper()
	b.await("all alerts are handled", func() bool {
		_, metrics := b.get("/metrics")
		return strings.Contains(metrics, "\nlaxity_actuator_inbox_messages 0\n")
	})
	b.source.set(func() {})
	b.seen()
}

// clock is the real one, and runs ahead of it as a test says.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time           { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) set(ahead time.Duration)  { c.ahead.Store(int64(ahead)) }
func (c *clock) advance(by time.Duration) { c.ahead.Add(int64(by)) }

func (b *bench) await(what string, ok func() bool) {
	b.Helper()
	await(b.T, what, ok)
}

// await looks again and again; the limit is for a test that hangs only.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (b *bench) isPaused(id string) bool { p, _ := b.engine.Paused(id); return p }

func (b *bench) awaitPaused(want string, of ...string) {
	b.Helper()
	b.await("paused are: "+want, func() bool {
		var p []string
		for _, id := range of {
			if b.isPaused(id) {
				p = append(p, id)
			}
		}
		return strings.Join(p, " ") == want
	})
}

// decided waits for a decision and returns it.
func (b *bench) decided(what string, match func(decision.Decision) bool) (d decision.Decision) {
	b.Helper()
	b.await("a decision: "+what, func() bool {
		all, _ := b.Decisions().Last(0)
		i := slices.IndexFunc(all, match)
		if i >= 0 {
			d = all[i]
		}
		return i >= 0
	})
	return d
}

func alert(status, name, action string, labels ...string) webhook.Alert {
	a := webhook.Alert{Status: status, StartsAt: epoch, Labels: map[string]string{"alertname": name, "action": action, "node": "here"}}
	for i := 0; i+1 < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	a.Fingerprint = fmt.Sprint(name, labels)
	return a
}

func contention(status string) webhook.Alert {
	return alert(status, "GPUContention", "arbitrate", "gpu", gpu0)
}

func (b *bench) send(alerts ...webhook.Alert) {
	b.Helper()
	err := b.Receive(context.Background(), webhook.Message{Version: "4", Alerts: alerts})
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) get(path string) (int, string) {
	b.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	rec := httptest.NewRecorder()
	b.Handler().ServeHTTP(rec, req)
	body, _ := io.ReadAll(rec.Body)
	return rec.Code, string(body)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
