package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/enforce/pause"
	"github.com/laxity/laxity/actuator/journal"
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

type readOnlyFreezer struct{ pause.Freezer }

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
			s, err := r.Status(t.Context(), "c")
			if s.Running != tt.recorded || s.Paused != tt.recorded || tt.recorded && err != nil || !tt.recorded && !errors.Is(err, enforce.ErrGone) {
				t.Errorf("status: %+v, %v", s, err)
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
// runs, and so it stays on record until it is started again or the freezer can be read. The record
// says so to who was not there, as the guardian.
func TestLostTrackWithoutAFreezer(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, engine *enforcetest.Engine, j *journal.Journal) *docker.Enforcer{
		"started again": func(t *testing.T, engine *enforcetest.Engine, j *journal.Journal) *docker.Enforcer {
			engine.Run("c")
			return openOn(t, j, docker.Options{Engine: engine, Freezer: unreadableFreezer{}})
		},
		"freezer readable": func(t *testing.T, engine *enforcetest.Engine, j *journal.Journal) *docker.Enforcer {
			return openOn(t, j, docker.Options{Engine: engine, Freezer: engine})
		},
		"paused again, and by a person unpaused": func(t *testing.T, engine *enforcetest.Engine, j *journal.Journal) *docker.Enforcer {
			e := openOn(t, j, docker.Options{Engine: engine, Freezer: unreadableFreezer{}})
			engine.FailWith(nil)
			if err := e.Pause(t.Context(), enforcetest.HoldOf("c")); err != nil {
				t.Error(err)
			}
			engine.SetPaused("c", false)
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine := enforcetest.NewEngine()
			engine.Run("c")
			engine.FailWith(func(call, _ string) error {
				if call == "pause" {
					return errNotRunning
				}
				return nil
			})
			e, j := open(t, docker.Options{Engine: engine, Freezer: unreadableFreezer{}, Attempts: 2})
			guardians := openOn(t, j, docker.Options{Engine: engine, Freezer: unreadableFreezer{}})
			for _, do := range []struct {
				name string
				err  error
			}{
				{"pause", e.Pause(t.Context(), enforcetest.HoldOf("c"))},
				{"unpause", e.Unpause(t.Context(), "c")},
				{"unpause by the guardian", guardians.Unpause(t.Context(), "c")},
			} {
				if do.err == nil {
					t.Errorf("no error of %s", do.name)
				}
			}
			if _, recorded, err := j.Get("c"); !recorded || err != nil {
				t.Errorf("off the record: %v", err)
			}
			if err := end(t, engine, j).Unpause(t.Context(), "c"); err != nil {
				t.Error(err)
			}
			if _, recorded, err := j.Get("c"); recorded || err != nil {
				t.Errorf("on record at the end: %v", err)
			}
		})
	}
}

// A person cannot have paused what our own pause may have stopped: "already paused" is of ours then.
func TestLostTrackIsNoPersonsPause(t *testing.T) {
	engine := enforcetest.NewEngine()
	engine.Run("c")
	answer := errNotRunning
	engine.FailWith(func(call, _ string) error {
		if call == "pause" {
			return answer
		}
		return nil
	})
	e, j := open(t, docker.Options{Engine: engine, Freezer: unreadableFreezer{}, Attempts: 2})
	if err := e.Pause(t.Context(), enforcetest.HoldOf("c")); err == nil {
		t.Error("no error of a pause that failed")
	}
	answer = fmt.Errorf("Container c is already paused: %w", errdefs.ErrConflict)
	if err := e.Pause(t.Context(), enforcetest.HoldOf("c")); errors.Is(err, enforce.ErrForeign) {
		t.Errorf("pause: %v", err)
	}
	if _, recorded, err := j.Get("c"); !recorded || err != nil {
		t.Errorf("off the record: %v", err)
	}
}

// What is in the kernel's control groups when the engine says that a container on record is gone, by
// the freezer as it is read in a cgroup namespace of one's own.
func TestGoneByTheEngineOnTheKernelsFreezer(t *testing.T) {
	id := strings.Repeat("c", 64)
	own := "libpod-" + id + ".scope"
	for name, tt := range map[string]struct {
		files    map[string]string
		freeze   string // the group whose cgroup.freeze is read after it
		paused   bool   // before it
		readOnly bool
	}{
		"frozen by runc": {map[string]string{own + "/cgroup.events": "populated 1\nfrozen 1\n", own + "/cgroup.freeze": "1\n"}, own, true, false},
		"frozen by crun": {map[string]string{
			own + "/cgroup.events": "populated 1\nfrozen 0\n", own + "/cgroup.freeze": "0\n",
			own + "/container/cgroup.events": "populated 1\nfrozen 1\n", own + "/container/cgroup.freeze": "1\n",
		}, own + "/container", true, false},
		"left without processes":            {map[string]string{own + "/cgroup.events": "populated 0\nfrozen 0\n", own + "/cgroup.freeze": "1\n"}, own, false, false},
		"left without processes, read-only": {map[string]string{own + "/cgroup.events": "populated 0\nfrozen 0\n", own + "/cgroup.freeze": "1\n"}, own, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"proc/self/mountinfo": "1 1 0:1 /../../.. " + dir + "/cgroup rw - cgroup2 cgroup2 rw\n"}
			for file, text := range tt.files {
				files["cgroup/machine.slice/"+file] = text
			}
			for file, text := range files {
				file = filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			kernel := freezer.New(filepath.Join(dir, "proc"))
			o := docker.Options{Engine: enforcetest.NewEngine(), Freezer: kernel}
			if tt.readOnly {
				o.Freezer = readOnlyFreezer{kernel}
			}
			e, j := open(t, o)
			h := enforcetest.HoldOf("c")
			h.ContainerID = id
			if err := j.Put(h); err != nil {
				t.Fatal(err)
			}
			if s, err := e.Status(t.Context(), id); s.Paused != tt.paused || errors.Is(err, enforce.ErrGone) == tt.paused {
				t.Errorf("status %+v, %v", s, err)
			}
			if err := e.Unpause(t.Context(), id); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "cgroup/machine.slice", tt.freeze, "cgroup.freeze"))
			if err != nil || strings.HasPrefix(string(text), "0") == tt.readOnly {
				t.Errorf("cgroup.freeze is %q, %v", text, err)
			}
			if _, recorded, err := j.Get(id); recorded || err != nil {
				t.Errorf("on record at the end: %v", err)
			}
		})
	}
}
