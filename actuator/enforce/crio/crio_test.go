package crio_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/crio"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/cri/critest"
	own "github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/freezer"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is an engine with an enforcer on it.
type rig struct {
	enforcetest.Subject
	enforcer *crio.Enforcer
	dir      string // of the record
	down, up func(t *testing.T)
}

func newEnforcer(t testing.TB, address, proc string) (*crio.Enforcer, *journal.Journal, string) {
	t.Helper()
	c, err := cri.New(address)
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	dir := t.TempDir()
	j, err := journal.Open(dir)
	check(t, err)
	e, err := crio.New(crio.Options{Client: c, Journal: j, Proc: proc})
	check(t, err)
	return e, j, dir
}

var theirs = critest.Pod{Namespace: "ns", Name: "pod", Container: "c", Annotations: map[string]string{"laxity.dev/deadline": "9s"}}

// onRecorded is a rig on a recorded server.
func onRecorded(t *testing.T, s *critest.Server) rig {
	e, j, dir := newEnforcer(t, s.Address, s.Proc)
	return rig{enforcetest.Subject{
		Enforcer: e, Journal: j,
		Run:       func(*testing.T) string { return s.Run(theirs) },
		Remove:    func(_ *testing.T, id string) { s.Remove(id) },
		SetPaused: func(_ *testing.T, id string, paused bool) { s.SetFrozen(id, paused) },
		Stopped:   func(_ *testing.T, id string) bool { return s.Frozen(id) },
	}, e, dir, func(*testing.T) { s.Down() }, func(*testing.T) { s.Up() }}
}

// onContainerd is a rig on containerd's CRI service, with real processes and the real freezer.
func onContainerd(t *testing.T, c *own.Engine) rig {
	e, j, dir := newEnforcer(t, c.Address, "/proc")
	kernel := freezer.Kernel{Proc: "/proc"}
	set := func(t *testing.T, id string, frozen bool) {
		g, err := kernel.Find(id)
		check(t, err)
		check(t, g.Set(frozen))
		for asked := frozen; asked == frozen; { // the kernel takes a moment, in which an enforcer may undo it
			is, err := g.Frozen()
			check(t, err)
			if is == frozen {
				return
			}
			asked, err = g.Asked()
			check(t, err)
		}
	}
	return rig{enforcetest.Subject{
		Enforcer: e, Journal: j,
		Run: func(t *testing.T) string {
			_, id, err := c.RunPod(t.Context(), own.Pod{Namespace: "ns", Name: fmt.Sprintf("pod-%d", time.Now().UnixNano()), Annotations: theirs.Annotations},
				own.Spec{Name: "c", Image: containerdtest.Image})
			check(t, err)
			return id
		},
		Remove: func(t *testing.T, id string) {
			set(t, id, false) // what is frozen may not be stopped
			check(t, errors.Join(c.StopInPod(t.Context(), id, 0), c.RemoveInPod(t.Context(), id)))
		},
		SetPaused: set,
		Stopped: func(t *testing.T, id string) bool {
			g, err := kernel.Find(id)
			check(t, err)
			frozen, err := g.Frozen()
			check(t, err)
			return frozen
		},
	}, e, dir, func(t *testing.T) { check(t, c.Kill()) }, func(t *testing.T) { check(t, c.Start(t.Context())) }}
}

// each runs a test on both.
func each(t *testing.T, test func(t *testing.T, fresh func(t *testing.T) rig)) {
	t.Run("recorded", func(t *testing.T) {
		s := critest.New(t)
		test(t, func(t *testing.T) rig { return onRecorded(t, s) })
	})
	t.Run("containerd", func(t *testing.T) {
		c := containerdtest.New(t)
		test(t, func(t *testing.T) rig { return onContainerd(t, c) })
	})
}

func TestConformance(t *testing.T) {
	t.Run("recorded, in a namespace", func(t *testing.T) {
		s := critest.New(t)
		s.InNamespace()
		enforcetest.Run(t, func(t *testing.T) enforcetest.Subject { return onRecorded(t, s).Subject })
	})
	each(t, func(t *testing.T, fresh func(t *testing.T) rig) {
		enforcetest.Run(t, func(t *testing.T) enforcetest.Subject { return fresh(t).Subject })
	})
}

// The labels by which --containers.label chooses are those that the exporter reads.
func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) rig) {
		r := fresh(t)
		began := time.Now()
		s, err := r.enforcer.Status(t.Context(), r.Run(t))
		if err != nil || s.Labels["laxity.deadline"] != "9s" || s.Labels["io.kubernetes.pod.namespace"] != "ns" {
			t.Errorf("status %+v, %v", s, err)
		}
		if d := s.Started.Sub(began); d < -time.Second {
			t.Errorf("started %v after the test", d)
		}
		name, err := r.enforcer.Engine(t.Context())
		if kind, boot, _ := strings.Cut(strings.TrimPrefix(name, "cri-"), "-"); err != nil || kind != "o" && kind != "containerd" || boot == "" {
			t.Errorf("engine %q, %v", name, err)
		}
	})
}

