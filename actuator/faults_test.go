package actuator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
)

func TestEngineUnreachable(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.engine.FailWith(func(string, string) error { return context.DeadlineExceeded })
	b.send(contention(webhook.Firing))
	d := b.decided("of a failed pause", func(d decision.Decision) bool { return d.Kind == decision.Pause && d.Result == decision.Failed })
	if !strings.Contains(d.Error, "is it running") {
		t.Errorf("error without a hint: %s", d.Error)
	}
	b.engine.FailWith(nil)
	b.awaitPaused("b", "a", "b")
	b.engine.FailWith(func(call, _ string) error {
		if call == "unpause" {
			return context.DeadlineExceeded
		}
		return nil
	})
	b.source.end("a")
	b.decided("of a failed unpause", func(d decision.Decision) bool { return d.Kind == decision.Unpause && d.Result == decision.Failed })
	b.engine.FailWith(nil)
	b.awaitPaused("", "a", "b")
}

// The engine hangs, is given up, answers again that the container runs, and only then
// carries out what it was asked for.
func TestPauseThatComesAfterAllDoubt(t *testing.T) {
	var later atomic.Int64
	b := newBench(t, func(o *actuator.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	b.run("a", "b")
	looks := 0
	b.engine.FailWith(func(call, id string) error {
		switch {
		case call == "pause":
			return context.DeadlineExceeded
		case call == "inspect" && id == "b" && later.Load() > 0:
			if looks++; looks == 3 {
				b.engine.SetPaused("b", true)
			}
		}
		return nil
	})
	b.send(contention(webhook.Firing))
	b.decided("of a failed pause", func(d decision.Decision) bool { return d.Kind == decision.Pause && d.Result == decision.Failed })
	later.Store(int64(time.Minute / 4)) // beyond all doubt, and within its lease
	b.decided("it is released", func(d decision.Decision) bool {
		return d.Kind == decision.Unpause && d.Result == decision.Done && strings.Contains(d.Reason, "its pause had failed")
	})
	if b.isPaused("b") {
		t.Error("it is stuck")
	}
}

// Actuator and guardian died at once. The next actuator releases each container on record,
// though it has no facts and no guardian, and with a record that cannot be read.
func TestStartUndoesWhatIsOnRecord(t *testing.T) {
	b := newBench(t, nil)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"whole", "damaged"} {
		b.engine.Run(id)
		h := enforcetest.HoldOf(id)
		h.Expires = time.Now().Add(time.Hour)
		if err := j.Put(h); err != nil {
			t.Fatal(err)
		}
		b.engine.SetPaused(id, true)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "holds", "damaged.json"), []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.source.set(func() { b.source.err = errors.New("no facts") })
	b.restart(nil)
	b.awaitPaused("", "whole", "damaged")
	b.await("nothing is on record", func() bool { holds, err := j.List(); return err == nil && len(holds) == 0 })
}

// The same of a container that is off its GPU.
func TestStartBringsBackWhatIsSwappedOut(t *testing.T) {
	b := newMemoryBench(t, true, nil)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.run("a")
	b.swapper.out["a"] = enforce.Swapped{ContainerID: "a", Container: "name-a", Bytes: map[string]uint64{gpu0: 500}, Since: time.Now(), Stage: enforce.Suspended}
	b.engine.SetPaused("a", true)
	b.restart(func(o *actuator.Options) {
		o.Metrics = collector.New()
		o.Mechanisms.NewSwapper = func() (enforce.Swapper, error) { return b.swapper, nil }
		o.Mechanisms.NewMemoryGuard = func(d memory.Decider) (arbiter.MemoryGuard, error) { return &fakeGuard{decider: d}, nil }
	})
	b.await("it is back", func() bool { return b.held("a") == 500 && !b.isPaused("a") })
}

// Whoever switches swapping off has those back that are out, and none goes out any more.
func TestSwapOffBringsBackWhatIsSwappedOut(t *testing.T) {
	b := newMemoryBench(t, true, byP3)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.run("a")
	b.swapper.out["a"] = enforce.Swapped{ContainerID: "a", Container: "name-a", Bytes: map[string]uint64{gpu0: 500}, Since: time.Now(), Stage: enforce.Suspended}
	b.engine.SetPaused("a", true)
	folder := checkpoint.Folder(b.dir)
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "a.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.restart(func(o *actuator.Options) {
		byP3(o)
		o.Metrics = collector.New()
		o.Mechanisms.Swap = config.MemoryOff
		o.Mechanisms.NewSwapper = func() (enforce.Swapper, error) { return b.swapper, nil }
		o.Mechanisms.NewMemoryGuard = func(d memory.Decider) (arbiter.MemoryGuard, error) { b.guard.decider = d; return b.guard, nil }
	})
	b.await("it is back", func() bool { return b.held("a") == 500 && !b.isPaused("a") })
	b.begin("b", 520)
	b.want(b.allocate("b", 500), memory.Grant)
	b.send(alert(webhook.Firing, "GPUMemoryPressure", "relieve", "gpu", gpu0))
	b.await("b is paused", func() bool { return b.isPaused("b") })
	if b.held("b") != 500 {
		t.Error("it was swapped out")
	}
}

