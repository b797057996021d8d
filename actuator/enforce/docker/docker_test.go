package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"github.com/laxity/laxity/actuator/enforce/pause"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/internal/daemon/podman"
	"github.com/laxity/laxity/internal/enginetest"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/needtest"
)

func open(t *testing.T, o docker.Options) (*docker.Enforcer, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, j, o), j
}

func openOn(t *testing.T, j *journal.Journal, o docker.Options) *docker.Enforcer {
	t.Helper()
	o.Journal, o.CallTimeout = j, time.Minute
	e, err := docker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
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

func TestConformanceOnEngines(t *testing.T) {
	enginetest.Each(t, func(t *testing.T) { conforms(t, freezer.Kernel{Proc: "/proc"}) })
}

// Podman as an ordinary user pauses by control groups of version 2.
func TestConformanceRootless(t *testing.T) {
	enginetest.Rootless(t)
	conforms(t, unified{t})
}

// unified is the freezer of version 2, also on a machine that has that of version 1 besides.
type unified struct{ t *testing.T }

func (u unified) State(id string, pid int) (freezer.State, error) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return freezer.Thawed, err
	}
	proc := u.t.TempDir()
	_, group, _ := strings.Cut("\n"+string(groups), "\n0::")
	for path, text := range map[string]string{"7/cgroup": "0::" + group, "self/mountinfo": ""} {
		if text == "" {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				return freezer.Thawed, err
			}
			text = string(mounts)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(proc, path)), 0o755), os.WriteFile(filepath.Join(proc, path), []byte(text), 0o600)); err != nil {
			return freezer.Thawed, err
		}
	}
	return freezer.Kernel{Proc: proc}.State(id, 7)
}

func (u unified) Set(string, int, bool) error { return errors.New("not asked for here") }

func conforms(t *testing.T, kernel pause.Freezer) {
	real := realdocker.New(t)
	enforcetest.Run(t, func(t *testing.T) enforcetest.Subject {
		e, j := open(t, docker.Options{Engine: real.Client, Freezer: kernel})
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
				state, err := kernel.State(id, pid)
				if err != nil {
					t.Fatalf("read the freezer: %v", err)
				}
				return state == freezer.Frozen
			},
		}
	})
}

// Of several actuators on one engine one acts: the engine's name is the same for all, and always.
func TestNameOfTheEngine(t *testing.T) {
	enginetest.Each(t, func(t *testing.T) {
		e, _ := open(t, docker.Options{Engine: realdocker.New(t).Client})
		first, err := e.Engine(t.Context())
		if err != nil || first == "" {
			t.Fatal(first, err)
		}
		if second, err := e.Engine(t.Context()); err != nil || second != first {
			t.Errorf("first %q, then %q, %v", first, second, err)
		}
	})
}

// podman.socket starts Podman's service when somebody asks, and it ends when nobody does: what is
// on record is released all the same.
func TestServiceThatEndsWhenIdle(t *testing.T) {
	service, err := podman.NewActivated(t.Context(), 1)
	if err != nil {
		needtest.Podman.Skip(t, err)
	}
	enginetest.Use(t, service)
	real := realdocker.New(t)
	e, j := open(t, docker.Options{Engine: real.Client})
	id, _ := real.Run(t, nil)
	// ended waits until the service has gone, and says how often it had started.
	ended := func() int {
		t.Helper()
		starts := service.Starts()
		for late := time.Now().Add(time.Minute); service.Running(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatal("the service does not end when it is idle")
			}
		}
		return starts
	}
	starts := ended()
	if err := e.Pause(t.Context(), enforcetest.HoldOf(id)); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Status(t.Context(), id); err != nil || !s.Paused || !s.Verified {
		t.Errorf("paused: %+v %v", s, err)
	}
	ended()
	if err := e.Unpause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if s, err := e.Status(t.Context(), id); err != nil || s.Paused || !s.Verified {
		t.Errorf("unpaused: %+v %v", s, err)
	}
	if _, recorded, err := j.Get(id); recorded || err != nil {
		t.Errorf("still on record: %v", err)
	}
	if service.Starts() < starts+2 {
		t.Errorf("the service has started %d times, and %d before", service.Starts(), starts)
	}
}

// Podman removes the container while it answers, and says so in its own way.
func TestGoneWhilePodmanAnswers(t *testing.T) {
	for _, failing := range []string{"inspect", "pause"} {
		engine := enforcetest.NewEngine()
		engine.Run("c")
		engine.FailWith(func(call, _ string) error {
			if call == failing {
				return errors.New("Error response from daemon: container c does not exist in database: no such container")
			}
			return nil
		})
		e, j := open(t, docker.Options{Engine: engine, Freezer: engine})
		if err := e.Pause(t.Context(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrGone) {
			t.Errorf("%s fails: %v; want ErrGone", failing, err)
		}
		if _, recorded, err := j.Get("c"); recorded || err != nil {
			t.Errorf("%s fails: on record, %v", failing, err)
		}
	}
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
	if err := e.Pause(t.Context(), record.Hold{ContainerID: "c"}); err != nil {
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

func (stuck) State(string, int) (freezer.State, error) { return freezer.Thawed, nil }
func (stuck) Set(string, int, bool) error              { return nil }

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

func (unreadableFreezer) State(string, int) (freezer.State, error) {
	return freezer.Thawed, errors.New("not here")
}
func (unreadableFreezer) Set(string, int, bool) error { return errors.New("not here") }
