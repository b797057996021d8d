package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/enforce/enforcetest/realdocker"
	"github.com/laxity/laxity/actuator/journal"
)

func open(t *testing.T, o docker.Options) (*docker.Enforcer, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Journal = j
	e, err := docker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e, j
}

func TestConformanceOnAFake(t *testing.T) {
	enforcetest.Run(t, func(t *testing.T) enforcetest.Subject {
		engine := enforcetest.NewEngine()
		e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
		n := 0
		return enforcetest.Subject{
			Enforcer: e, Journal: j,
			Run: func(*testing.T) string {
				n++
				id := fmt.Sprintf("c%d", n)
				engine.Run(id)
				return id
			},
			Remove:    func(_ *testing.T, id string) { engine.Remove(id) },
			SetPaused: func(_ *testing.T, id string, paused bool) { engine.SetPaused(id, paused) },
			Stopped:   func(_ *testing.T, id string) bool { _, frozen := engine.Paused(id); return frozen },
		}
	})
}

func TestConformanceOnDocker(t *testing.T) {
	real := realdocker.New(t)
	enforcetest.Run(t, func(t *testing.T) enforcetest.Subject {
		e, j := open(t, docker.Options{Engine: real.Client})
		return enforcetest.Subject{
			Enforcer: e, Journal: j,
			Run:       func(t *testing.T) string { id, _ := real.Run(t, nil); return id },
			Remove:    real.Remove,
			SetPaused: real.SetPaused,
			Stopped: func(t *testing.T, id string) bool {
				pid, err := real.PID(id)
				if err != nil {
					t.Fatal(err)
				}
				frozen, err := docker.Kernel{Proc: "/proc"}.Frozen(pid)
				if err != nil {
					t.Fatalf("read the freezer: %v", err)
				}
				return frozen
			},
		}
	})
}

// The engine says "already paused" of a container that runs.
func TestFalseAlreadyPaused(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	lied := false
	engine.FailWith(func(call, _ string) error {
		if call == "pause" && !lied {
			lied = true
			return fmt.Errorf("Container c is already paused: %w", errdefs.ErrConflict)
		}
		return nil
	})
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	if p, f := engine.Paused("c"); !p || !f {
		t.Errorf("engine %v kernel %v", p, f)
	}
	if _, ok, _ := j.Get("c"); !ok {
		t.Error("not on record")
	}
}

// The engine says "not paused" of a container that the kernel has frozen.
func TestFalseNotPaused(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	engine.Lie("c", false, true)
	if err := e.Unpause(context.Background(), "c"); err != nil {
		t.Fatal(err)
	}
	if p, f := engine.Paused("c"); p || f {
		t.Errorf("engine %v kernel %v", p, f)
	}
	if _, ok, _ := j.Get("c"); ok {
		t.Error("still on record")
	}
}

// The engine was killed in the midst of our pause: its containerd knows of it, it does
// not, and it can neither pause nor unpause the container until that ends.
func TestEngineThatForgotAPause(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
	ctx := context.Background()
	if err := e.Pause(ctx, enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	engine.Lie("c", false, true)
	engine.FailWith(func(call, _ string) error {
		switch call {
		case "pause":
			return errors.New("Cannot pause container c: cannot pause a paused container: unknown")
		case "unpause":
			return errors.New("Container c is not paused")
		}
		return nil
	})
	if s, err := e.Status(ctx, "c"); err != nil || !s.Paused || s.Verified {
		t.Errorf("%+v, %v; what the kernel has stopped is paused", s, err)
	}
	for _, stop := range []bool{false, true, false} {
		do := func() error { return e.Unpause(ctx, "c") }
		if stop {
			do = func() error { return e.Pause(ctx, enforcetest.HoldOf("c")) }
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		_, recorded, _ := j.Get("c")
		if _, frozen := engine.Paused("c"); frozen != stop || recorded != stop {
			t.Errorf("want stopped %v: frozen %v, on record %v", stop, frozen, recorded)
		}
	}
}

// Who is frozen and not on record was not frozen by us.
func TestFrozenBySomebodyElse(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	engine.Lie("c", false, true)
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrForeign) {
		t.Errorf("error %v", err)
	}
	if _, ok, _ := j.Get("c"); ok {
		t.Error("on record")
	}
}

// A person is faster between our look and our call.
func TestPersonPausesAtTheSameTime(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: racing{engine}, Freezer: engine})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrForeign) {
		t.Fatalf("error %v", err)
	}
	if _, ok, _ := j.Get("c"); ok {
		t.Error("a person's pause is on our record")
	}
	if p, _ := engine.Paused("c"); !p {
		t.Error("a person's pause was undone")
	}
}

type racing struct{ *enforcetest.Engine }

func (r racing) ContainerPause(ctx context.Context, id string) error {
	r.SetPaused(id, true)
	return r.Engine.ContainerPause(ctx, id)
}

