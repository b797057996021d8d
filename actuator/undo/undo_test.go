package undo_test

import (
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
	choice := engine.Choice{Kind: engine.Containerd, Address: e.Address}
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
	plain, err := e.Run(t.Context(), "", containerd.Spec{Name: "plain", Image: containerdtest.Image})
	if err != nil {
		t.Fatal(err)
	}
	_, inPod, err := e.RunPod(t.Context(), containerd.Pod{Namespace: "ns", Name: "pod"}, containerd.Spec{Name: "main", Image: containerdtest.Image})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{plain, inPod} {
		if err := p.Pause(t.Context(), enforcetest.HoldOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := undo.RunGuardian(t.Context(), undo.Options{StateDir: dir, Engine: choice, Once: true, RunDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{plain, inPod} {
		if s, err := p.Status(t.Context(), id); err != nil || s.Paused || !s.Verified {
			t.Errorf("%s afterwards: %+v, %v", id, s, err)
		}
	}
	if left, err := j.List(); err != nil || len(left) > 0 {
		t.Errorf("on record afterwards: %v, %v", left, err)
	}
}
