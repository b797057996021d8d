package actuator_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

func edf(o *actuator.Options) {
	o.Config = config.Config{Policy: "edf", Share: "one", Arbitrate: config.Always}
}

// due gives the tasks of a container a deadline from now.
func (s *fakeSource) due(id string, in time.Duration) {
	s.set(func() {
		for i := range s.containers {
			if s.containers[i].ID == id {
				s.containers[i].Spec.Class = task.ClassDeadline
			}
		}
		for i := range s.tasks {
			if s.tasks[i].ContainerID == id {
				s.tasks[i].Deadline = time.Now().Add(in)
			}
		}
	})
}

func TestTheEarliestDeadlineIsNext(t *testing.T) {
	b := newBench(t, edf)
	b.run("a")
	b.source.due("a", time.Hour)
	b.await("a is admitted", func() bool {
		s := b.State()
		return len(s.GPUs) == 1 && slices.Equal(s.GPUs[0].Admitted, []string{"name-a"})
	})
	for id, in := range map[string]time.Duration{"b": 4 * time.Hour, "c": 2 * time.Hour, "d": 3 * time.Hour} {
		b.run(id)
		b.source.due(id, in)
	}
	// With nothing known the earlier deadline preempts; a has the earliest.
	b.awaitPaused("b c d", "a", "b", "c", "d")
	b.await("they are in the queue", func() bool {
		return slices.Equal(b.State().GPUs[0].Queue, []string{"name-c", "name-d", "name-b"})
	})
	b.source.end("a")
	b.awaitPaused("b d", "a", "b", "c", "d")
	b.source.end("c")
	b.awaitPaused("b", "a", "b", "c", "d")
}

func TestAnEarlierDeadlinePreempts(t *testing.T) {
	b := newBench(t, edf)
	b.run("a")
	b.source.due("a", time.Hour)
	b.await("a is admitted", func() bool { s := b.State(); return len(s.GPUs) == 1 && len(s.GPUs[0].Admitted) == 1 })
	b.run("b")
	b.source.due("b", time.Minute)
	b.awaitPaused("a", "a", "b")
	b.decided("of the preemption", func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.ContainerID == "a" && strings.Contains(d.Reason, "would miss it")
	})
	if _, metrics := b.get("/metrics"); !strings.Contains(metrics, "laxity_actuator_preemptions_total 1") || strings.Contains(metrics, `snapshot_to_action_seconds_count{kind="pause"} 0`) {
		t.Error("the preemption or its latency is not counted")
	}
}

// A server that is late beside a trainer of class batch: its requests are not held, and
// for a deadline of release process batch is, at once.
func TestARequestDoesNotWaitBehindBatch(t *testing.T) {
	b := newBench(t, edf)
	b.run("trainer")
	b.await("the trainer is admitted", func() bool { s := b.State(); return len(s.GPUs) == 1 && len(s.GPUs[0].Admitted) == 1 })
	b.run("server")
	b.source.set(func() {
		for i := range b.source.containers {
			if b.source.containers[i].ID == "server" {
				b.source.containers[i].Spec.Release = task.ReleaseBusy
			}
		}
	})
	b.source.due("server", -time.Minute)
	b.await("the server runs beside it", func() bool {
		s := b.State()
		i := slices.IndexFunc(s.Containers, func(c state.Container) bool { return c.ID == "server" && c.Beside != "" && c.Waits == "" })
		return i >= 0 && slices.Equal(s.GPUs[0].Admitted, []string{"name-trainer"})
	})
	b.awaitPaused("", "trainer", "server")
	b.run("task")
	b.source.due("task", time.Hour)
	b.awaitPaused("trainer", "trainer", "server", "task")
	b.decided("why the trainer waits", func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.ContainerID == "trainer" && strings.Contains(d.Reason, "tasks with deadlines come before")
	})
}

