package docker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/internal/freezer"
)

// errNotRunning is what Docker answers to a pause of a container that is frozen, and that it takes to run.
var errNotRunning = errors.New("cannot pause container c: OCI runtime pause failed: container not running")

// frozenRig is an enforcer on container c of a fake engine.
type frozenRig struct {
	*enforcetest.Engine
	*docker.Enforcer
	recorded func() bool
}

func newFrozenRig(t *testing.T, readOnly bool) frozenRig {
	t.Helper()
	engine := enforcetest.NewEngine()
	engine.Run("c")
	o := docker.Options{Engine: engine, Freezer: engine, FreezeTimeout: 10 * time.Millisecond}
	if readOnly {
		o.Freezer = readOnlyFreezer{engine}
	}
	e, j := open(t, o)
	return frozenRig{engine, e, func() bool {
		_, recorded, err := j.Get("c")
		return recorded || err != nil
	}}
}

// onRecord is newFrozenRig with c on record, and in this state.
func onRecord(t *testing.T, state freezer.State, readOnly bool) frozenRig {
	t.Helper()
	r := newFrozenRig(t, readOnly)
	if err := r.Pause(t.Context(), enforcetest.HoldOf("c")); err != nil {
		t.Fatal(err)
	}
	r.Lie("c", false, false)
	r.SetFreezer("c", state)
	return r
}

func (r frozenRig) expect(t *testing.T, state freezer.State, recorded bool) {
	t.Helper()
	if got, err := r.State("c", 0); got != state || err != nil {
		t.Errorf("the freezer says %v (%v), want %v", got, err, state)
	}
	if got := r.recorded(); got != recorded {
		t.Errorf("on record %v, want %v", got, recorded)
	}
}

type readOnlyFreezer struct{ *enforcetest.Engine }

func (readOnlyFreezer) Set(string, int, bool) error { return errors.New("read-only file system") }

// The engine takes a container to run that the kernel has frozen, or is about to freeze. The record
// goes with the freeze, and not before.
func TestFreezeThatTheEngineDoesNotKnow(t *testing.T) {
	for _, state := range []freezer.State{freezer.Freezing, freezer.Frozen} {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, read-only %v", state, readOnly), func(t *testing.T) {
				r := onRecord(t, state, readOnly)
				r.FailWith(func(call, _ string) error {
					if call == "pause" {
						return errNotRunning
					}
					return nil
				})
				if s, err := r.Status(t.Context(), "c"); err != nil || !s.Paused || s.Verified {
					t.Errorf("status %+v, %v", s, err)
				}
				if err := r.Unpause(t.Context(), "c"); (err != nil) != readOnly {
					t.Errorf("unpause: %v", err)
				}
				if readOnly {
					r.expect(t, state, true)
					return
				}
				r.expect(t, freezer.Thawed, false)
			})
		}
	}
}

// The engine gives up a pause, and a process that waits in the kernel may stop later.
func TestPauseThatTheEngineGaveUp(t *testing.T) {
	for name, finishes := range map[string]bool{"it stops later": true, "it does not stop": false} {
		t.Run(name, func(t *testing.T) {
			r := newFrozenRig(t, false)
			calls := 0
			r.FailWith(func(call, _ string) error {
				if call != "pause" {
					return nil
				}
				if calls++; calls == 1 {
					r.SetFreezer("c", freezer.Freezing)
					return context.DeadlineExceeded
				}
				if finishes {
					r.SetFreezer("c", freezer.Frozen)
				}
				return errNotRunning
			})
			if err := r.Pause(t.Context(), enforcetest.HoldOf("c")); (err == nil) != finishes {
				t.Errorf("pause: %v", err)
			}
			if !finishes {
				r.expect(t, freezer.Thawed, false)
				return
			}
			r.expect(t, freezer.Frozen, true)
			if err := r.Unpause(t.Context(), "c"); err != nil {
				t.Error(err)
			}
			r.expect(t, freezer.Thawed, false)
		})
	}
}