func TestAlertWaitsForTheExporter(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.await("first snapshot", func() bool { return b.State().SnapshotSequence > 0 })
	b.source.set(func() { b.source.err = errors.New("exporter is away") })
	b.send(contention(webhook.Firing))
	b.await("the trouble is seen", func() bool { return b.State().Trouble != "" })
	if code, body := b.get("/-/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "exporter is away") {
		t.Errorf("it does not say why it is not ready: %d %s", code, body)
	}
	b.await("the alert stays in the inbox", func() bool { return b.State().Inbox == 1 })
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.source.set(func() { b.source.err = nil })
	b.restart(nil) // accepted is accepted
	b.awaitPaused("b", "a", "b")
}

// Whatever comes, in whatever order and however often: in the end nothing is
// stuck.
func TestReplayedAlerts(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := []webhook.Alert{contention(webhook.Firing), contention(webhook.Resolved)}
	for i := range 3 {
		a := alert(webhook.Firing, "User", "pause", "container", fmt.Sprintf("name-%c", 'a'+i))
		all = append(all, a)
		a.Status = webhook.Resolved
		all = append(all, a)
	}
	for range 100 {
		b.send(all[r.IntN(len(all))])
	}
	for i := 1; i < len(all); i += 2 {
		b.send(all[i])
	}
	b.awaitHandled()
	b.source.end("a")
	b.source.end("b")
	b.awaitPaused("", "a", "b", "c")
	b.await("no lease is left", func() bool { return len(b.State().Leases) == 0 })
}

func TestStateHasNoNull(t *testing.T) {
	b := newBench(t, nil)
	b.await("it is ready", func() bool { return b.State().Ready })
	if _, body := b.get("/api/v1/state"); strings.Contains(body, "null") {
		t.Errorf("a list that is empty is null: %s", body)
	}
}

func TestEndpoints(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	b.await("the hold shows", func() bool { return len(b.State().Holds) == 1 })

	if code, body := b.get("/"); code != 200 || !strings.Contains(body, "waits for name-a on GPU 0") {
		t.Errorf("page: %d\n%s", code, body)
	}
	code, body := b.get("/api/v1/state")
	var s state.State
	if err := json.Unmarshal([]byte(body), &s); code != 200 || err != nil || len(s.Holds) != 1 || !s.GPUs[0].Arbitrated {
		t.Errorf("state: %d %v\n%s", code, err, body)
	}
	code, body = b.get("/api/v1/decisions?container=name-b&limit=1")
	var ds []decision.Decision
	if err := json.Unmarshal([]byte(body), &ds); code != 200 || err != nil || len(ds) != 1 || ds[0].Kind != decision.Pause {
		t.Errorf("decisions: %d %v\n%s", code, err, body)
	}
	if code, _ = b.get("/api/v1/decisions?limit=x"); code != 400 {
		t.Errorf("bad limit: %d", code)
	}
	for _, path := range []string{"/-/healthy", "/-/ready", "/metrics"} {
		if code, body := b.get(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := b.get("/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	b := newBench(t, nil)
	post := func(remote, origin string) int {
		req := httptest.NewRequest(http.MethodPost, "/api/v1/alerts", strings.NewReader(`{"version":"4","alerts":[]}`))
		req.RemoteAddr, req.Host = remote, "localhost:9871"
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		rec := httptest.NewRecorder()
		b.Handler().ServeHTTP(rec, req)
		return rec.Code
	}
	if code := post("192.0.2.7:1234", ""); code != http.StatusForbidden {
		t.Errorf("another machine: %d", code)
	}
	if code := post("127.0.0.1:1234", "https://evil.example"); code != http.StatusForbidden {
		t.Errorf("another site: %d", code)
	}
	for _, remote := range []string{"127.0.0.1:1234", "[::1]:1234", "@"} {
		if code := post(remote, ""); code != http.StatusOK {
			t.Errorf("%s: %d", remote, code)
		}
	}
}

func TestReload(t *testing.T) {
	next := config.Config{Policy: "p3"}
	b := newBench(t, func(o *actuator.Options) { o.Load = func() (config.Config, error) { return next, nil } })
	if err := b.Reload(context.Background()); err != nil || b.State().Policy != "p3" {
		t.Fatalf("%v %+v", err, b.State())
	}
	next.Policy = "best"
	if err := b.Reload(context.Background()); err == nil || b.State().Policy != "p3" {
		t.Fatalf("a bad one was taken: %v %+v", err, b.State())
	}
}

// An allocation that waits is denied by the memory_wait of the latest reload, and with a reason: the guard's own bound is later.
func TestReloadBoundsWhatWaits(t *testing.T) {
	next := config.Config{MemoryWait: 30 * time.Minute}
	b := newMemoryBench(t, true, func(o *actuator.Options) { o.Load = func() (config.Config, error) { return next, nil } })
	if err := b.Reload(context.Background()); err != nil || b.guard.maxWait <= next.MemoryWait {
		t.Errorf("%v; the guard denies after %v", err, b.guard.maxWait)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []actuator.Options{
		{},
		{StateDir: t.TempDir(), Source: newSource(), Config: config.Config{Policy: "best"}},
		{StateDir: t.TempDir(), Source: newSource(), Config: config.Config{Arbitrate: "maybe"}},
		{StateDir: t.TempDir(), Source: newSource(), Config: config.Config{MaxHold: time.Millisecond}},
		{StateDir: t.TempDir(), Source: newSource(), Guardian: "angel"},
	} {
		if _, err := actuator.New(o); err == nil {
			t.Errorf("taken: %+v", o)
		}
	}
	a, err := actuator.New(actuator.Options{StateDir: t.TempDir(), Source: newSource(), Guardian: watch.Require})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "--guardian=spawn") {
		t.Errorf("without a guardian: %v", err)
	}
}