func TestExpedite(t *testing.T) {
	b := newBench(t, edf)
	b.run("a")
	b.source.due("a", time.Hour)
	b.await("a is admitted", func() bool { s := b.State(); return len(s.GPUs) == 1 && len(s.GPUs[0].Admitted) == 1 })
	b.run("b", "c")
	b.source.due("b", 2*time.Hour)
	b.source.due("c", 3*time.Hour)
	b.awaitPaused("b c", "a", "b", "c")
	b.send(alert(webhook.Firing, "GPUTaskDeadlineAtRisk", "expedite", "container", "name-c"))
	b.decided("to the front", func(d decision.Decision) bool { return d.Result == decision.Opened && d.Container == "name-c" })
	b.awaitPaused("a b", "a", "b", "c")
	b.source.end("c")
	b.awaitPaused("b", "a", "b", "c")
	b.decided("its lease ends with the task", func(d decision.Decision) bool {
		return d.Kind == decision.Lease && d.Reason == "its task has ended"
	})
}

// A server has an alert with each of its requests: that a lease ended does not wait for the disk each
// time. What is asked for does.
func TestEndsOfLeasesAreWrittenTogether(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) {
		edf(o)
		start := time.Now() // the clock is slow: the ends are due on disk long after the test
		o.Now = func() time.Time { return start.Add(time.Since(start) / 10) }
	})
	b.run("server")
	onDisk := func() string {
		raw, err := os.ReadFile(filepath.Join(b.dir, "leases.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	b.send(alert(webhook.Firing, "GPUTaskDeadlineAtRisk", "expedite", "container", "name-server"))
	b.await("the message took effect", func() bool { return len(b.State().Leases) == 1 && b.State().Inbox == 0 })
	open := onDisk()
	if !strings.Contains(open, "GPUTaskDeadlineAtRisk") {
		t.Fatalf("not on disk: %s", open)
	}
	b.source.end("server")
	b.await("the lease has ended", func() bool { return len(b.State().Leases) == 0 })
	if now := onDisk(); now != open {
		t.Errorf("written at once: %s", now)
	}
	b.stop()
	if now := onDisk(); strings.Contains(now, "GPUTaskDeadlineAtRisk") {
		t.Errorf("not written at the end: %s", now)
	}
}

func TestWhatRepeatsIsSaidOnce(t *testing.T) {
	b := newBench(t, nil)
	b.run("a")
	for range 5 {
		b.send(alert(webhook.Firing, "GPUTaskDeadlineAtRisk", "expedite", "container", "name-a"), contention(webhook.Firing))
	}
	b.awaitHandled()
	count := map[string]int{}
	all, _ := b.Decisions().Last(0)
	for _, d := range all {
		count[d.Alert+" "+string(d.Result)]++
	}
	if count["GPUTaskDeadlineAtRisk ignored"] != 1 || count["GPUContention opened"] != 1 || count["GPUContention renewed"] != 1 {
		t.Errorf("said: %v", count)
	}
}

// An exporter that cannot read the engine says of whom we have released meanwhile that it
// is paused. That is nobody else's pause.
func TestWhomWeLetGoRunsThoughTheExporterIsBlind(t *testing.T) {
	var later atomic.Int64
	b := newBench(t, func(o *actuator.Options) {
		o.HoldLease = 100 * time.Millisecond
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	b.run("a", "b")
	b.send(contention("firing"))
	b.awaitPaused("b", "a", "b")
	b.source.set(func() {
		b.source.health.EngineUp = false
		b.source.paused = func(id string) bool { return id == "b" }
	})
	b.decided("its lease ran out", func(d decision.Decision) bool { return d.Kind == decision.Unpause && d.ContainerID == "b" })
	b.awaitPaused("", "a", "b")
	later.Store(int64(time.Hour))
	b.await("an hour is over", func() bool { return b.State().Time.After(time.Now().Add(time.Minute)) })
	for _, c := range b.State().Containers {
		if c.Standing != plan.Runs {
			t.Errorf("%s: %s", c.ID, c.Standing)
		}
	}
}

// With pauses a container counts from its use of GPU memory on.
func TestAContainerCountsFromItsUseOfGPUMemory(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.source.set(func() { b.source.tasks[1].Start.Time = time.Now().Add(time.Hour) })
	b.send(contention(webhook.Firing))
	b.await("a is admitted, and b takes no part", func() bool {
		s := b.State()
		return len(s.GPUs) == 1 && slices.Equal(s.GPUs[0].Admitted, []string{"name-a"}) && len(s.GPUs[0].Queue) == 0
	})
	b.awaitPaused("", "a", "b")
	b.source.set(func() { b.source.tasks[1].MemoryUsed = map[string]uint64{gpu0: 1} })
	b.awaitPaused("b", "a", "b")
}

// Where channels cannot be controlled containers that wait are paused, and that is reported.
func TestWithoutChannelsWhoWaitsIsPaused(t *testing.T) {
	m := collector.New()
	b := newBench(t, func(o *actuator.Options) { o.Mechanisms.NoChannels, o.Metrics = "driver 470", m })
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	if s := b.State(); s.Hold != config.HoldPause || s.NoChannels != "driver 470" {
		t.Errorf("holds by %s: %q", s.Hold, s.NoChannels)
	}
	want := strings.NewReader(`# HELP laxity_actuator_pause_instead 1 while containers that wait are paused because time slices and channels cannot be controlled here, though --hold asks for them.
# TYPE laxity_actuator_pause_instead gauge
laxity_actuator_pause_instead 1
`)
	if err := testutil.CollectAndCompare(m, want, "laxity_actuator_pause_instead"); err != nil {
		t.Error(err)
	}
}

func TestBreaker(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.Config.BreakerActions = 2 })
	b.run("a", "b", "c", "d")
	b.send(contention(webhook.Firing))
	b.decided("hands off", func(d decision.Decision) bool {
		return d.Kind == decision.Service && strings.Contains(d.Reason, "--breaker.actions")
	})
	b.awaitPaused("", "a", "b", "c", "d")
	b.await("the state says so", func() bool { return b.State().Breaker != "" && len(b.State().Holds) == 0 })
	if _, metrics := b.get("/metrics"); !strings.Contains(metrics, "laxity_actuator_breaker_open 1") || !strings.Contains(metrics, "laxity_actuator_breaker_trips_total 1") {
		t.Error("not in the metrics")
	}
}

func TestBreakerOnAStormOfAlerts(t *testing.T) {
	b := newBench(t, nil)
	ids := []string{"a", "b", "c", "d", "e"}
	b.run(ids...)
	var storm []webhook.Alert
	for _, id := range ids {
		storm = append(storm, alert(webhook.Firing, "User", "pause", "container", "name-"+id))
	}
	b.send(storm...)
	b.decided("hands off", func(d decision.Decision) bool {
		return strings.Contains(d.Reason, "5 of 5 managed containers are stopped")
	})
	b.awaitPaused("", ids...)
}

// named is an engine that says who it is.
type named struct{ *enforcetest.Engine }

func (named) Info(context.Context) (system.Info, error) { return system.Info{ID: "ABCD:1"}, nil }

func TestOfTwoOnOneEngineOneActs(t *testing.T) {
	locks := t.TempDir()
	first := newBench(t, nil)
	var guard *fakeGuard // of the actuator that began last
	on := func(o *actuator.Options) {
		o.LockDir, o.Config.Arbitrate = locks, config.Always
		g := &fakeGuard{}
		guard = g
		o.Mechanisms.NewMemoryGuard = func(d memory.Decider) (arbiter.MemoryGuard, error) { g.decider = d; return g, nil }
		o.Mechanisms.NewEnforcer = func(j *journal.Journal) (enforce.Enforcer, error) {
			return docker.New(docker.Options{Engine: named{first.engine}, Journal: j, Freezer: first.engine})
		}
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	first.restart(on)
	first.run("a", "b")
	first.source.set(func() { first.source.containers[0].Spec.GPUMemory = 10 })
	first.awaitPaused("b", "a", "b")
	first.await("the first one guards", func() bool { return guard.covers("a") })
	second := &bench{T: t, source: first.source, engine: first.engine, dir: t.TempDir()}
	second.restart(on)
	second.await("it stands by", func() bool { return strings.Contains(second.State().Standby, "another actuator") })
	second.await("it is not ready, and says why", func() bool {
		code, body := second.get("/-/ready")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "stands by")
	})
	second.seen()
	second.await("its guard is told", guard.told)
	if guard.covers("a") {
		t.Error("two guards decide about one container")
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second.await("it acts", func() bool { return second.State().Standby == "" && len(second.State().Holds) == 1 })
	second.await("it guards", func() bool { return guard.covers("a") })
}

func TestAllowList(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) {
		o.Allow = core.Allow{"team=ml", "share"}
		o.Config.Arbitrate = config.Always
	})
	for id, labels := range map[string]map[string]string{"a": {"team": "ml"}, "b": {"team": "web"}, "c": {"share": "yes"}, "d": nil} {
		b.engine.Run(id)
		b.engine.Label(id, labels)
	}
	b.source.start("a")
	// Whoever is known first keeps its turn.
	b.await("a is admitted", func() bool { s := b.State(); return len(s.GPUs) == 1 && len(s.GPUs[0].Admitted) == 1 })
	for _, id := range []string{"b", "c", "d"} {
		b.source.start(id)
	}
	b.awaitPaused("c", "a", "b", "c", "d")
	b.send(alert(webhook.Firing, "User", "pause", "container", "name-b"))
	b.decided("not on the list", func(d decision.Decision) bool { return strings.Contains(d.Reason, "not on the allow-list") })
}

func TestBearerTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *actuator.Options) { o.Access.Tokens = tokens })
	post := func(remote, token string) int {
		req := httptest.NewRequest(http.MethodPost, "/api/v1/alerts", strings.NewReader(`{"version":"4","alerts":[]}`))
		req.RemoteAddr, req.Host = remote, "localhost:9871"
		req.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		b.Handler().ServeHTTP(rec, req)
		return rec.Code
	}
	for _, remote := range []string{"192.0.2.7:1234", "127.0.0.1:1234"} {
		if code := post(remote, "0123456789abcdef"); code != http.StatusOK {
			t.Errorf("with a token from %s: %d", remote, code)
		}
		if code := post(remote, "0123456789abcdeg"); code != http.StatusUnauthorized {
			t.Errorf("with a wrong one from %s: %d", remote, code)
		}
	}
	if code, _ := b.get("/api/v1/state"); code != http.StatusOK {
		t.Errorf("reading needs no token: %d", code)
	}
}