// The engine says that a container ended during our pause, and the kernel has stopped it.
func TestGoneDuringThePause(t *testing.T) {
	r := newFrozenRig(t, false)
	r.FailWith(func(call, _ string) error {
		if call != "pause" {
			return nil
		}
		r.SetFreezer("c", freezer.Frozen)
		return errdefs.ErrNotFound
	})
	if err := r.Pause(t.Context(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrGone) {
		t.Errorf("pause: %v", err)
	}
	r.expect(t, freezer.Thawed, false)
}

// A person is faster between our look and our call, and the kernel is not done yet.
func TestPersonFreezesAtTheSameTime(t *testing.T) {
	r := newFrozenRig(t, false)
	r.FailWith(func(call, _ string) error {
		if call != "pause" {
			return nil
		}
		r.SetFreezer("c", freezer.Freezing)
		return fmt.Errorf("Container c is already paused: %w", errdefs.ErrConflict)
	})
	if err := r.Pause(t.Context(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrForeign) {
		t.Errorf("pause: %v", err)
	}
	r.expect(t, freezer.Freezing, false)
}

// Who freezes, and is not on record, was not asked by us to.
func TestFreezingBySomebodyElse(t *testing.T) {
	r := newFrozenRig(t, false)
	r.SetFreezer("c", freezer.Freezing)
	if err := r.Pause(t.Context(), enforcetest.HoldOf("c")); !errors.Is(err, enforce.ErrForeign) {
		t.Errorf("pause: %v", err)
	}
	r.expect(t, freezer.Freezing, false)
	if err := r.Unpause(t.Context(), "c"); !errors.Is(err, enforce.ErrForeign) {
		t.Errorf("unpause: %v", err)
	}
	r.expect(t, freezer.Freezing, false)
}

// The engine says that a container is gone, as one that never knew it does, and the kernel has
// stopped it: what is on record is released, and what is not is left alone.
func TestGoneByTheEngineAlone(t *testing.T) {
	for _, tt := range []struct {
		name               string
		recorded, readOnly bool
		do                 func(r frozenRig) error
		want               error // nil: any where the freezer is read-only
	}{
		{"unpause", true, false, func(r frozenRig) error { return r.Unpause(context.Background(), "c") }, nil},
		{"unpause, read-only", true, true, func(r frozenRig) error { return r.Unpause(context.Background(), "c") }, nil},
		{"renewal", true, false, func(r frozenRig) error { return r.Pause(context.Background(), enforcetest.HoldOf("c")) }, enforce.ErrGone},
		{"renewal, read-only", true, true, func(r frozenRig) error { return r.Pause(context.Background(), enforcetest.HoldOf("c")) }, enforce.ErrGone},
		{"pause of a person's", false, false, func(r frozenRig) error { return r.Pause(context.Background(), enforcetest.HoldOf("c")) }, enforce.ErrGone},
		{"unpause of a person's", false, false, func(r frozenRig) error { return r.Unpause(context.Background(), "c") }, enforce.ErrForeign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newFrozenRig(t, tt.readOnly)
			if tt.recorded {
				r = onRecord(t, freezer.Frozen, tt.readOnly)
			}
			r.Lie("c", false, true)
			r.FailWith(func(string, string) error { return errdefs.ErrNotFound })
			_, err := r.Status(t.Context(), "c")
			if errors.Is(err, enforce.ErrGone) == tt.recorded || errors.Is(err, enforce.ErrUnavailable) != tt.recorded {
				t.Errorf("status: %v", err)
			}
			// Any error will do where the freezer cannot be set.
			if err := tt.do(r); !errors.Is(err, tt.want) && (!tt.readOnly || tt.want != nil || err == nil) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if tt.recorded && !tt.readOnly {
				r.expect(t, freezer.Thawed, false)
				return
			}
			r.expect(t, freezer.Frozen, tt.recorded)
		})
	}
}

// The engine has lost track and the freezer cannot be read: nobody can say whether the container
// runs, and so it stays on record until it is started again.
func TestLostTrackWithoutAFreezer(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	engine.FailWith(func(call, _ string) error {
		if call == "pause" {
			return errNotRunning
		}
		return nil
	})
	e, j := open(t, docker.Options{Engine: engine, Freezer: unreadableFreezer{}, Attempts: 2})
	do := map[string]func() error{
		"pause":   func() error { return e.Pause(t.Context(), enforcetest.HoldOf("c")) },
		"unpause": func() error { return e.Unpause(t.Context(), "c") },
	}
	for _, name := range []string{"pause", "unpause"} {
		if err := do[name](); err == nil {
			t.Errorf("no error of %s", name)
		}
		if _, recorded, err := j.Get("c"); !recorded || err != nil {
			t.Errorf("off the record after %s: %v", name, err)
		}
	}
	engine.Run("c")
	if err := e.Unpause(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if _, recorded, err := j.Get("c"); recorded || err != nil {
		t.Errorf("on record after it was started again: %v", err)
	}
}
