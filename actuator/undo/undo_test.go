package undo_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/pausing"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/engine"
)

// What an actuator on containerd left paused, in a pod and beside pods, its guardian releases.
func TestGuardianOnContainerd(t *testing.T) {
	e := containerdtest.New(t)
	plain, err := e.Run(t.Context(), "", containerd.Spec{Name: "plain", Image: containerdtest.Image})
	if err != nil {
		t.Fatal(err)
	}
	choice := engine.Choice{Kind: engine.Containerd, Address: e.Address}
	releases(t, choice, guardian, plain, inPod(t, e))
	t.Run("off, by the engine on record", func(t *testing.T) {
		noEngineGiven(t)
		releases(t, choice, func(ctx context.Context, o undo.Options) error {
			if err := undo.RecordEngine(o.StateDir, o.Engine); err != nil {
				return err
			}
			o.Engine = engine.Choice{}
			return undo.Off(ctx, o)
		}, plain)
	})
}

// What an actuator left paused by the freezer, because its engine has the CRI alone, its guardian
// releases, and so does laxity off.
func TestReleaseOnCRI(t *testing.T) {
	e := containerdtest.New(t)
	choice := engine.Choice{Kind: engine.CRIO, CRIOAddress: e.Address}
	t.Run("guardian", func(t *testing.T) { releases(t, choice, guardian, inPod(t, e), inPod(t, e)) })
	t.Run("off", func(t *testing.T) { releases(t, choice, undo.Off, inPod(t, e)) })
	t.Run("off, without the engine", func(t *testing.T) {
		releases(t, choice, func(ctx context.Context, o undo.Options) error {
			if err := e.Kill(); err != nil {
				return err
			}
			return errors.Join(undo.Off(ctx, o), e.Start(t.Context()))
		}, inPod(t, e))
	})
}

func guardian(ctx context.Context, o undo.Options) error {
	o.Once = true
	return undo.RunGuardian(ctx, o)
}

func inPod(t *testing.T, e *containerd.Engine) string {
	t.Helper()
	_, id, err := e.RunPod(t.Context(), containerd.Pod{Namespace: "ns", Name: "pod-" + containerd.RandomID()[:8]}, containerd.Spec{Name: "main", Image: containerdtest.Image})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// releases pauses containers as an actuator does, and expects that they run after by.
func releases(t *testing.T, choice engine.Choice, by func(context.Context, undo.Options) error, ids ...string) {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := pausing.Open(choice, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	for _, id := range ids {
		if err := p.Pause(t.Context(), enforcetest.HoldOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if s, err := p.Status(t.Context(), id); err != nil || !s.Paused || !s.Verified {
			t.Fatalf("%s paused: %+v, %v", id, s, err)
		}
	}
	if err := by(t.Context(), undo.Options{StateDir: dir, Engine: choice, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if s, err := p.Status(t.Context(), id); err != nil || s.Paused || !s.Verified {
			t.Errorf("%s afterwards: %+v, %v", id, s, err)
		}
	}
	if left, err := j.List(); err != nil || len(left) > 0 {
		t.Errorf("on record afterwards: %v, %v", left, err)
	}
}