// The engine is away. What is stopped is released all the same, also by an enforcer that has never
// seen it, as the guardian's. Nothing new is stopped, and what may not have been stopped yet stays
// on record.
func TestEngineAway(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) rig) {
		r, guardians := fresh(t), fresh(t)
		ours, theGuardians, later, early := r.Run(t), r.Run(t), r.Run(t), r.Run(t)
		check(t, r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(ours)))
		check(t, guardians.Journal.Put(enforcetest.HoldOf(theGuardians)))
		r.SetPaused(t, theGuardians, true)
		check(t, r.Journal.Put(enforcetest.HoldOf(early)))
		r.down(t)
		check(t, r.Enforcer.Unpause(t.Context(), ours))
		check(t, guardians.Enforcer.Unpause(t.Context(), theGuardians))
		if r.Stopped(t, ours) || r.Stopped(t, theGuardians) {
			t.Error("not released")
		}
		if err := r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(later)); !errors.Is(err, enforce.ErrUnavailable) || r.Stopped(t, later) {
			t.Errorf("paused without the engine: %v", err)
		}
		if err := r.Enforcer.Unpause(t.Context(), early); !errors.Is(err, enforce.ErrUnavailable) {
			t.Errorf("unpause of what runs, without the engine: %v", err)
		}
		for id, want := range map[string]bool{ours: false, later: false, early: true} {
			if _, recorded, err := r.Journal.Get(id); recorded != want || err != nil {
				t.Errorf("on record %v, want %v (%v)", recorded, want, err)
			}
		}
		r.up(t)
		err := r.Enforcer.Unpause(t.Context(), early)
		for errors.Is(err, enforce.ErrUnavailable) {
			err = r.Enforcer.Unpause(t.Context(), early)
		}
		if _, recorded, _ := r.Journal.Get(early); err != nil || recorded {
			t.Errorf("with the engine again: %v, on record %v", err, recorded)
		}
	})
}

// It is on record before the freezer is set: where it cannot be written, nothing stops.
func TestNoRecordNoPause(t *testing.T) {
	s := critest.New(t)
	r := onRecorded(t, s)
	id := r.Run(t)
	check(t, r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(id)))
	check(t, r.Enforcer.Unpause(t.Context(), id))
	check(t, os.RemoveAll(r.dir))
	if err := r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(id)); err == nil || s.Frozen(id) {
		t.Errorf("without a folder for the record: %v, frozen %v", err, s.Frozen(id))
	}
}

// A process in a call of a driver stops when that returns, which may be long after the record. The
// record does not go before it is sure that it will not.
func TestAboutToStop(t *testing.T) {
	s := critest.New(t)
	for _, away := range []bool{false, true} {
		r := onRecorded(t, s)
		id := r.Run(t)
		check(t, r.Journal.Put(enforcetest.HoldOf(id)))
		s.SetFreezing(id)
		if away {
			s.Down()
		}
		check(t, r.Enforcer.Unpause(t.Context(), id))
		if _, recorded, err := r.Journal.Get(id); !s.Thawed(id) || recorded || err != nil {
			t.Errorf("engine away %v: released %v, on record %v, %v", away, s.Thawed(id), recorded, err)
		}
	}
}

// What the engine refuses is no reason to think that the container is gone.
func TestFaults(t *testing.T) {
	s := critest.New(t)
	r := onRecorded(t, s)
	id := r.Run(t)
	check(t, r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(id)))
	s.FailWith(func(method, _ string) error {
		if method == "ContainerStatus" {
			return status.Error(codes.Internal, "its metadata cannot be read")
		}
		return nil
	})
	if err := r.Enforcer.Unpause(t.Context(), id); err == nil || errors.Is(err, enforce.ErrGone) {
		t.Errorf("unpause: %v", err)
	}
	if _, recorded, _ := r.Journal.Get(id); !recorded {
		t.Error("off the record while it is stopped")
	}
	s.FailWith(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Enforcer.Status(ctx, id); err == nil || errors.Is(err, enforce.ErrGone) {
		t.Errorf("status with an ended context: %v", err)
	}
	check(t, r.Enforcer.Unpause(t.Context(), id))
	other := r.Run(t)
	s.Vanish(other)
	if err := r.Enforcer.Pause(t.Context(), enforcetest.HoldOf(other)); !errors.Is(err, enforce.ErrGone) {
		t.Errorf("pause of what vanished: %v", err)
	}
}