// The record stands before the engine is called.
// hasty is an engine with a person who undoes each pause and unpause as soon as the
// engine has carried it out, before we have looked at the kernel.
type hasty struct{ *enforcetest.Engine }

func (h hasty) ContainerPause(ctx context.Context, id string) error {
	err := h.Engine.ContainerPause(ctx, id)
	h.SetPaused(id, false)
	return err
}

func (h hasty) ContainerUnpause(ctx context.Context, id string) error {
	err := h.Engine.ContainerUnpause(ctx, id)
	h.SetPaused(id, true)
	return err
}

func TestPersonUndoesItAtOnce(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: hasty{engine}, Freezer: engine, FreezeTimeout: 10 * time.Millisecond})
	if err := e.Pause(t.Context(), enforce.Hold{ContainerID: "c"}); err != nil {
		t.Errorf("pause: %v", err)
	}
	if paused, frozen := engine.Paused("c"); paused || frozen {
		t.Error("a person's unpause was overruled")
	}
	if _, recorded, err := j.Get("c"); !recorded || err != nil {
		t.Errorf("on record, so that it is seen as a person's: %v %v", recorded, err)
	}
	engine.SetPaused("c", true)
	if err := e.Unpause(t.Context(), "c"); err != nil {
		t.Errorf("unpause: %v", err)
	}
	if paused, frozen := engine.Paused("c"); !paused || !frozen {
		t.Error("a person's pause was overruled")
	}
	if _, recorded, err := j.Get("c"); recorded || err != nil {
		t.Errorf("still on record: %v", err)
	}
}

func TestOnRecordBeforeTheCall(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	var j *journal.Journal
	recorded := false
	engine.FailWith(func(call, id string) error {
		if call == "pause" {
			_, recorded, _ = j.Get(id)
		}
		return nil
	})
	var e *docker.Enforcer
	e, j = open(t, docker.Options{Engine: engine, Freezer: engine})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err != nil || !recorded {
		t.Errorf("recorded %v, error %v", recorded, err)
	}
}

// The engine goes away in the middle: the record stays until it is back.
func TestEngineDownKeepsTheRecord(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine, Attempts: 2})
	down := func(string, string) error { return context.DeadlineExceeded }

	engine.FailWith(down)
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if _, ok, _ := j.Get("c"); ok {
		t.Error("on record though the engine was never asked to pause")
	}
	engine.FailWith(nil)
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	engine.FailWith(down)
	if err := e.Unpause(context.Background(), "c"); !errors.Is(err, enforce.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if _, ok, _ := j.Get("c"); !ok {
		t.Error("off the record while it is paused")
	}
}

// The engine does not answer a pause, and carries it out later.
func TestUnansweredPauseStaysOnRecord(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	engine.FailWith(func(call, _ string) error {
		if call == "pause" {
			return context.DeadlineExceeded
		}
		return nil
	})
	e, j := open(t, docker.Options{Engine: engine, Freezer: engine, Attempts: 2})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	engine.SetPaused("c", true)
	if _, ok, _ := j.Get("c"); !ok {
		t.Fatal("off the record")
	}
	if err := e.Unpause(context.Background(), "c"); err != nil {
		t.Error(err)
	}
	if p, _ := engine.Paused("c"); p {
		t.Error("stuck")
	}
}

// A kernel that never follows: bounded, and the container is released again.
func TestFreezerNeverFollows(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	e, j := open(t, docker.Options{Engine: engine, Freezer: stuck{}, FreezeTimeout: 10 * time.Millisecond, Attempts: 2})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err == nil {
		t.Error("no error")
	}
	if p, _ := engine.Paused("c"); p {
		t.Error("it stays paused")
	}
	if _, ok, _ := j.Get("c"); ok {
		t.Error("it stays on record")
	}
}

type stuck struct{}

func (stuck) Frozen(int) (bool, error)    { return false, nil }
func (stuck) Set(string, int, bool) error { return nil }

func TestUnreachableEngine(t *testing.T) {
	c, err := docker.Dial("tcp://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	e, _ := open(t, docker.Options{Engine: c})
	_, err = e.Status(context.Background(), "c")
	if !errors.Is(err, enforce.ErrUnavailable) || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("error %v", err)
	}
}

// The calls that a socket proxy has to allow, and none else.
func TestCallsThatAProxyMustAllow(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/json"):
			_, _ = fmt.Fprint(w, `{"Id":"c","State":{"Running":true,"Pid":1}}`)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	c, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	e, _ := open(t, docker.Options{Engine: c, Freezer: unreadableFreezer{}})
	if err := e.Pause(context.Background(), enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := []string{"GET /v1.41/containers/c/json", "HEAD /_ping", "POST /v1.41/containers/c/pause"}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("calls %v", got)
	}
}

type unreadableFreezer struct{}

func (unreadableFreezer) Frozen(int) (bool, error)    { return false, errors.New("not here") }
func (unreadableFreezer) Set(string, int, bool) error { return errors.New("not here") }
