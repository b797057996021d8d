package undo_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

// noEngineGiven is an environment that names no engine, as sudo leaves it.
func noEngineGiven(t *testing.T) {
	t.Helper()
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("CONTAINERD_ADDRESS", "")
}

func TestOffUsesTheActuatorsEngine(t *testing.T) {
	pods := engine.Choice{Kind: engine.Containerd, Address: "/x.sock", Namespaces: []string{"k8s.io"}}
	podman := engine.Choice{Kind: engine.Docker, DockerHost: "unix:///run/podman/podman.sock"}
	for name, tt := range map[string]struct {
		recorded    engine.Choice
		recordedEnv string // DOCKER_HOST of the actuator
		given       engine.Choice
		env         string // DOCKER_HOST of laxity off
		want        engine.Choice
		because     string
	}{
		"its flags":            {recorded: pods, want: pods, because: "the last actuator used it"},
		"its environment":      {recordedEnv: podman.DockerHost, want: podman, because: "the last actuator used it"},
		"another one by flags": {recorded: pods, given: podman, want: podman, because: "flag"},
		"by the environment":   {recorded: pods, env: podman.DockerHost, want: podman, because: "DOCKER_HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			noEngineGiven(t)
			dir := t.TempDir()
			t.Setenv("DOCKER_HOST", tt.recordedEnv)
			if err := undo.RecordEngine(dir, tt.recorded); err != nil {
				t.Fatal(err)
			}
			t.Setenv("DOCKER_HOST", tt.env)
			var used engine.Choice
			var why string
			err := undo.Off(t.Context(), undo.Options{StateDir: dir, Engine: tt.given, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
				Using: func(c engine.Choice, because string) { used, why = c, because }})
			if err != nil {
				t.Error(err)
			}
			if !reflect.DeepEqual(used, tt.want) || !strings.Contains(why, tt.because) {
				t.Errorf("used %s (%s), want %s (%s)", used, why, tt.want, tt.because)
			}
		})
	}
}

// An actuator in a pod knows its engine by a path that is not there outside of the pod.
func TestEngineOnRecordIsElsewhereHere(t *testing.T) {
	noEngineGiven(t)
	this := engine.This
	t.Cleanup(func() { engine.This = this })
	engine.This.Exists = func(path string) bool { return path == engine.Sockets[1] }
	dir := t.TempDir()
	if err := undo.RecordEngine(dir, engine.Choice{Kind: engine.Containerd, Address: "/run/engine/containerd.sock"}); err != nil {
		t.Fatal(err)
	}
	var used engine.Choice
	var why string
	err := undo.Off(t.Context(), undo.Options{StateDir: dir, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Using: func(c engine.Choice, because string) { used, why = c, because }})
	if err != nil || used.Address != engine.Sockets[1] || !strings.Contains(why, "/run/engine/containerd.sock is not here") {
		t.Errorf("used %s (%s), %v", used, why, err)
	}
}