// warnings counts what is logged above info.
type warnings struct {
	slog.Handler
	texts chan string
}

func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelInfo {
		w.texts <- r.Message
	}
	return w.Handler.Handle(ctx, r)
}

func TestQuietAtTheStart(t *testing.T) {
	w := warnings{slog.NewTextHandler(testWriter{t}, nil), make(chan string, 100)}
	b := newBench(t, func(o *actuator.Options) { o.Logger, o.DryRun = slog.New(w), true })
	b.run("a")
	b.await("a snapshot", func() bool { return b.State().SnapshotSequence > 0 })
	select {
	case text := <-w.texts:
		t.Errorf("logged: %s", text)
	default:
	}
}

func TestHistoryOutlivesARestart(t *testing.T) {
	b := newBench(t, edf)
	b.engine.Run("a")
	b.source.set(func() {
		b.source.containers = []task.Container{{ID: "a", Name: "name-a", Image: "train"}}
		b.source.tasks = []task.Task{{ID: "t", ContainerID: "a", GPUs: []string{gpu0}, State: task.Running, Start: task.Mark{Time: epoch}}}
	})
	b.await("seen", func() bool { return b.State().SnapshotSequence >= 1 })
	b.source.set(func() {
		done := b.source.tasks[0]
		done.State, done.End = task.Ended, &task.Mark{Time: done.Start.Time.Add(3 * time.Second)}
		b.source.tasks, b.source.ended = nil, []task.Task{done}
	})
	b.await("the end is seen", func() bool { return b.State().SnapshotSequence >= 2 })
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(b.dir, "history.json"))
	if err != nil || !strings.Contains(string(raw), `"train"`) || !strings.Contains(string(raw), `"seconds":3`) {
		t.Errorf("%v %s", err, raw)
	}
}
