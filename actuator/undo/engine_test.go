package undo_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/engine"
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

func TestOffWithoutAStateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	err := undo.Off(t.Context(), undo.Options{StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "no state folder at "+dir) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v", err)
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