func TestEngineOnRecordCannotBeRead(t *testing.T) {
	noEngineGiven(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "engine"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var why string
	err := undo.Off(t.Context(), undo.Options{StateDir: dir, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Using: func(_ engine.Choice, because string) { why = because }})
	if err != nil || !strings.Contains(why, "read which container engine the actuator used") {
		t.Errorf("%v, %q", err, why)
	}
}

// A guardian is older than the actuator that it watches, if that was started again with another
// engine.
func TestGuardianFollowsTheActuatorsEngine(t *testing.T) {
	noEngineGiven(t)
	dir := t.TempDir()
	lock, err := journal.LockWithin(t.Context(), journal.ActuatorLock(dir), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	first := engine.Choice{Kind: engine.Containerd, Address: filepath.Join(dir, "none.sock")}
	then := engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + filepath.Join(dir, "none.sock")}
	if err := undo.RecordEngine(dir, first); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	using, done := make(chan engine.Choice, 2), make(chan error, 1)
	go func() {
		done <- undo.RunGuardian(ctx, undo.Options{StateDir: dir, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
			Using: func(c engine.Choice, _ string) { using <- c }})
	}()
	if c := <-using; !reflect.DeepEqual(c, first) {
		t.Errorf("at first %s", c)
	}
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A hold whose lease ended.
	if err := errors.Join(undo.RecordEngine(dir, then), j.Put(record.Hold{ContainerID: "a", Expires: time.Now().Add(-time.Hour)})); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-using:
		if !reflect.DeepEqual(c, then) {
			t.Errorf("then %s", c)
		}
	case <-time.After(20 * time.Second):
		t.Error("it keeps to the engine of the former actuator")
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, ok, err := j.Get("a"); !ok || err != nil {
		t.Errorf("on record: %v, %v, though no engine answered", ok, err)
	}
}

// dockerAPI is an engine that speaks as much of Docker's API as a release takes, with one container,
// "a", which is paused. It calls onUnpause before it unpauses.
func dockerAPI(t *testing.T, onUnpause func()) engine.Choice {
	t.Helper()
	var paused atomic.Bool
	paused.Store(true)
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.47") })
	mux.HandleFunc("GET /v1.47/containers/a/json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "a", "State": map[string]any{"Running": true, "Paused": paused.Load(), "Pid": 1 << 30}})
	})
	mux.HandleFunc("POST /v1.47/containers/a/unpause", func(w http.ResponseWriter, _ *http.Request) {
		onUnpause()
		paused.Store(false)
		w.WriteHeader(http.StatusNoContent)
	})
	path := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + path}
}

// A starting actuator with another engine releases by the former one what that paused, and only then
// records its own.
func TestChangeOfTheEngine(t *testing.T) {
	pods := engine.Choice{Kind: engine.Containerd, Address: "/none.sock"}
	down := engine.Choice{Kind: engine.Docker, DockerHost: "unix:///none.sock"}
	for name, tt := range map[string]struct {
		former   engine.Choice // that of dockerAPI if empty
		to       engine.Choice // former if empty
		released bool
	}{
		"to another one": {to: pods, released: true},
		"to itself":      {},
		"to another one, and the former is silent": {former: down, to: pods},
	} {
		t.Run(name, func(t *testing.T) {
			noEngineGiven(t)
			dir, unpaused := t.TempDir(), false
			recorded := func() string {
				text, err := os.ReadFile(undo.EngineFile(dir))
				if err != nil {
					t.Error(err)
				}
				return string(text)
			}
			former := tt.former
			if former.Kind == "" {
				former = dockerAPI(t, func() {
					if unpaused = true; !strings.Contains(recorded(), engine.Docker) {
						t.Errorf("released after the new engine was on record: %s", recorded())
					}
				})
			}
			to := tt.to
			if to.Kind == "" {
				to = former
			}
			j, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(undo.RecordEngine(dir, former), j.Put(record.Hold{ContainerID: "a"}),
				undo.ChangeEngine(t.Context(), dir, to, j, slog.New(slog.DiscardHandler))); err != nil {
				t.Fatal(err)
			}
			_, kept, err := j.Get("a")
			if err != nil || unpaused != tt.released || kept == tt.released {
				t.Errorf("unpaused %v, on record %v, %v", unpaused, kept, err)
			}
			if !strings.Contains(recorded(), to.Kind) {
				t.Errorf("on record then: %s", recorded())
			}
		})
	}
}

// A damaged record of the engine keeps no actuator from starting; whoever runs it learns what may be left.
func TestChangeEngineReportsADamagedRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		record func(path string) error
		want   bool
	}{
		"none":    {func(string) error { return nil }, false},
		"damaged": {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, true},
		"no name": {func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.record(undo.EngineFile(dir)); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			c := engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + filepath.Join(dir, "none.sock")}
			if err := undo.ChangeEngine(t.Context(), dir, c, j, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(log.String(), "level=ERROR") && strings.Contains(log.String(), "docker unpause") && strings.Contains(log.String(), undo.EngineFile(dir)); got != tt.want {
				t.Errorf("logged: %s", log.String())
			}
			if text, err := os.ReadFile(undo.EngineFile(dir)); err != nil || !strings.Contains(string(text), engine.Docker) {
				t.Errorf("on record then: %s, %v", text, err)
			}
		})
	}
}

func TestOffWithoutAStateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	err := undo.Off(t.Context(), undo.Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "no state folder at "+dir) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v", err)
	}
}

// Off switches channels on that an actuator of version 0.2 left off, by the path of the state folder.
func TestOffUndoesWhatVersion02Left(t *testing.T) {
	dir, run, m := t.TempDir(), t.TempDir(), channelstest.NewMachine()
	stat, _ := proc.ReadStat("/proc", os.Getpid())
	p := rm.Process{PID: os.Getpid(), Start: stat.Start}
	m.Adopt(p, "GPU-0")
	former, err := channels.New(channels.Options{Driver: m, Dir: channels.Folder(run, statefolder.ByPath(dir)), Deadline: time.Minute, MaxOff: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Apply(t.Context(), channels.Target{Processes: []rm.Process{p}}, channels.Standing{Off: true}); err != nil || m.Off(p) == 0 {
		t.Fatalf("%d off, %v", m.Off(p), err)
	}
	choice := engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + filepath.Join(dir, "none.sock")}
	if err := undo.Off(t.Context(), undo.Options{StateDir: dir, Engine: choice, RunDir: run, Channels: m, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Error(err)
	}
	if n := m.Off(p); n > 0 {
		t.Errorf("%d are off", n)
	}
}

// A driver that is busy for a moment, making contexts say, is asked again, but not for ever: an actuator
// waits for that.
func TestFormerAsksABusyDriverAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		busy  time.Duration
		tries int // how often Former asks, 200 ms apart
		left  int // processes, then
	}{
		"idle":          {tries: 1},
		"refuses twice": {busy: 300 * time.Millisecond, tries: 3},
		"for ever":      {busy: time.Hour, tries: 4, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, run := t.TempDir(), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				m := channelstest.NewMachine()
				stat, _ := proc.ReadStat("/proc", os.Getpid())
				p := rm.Process{PID: os.Getpid(), Start: stat.Start}
				m.Adopt(p, "GPU-0")
				state, err := statefolder.Of(dir)
				if err != nil {
					t.Fatal(err)
				}
				former, err := channels.New(channels.Options{Driver: m, Dir: channels.Folder(run, state), Deadline: time.Minute, MaxOff: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := former.Apply(t.Context(), channels.Target{Processes: []rm.Process{p}}, channels.Standing{Off: true}); err != nil || m.Off(p) == 0 {
					t.Fatalf("%d off, %v", m.Off(p), err)
				}
				began, tries := time.Now(), map[time.Duration]bool{}
				busy := channelstest.Faulty{Driver: m, Before: func(_ context.Context, call string) error {
					after := time.Since(began)
					if call == "switch" {
						tries[after] = true
					}
					if after < tt.busy {
						return errors.New("the driver is busy")
					}
					return nil
				}}
				undo.Former(t.Context(), undo.Options{StateDir: dir, RunDir: run, Channels: busy, Logger: slog.New(slog.DiscardHandler)})
				left, err := former.Pending()
				if err != nil || left != tt.left || (m.Off(p) > 0) != (tt.left > 0) || len(tries) != tt.tries {
					t.Errorf("%d channels are off, %d processes on record, %v; it was asked %v after it began", m.Off(p), left, err, slices.Sorted(maps.Keys(tries)))
				}
			})
		})
	}
}

// Off opens, and mends, nothing of a living actuator's.
func TestOffTouchesNothingOfALivingActuator(t *testing.T) {
	dir := t.TempDir()
	lock, err := journal.LockWithin(t.Context(), journal.ActuatorLock(dir), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if err := undo.Off(t.Context(), undo.Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, undo.ErrActuatorLives) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "holds")); err == nil {
		t.Error("it made the folder of holds")
	}
}
