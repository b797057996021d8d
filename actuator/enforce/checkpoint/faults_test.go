package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/checkpointtest"
	"github.com/laxity/laxity/actuator/journal/journaltest"
)

// stateDir is in memory where it can be: a disk takes its time for each record.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "laxity-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// kinds are the ways in which a step can go wrong. did: it took effect nevertheless.
var kinds = map[string]func(ctx context.Context) (err error, did bool){
	"an error":                 func(context.Context) (error, bool) { return checkpoint.Unknown, false },
	"the helper dies before":   func(context.Context) (error, bool) { return checkpoint.ErrHelper, false },
	"the helper dies after":    func(context.Context) (error, bool) { return checkpoint.ErrHelper, true },
	"a hang without effect":    func(ctx context.Context) (error, bool) { <-ctx.Done(); return late(ctx), false },
	"an effect, then a hang":   func(context.Context) (error, bool) { return nil, true }, // see below
	"the driver is not ready":  func(context.Context) (error, bool) { return checkpoint.NotReady, false },
	"the wrong state, it says": func(context.Context) (error, bool) { return checkpoint.IllegalState, false },
}

func late(ctx context.Context) error { return fmt.Errorf("%w: %w", checkpoint.ErrHelper, ctx.Err()) }

var steps = []string{"state", "lock", "checkpoint", "restore", "unlock", "memory"}

// once makes the nth call of a step go wrong, once.
func once(step, kind string, nth int) checkpointtest.Fault {
	var mu sync.Mutex
	seen := 0
	return func(ctx context.Context, name string, _ int) (error, bool) {
		mu.Lock()
		if name == step {
			seen++
		}
		hit := name == step && seen == nth
		mu.Unlock()
		if !hit {
			return nil, true
		}
		if kind == "an effect, then a hang" {
			return checkpoint.ErrHelper, true
		}
		return kinds[kind](ctx)
	}
}

// Whatever goes wrong once at any step: either all is as it was, or it is suspended, or
// it is on record; and in the end the container runs, nothing is lost and nothing is
// left on record.
func TestFaultAtEveryStep(t *testing.T) {
	for _, step := range steps {
		for kind := range kinds {
			for nth := 1; nth <= 3; nth++ {
				t.Run(fmt.Sprintf("%s/%s/%d", step, kind, nth), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { faultAt(t, once(step, kind, nth)) })
				})
			}
		}
	}
}

func faultAt(t *testing.T, fault checkpointtest.Fault) {
	t.Helper()
	m := checkpointtest.NewMachine(1000 * mib)
	m.Start("c", 100*mib)
	m.Start("c", 200*mib)
	s := newSwapper(t, m, stateDir(t))
	m.Break(fault)
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	settled(t, m, s, err)
	_, err = s.Resume(t.Context(), "c", nil)
	m.Break(nil)
	bringBack(t, m, s, err)
}

// settled checks what a suspend that ended like this left.
func settled(t *testing.T, m *checkpointtest.Machine, s *checkpoint.Swapper, err error) {
	t.Helper()
	all, lerr := s.Swapped()
	check(t, lerr, nil)
	switch {
	case err == nil:
		if len(all) != 1 || all[0].Stage != enforce.Suspended {
			t.Errorf("suspended, and on record is %+v", all)
		}
	case errors.Is(err, enforce.ErrStuck):
		if len(all) != 1 || all[0].Stage != enforce.Stuck || all[0].Error == "" {
			t.Errorf("stuck, and on record is %+v", all)
		}
	default:
		runs(t, m, "c")
		if len(all) != 0 {
			t.Errorf("undone (%v), and on record is %+v", err, all)
		}
	}
}

// bringBack resumes until all runs; it takes two calls at most once nothing fails.
func bringBack(t *testing.T, m *checkpointtest.Machine, s *checkpoint.Swapper, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, enforce.ErrForeign) {
		_, err = s.Resume(t.Context(), "c", nil)
		check(t, err, nil)
	}
	runs(t, m, "c")
	if all, err := s.Swapped(); len(all) != 0 || err != nil {
		t.Errorf("on record is %+v (%v)", all, err)
	}
	if m.Lost() != 0 {
		t.Errorf("%d processes were lost", m.Lost())
	}
}

// On a full disk a container is swapped in nevertheless, also by the next actuator after a death
// in between.
func TestFullDiskKeepsNobodyOff(t *testing.T) {
	for _, name := range []string{"at once", "after a failed restore", "after a death"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill := journaltest.SmallDisk(t, dir)
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("c", 100*mib)
			m.Start("c", 200*mib)
			s := newSwapper(t, m, dir)
			_, err := s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, nil)
			fill()
			switch name {
			case "after a failed restore":
				m.Break(func(_ context.Context, step string, _ int) (error, bool) {
					if step == "restore" {
						return checkpoint.ErrHelper, false
					}
					return nil, true
				})
				_, err = s.Resume(t.Context(), "c", nil)
				check(t, err, enforce.ErrStuck)
				m.Break(nil)
			case "after a death":
				func() {
					defer func() { _ = recover() }()
					m.Break(func(_ context.Context, step string, _ int) (error, bool) {
						if step == "unlock" {
							panic("killed")
						}
						return nil, true
					})
					_, _ = s.Resume(t.Context(), "c", nil)
				}()
				m.Break(nil)
				s = newSwapper(t, m, dir)
			}
			_, err = s.Resume(t.Context(), "c", nil)
			check(t, err, nil)
			runs(t, m, "c")
			if all, err := s.Swapped(); len(all) != 0 || err != nil || m.Lost() != 0 {
				t.Errorf("on record is %+v (%v), %d lost", all, err, m.Lost())
			}
		})
	}
}

// The engine fails to pause, or to unpause.
func TestEngineFails(t *testing.T) {
	for _, call := range []string{"pause", "unpause", "inspect"} {
		t.Run(call, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("c", 100*mib)
			s := newSwapper(t, m, stateDir(t))
			broken := errors.New("the engine is broken")
			fail := func(c, _ string) error {
				return map[string]error{call: broken}[c]
			}
			if call == "pause" {
				m.Engine.FailWith(fail)
			}
			_, err := s.Suspend(t.Context(), "c", "c", "test")
			settled(t, m, s, err)
			if (err == nil) != (call != "pause") {
				t.Errorf("error %v", err)
			}
			m.Engine.FailWith(fail)
			_, err = s.Resume(t.Context(), "c", nil)
			m.Engine.FailWith(nil)
			bringBack(t, m, s, err)
		})
	}
}

// A suspend fails, and while it is undone the GPUs or the engine do not answer for a moment: the container
// runs on.
func TestUndoTriesAgain(t *testing.T) {
	silent := fmt.Errorf("a moment: %w", enforce.ErrUnavailable)
	for _, what := range []string{"memory", "inspect", "unpause"} {
		for _, last := range []string{"lock", "checkpoint", "freeze"} { // the step that fails, of the second process
			if what == "unpause" && last != "freeze" {
				continue // it is not paused yet
			}
			t.Run(what+", "+last, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := checkpointtest.NewMachine(1000 * mib)
					first, second := m.Start("c", 300*mib), m.Start("c", 300*mib)
					s := newSwapper(t, m, stateDir(t))
					var mu sync.Mutex
					left, failed := 3, false
					fails := func(call string) bool {
						mu.Lock()
						defer mu.Unlock()
						if call != what || !failed || left == 0 {
							return false
						}
						left--
						return true
					}
					m.Engine.FailWith(func(call, _ string) error {
						if fails(call) {
							return silent
						}
						return nil
					})
					m.Break(func(_ context.Context, step string, pid int) (error, bool) {
						_, frozen := m.Engine.Paused("c")
						if step == last && pid == second || last == "freeze" && step == "memory" && frozen && !failed {
							mu.Lock()
							defer mu.Unlock()
							failed = true
							return checkpoint.NotReady, false
						}
						if fails(step) {
							return checkpoint.Unknown, false
						}
						return nil, true
					})
					_, err := s.Suspend(t.Context(), "c", "c", "test")
					check(t, err, enforce.ErrUndone)
					if left > 0 {
						t.Errorf("%d calls were to fail yet", left)
					}
					if m.StateOf(first) != checkpoint.Running || m.StateOf(second) != checkpoint.Running {
						t.Errorf("states %s %s", m.StateOf(first), m.StateOf(second))
					}
					runs(t, m, "c")
				})
			})
		}
	}
}

// What is silent for ever ends the undoing after its limit.
func TestUndoEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := checkpointtest.NewMachine(1000 * mib)
		m.Start("c", 100*mib)
		s := newSwapper(t, m, stateDir(t))
		failed := false
		m.Break(func(_ context.Context, step string, _ int) (error, bool) {
			failed = failed || step == "checkpoint"
			if failed && (step == "checkpoint" || step == "memory") {
				return checkpoint.Unknown, false
			}
			return nil, true
		})
		began := time.Now()
		_, err := s.Suspend(t.Context(), "c", "c", "test")
		check(t, err, enforce.ErrStuck)
		if took := time.Since(began); took < time.Minute || took > 5*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		m.Break(nil)
		_, err = s.Resume(t.Context(), "c", nil)
		bringBack(t, m, s, err)
	})
}

// Another container's restore takes long. The limit of what waits for it begins afterwards.
func TestLimitBeginsAfterOthersRestore(t *testing.T) {
	for _, undo := range []bool{false, true} {
		t.Run(fmt.Sprintf("undo %v", undo), func(t *testing.T) {
			t.Parallel() // a bubble's time does not go on while somebody waits for a mutex
			const step = 700 * time.Millisecond
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("slow", 100*mib)
			pid := m.Start("c", 100*mib)
			o := m.Options(t, stateDir(t))
			o.StepTimeout, o.MinRate = step, 1<<60 // the limit is three steps
			s, err := checkpoint.New(o)
			check(t, err, nil)
			_, err = s.Suspend(t.Context(), "slow", "slow", "test")
			check(t, err, nil)
			if !undo {
				_, err = s.Suspend(t.Context(), "c", "c", "test")
				check(t, err, nil)
			}
			begun := make(chan struct{})
			var once sync.Once
			m.Break(func(ctx context.Context, name string, of int) (error, bool) {
				switch {
				case name == "restore" && of != pid:
					once.Do(func() { close(begun); time.Sleep(4 * step) })
				case name == "checkpoint":
					return checkpoint.Unknown, false
				case ctx.Err() != nil:
					return late(ctx), false
				}
				return nil, true
			})
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = s.Resume(context.Background(), "slow", nil)
			}()
			<-begun
			if undo {
				_, err = s.Suspend(t.Context(), "c", "c", "test")
				check(t, err, enforce.ErrUndone)
			} else {
				_, err = s.Resume(t.Context(), "c", nil)
				check(t, err, nil)
			}
			runs(t, m, "c")
			<-over
		})
	}
}

// The engine says that a swapped container is gone, as another one than that which paused it does, and
// the kernel has it frozen: it comes back.
func TestGoneByTheEngineAlone(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	m.Start("c", 100*mib)
	s := newSwapper(t, m, stateDir(t))
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	check(t, err, nil)
	m.Engine.Lie("c", false, true)
	m.Engine.FailWith(func(string, string) error { return errdefs.ErrNotFound })
	_, err = s.Resume(t.Context(), "c", nil)
	check(t, err, nil)
	runs(t, m, "c")
	if all, err := s.Swapped(); len(all) != 0 || err != nil || m.Lost() != 0 {
		t.Errorf("on record is %+v (%v), %d lost", all, err, m.Lost())
	}
}

// mortal is the driver of an actuator that does nothing more, for ever, once it is dead.
type mortal struct {
	checkpoint.Driver
	dead <-chan struct{}
	did  func(step string) // is told of each step that the driver has made
}

func (d mortal) stand() {
	select {
	case <-d.dead:
		select {}
	default:
	}
}

func (d mortal) step(name string, f func() error) error {
	d.stand()
	defer d.stand()
	defer d.did(name)
	return f()
}

func (d mortal) State(ctx context.Context, pid int) (s checkpoint.State, err error) {
	err = d.step("state", func() error { s, err = d.Driver.State(ctx, pid); return err })
	return s, err
}

func (d mortal) Lock(ctx context.Context, pid int, limit time.Duration) error {
	return d.step("lock", func() error { return d.Driver.Lock(ctx, pid, limit) })
}

func (d mortal) Checkpoint(ctx context.Context, pid int) error {
	return d.step("checkpoint", func() error { return d.Driver.Checkpoint(ctx, pid) })
}

func (d mortal) Restore(ctx context.Context, pid int) error {
	return d.step("restore", func() error { return d.Driver.Restore(ctx, pid) })
}

func (d mortal) Unlock(ctx context.Context, pid int) error {
	return d.step("unlock", func() error { return d.Driver.Unlock(ctx, pid) })
}

// The actuator dies at any moment: another one, or its guardian, brings the container
// back from what is on record.
func TestDeathAtEveryStep(t *testing.T) {
	for _, step := range []string{"lock", "checkpoint", "pause", "restore", "unlock", "unpause"} {
		for _, did := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, took effect %v", step, did), func(t *testing.T) {
				m := checkpointtest.NewMachine(1000 * mib)
				m.Start("c", 100*mib)
				m.Start("c", 200*mib)
				dir := stateDir(t)
				dead := make(chan struct{})
				var once sync.Once
				if !did {
					m.Break(func(_ context.Context, name string, _ int) (error, bool) {
						if name == step {
							once.Do(func() { close(dead); select {} })
						}
						return nil, true
					})
				}
				m.Engine.FailWith(func(call, id string) error {
					if call == step {
						if did {
							m.Engine.SetPaused(id, step == "pause")
						}
						once.Do(func() { close(dead) })
						select {}
					}
					return nil
				})
				o := m.Options(t, dir)
				o.Driver = mortal{m, dead, func(made string) {
					if did && made == step {
						once.Do(func() { close(dead) })
					}
				}}
				victim, err := checkpoint.New(o)
				check(t, err, nil)
				go func() {
					if _, err := victim.Suspend(context.Background(), "c", "c", "test"); err == nil {
						_, _ = victim.Resume(context.Background(), "c", nil)
					}
				}()
				select {
				case <-dead:
				case <-time.After(30 * time.Second):
					t.Fatal("it never came to " + step)
				}
				m.Engine.FailWith(nil)
				m.Break(nil)
				heir := newSwapper(t, m, dir)
				all, err := heir.Swapped()
				check(t, err, nil)
				if len(all) == 1 {
					_, err = heir.Resume(t.Context(), "c", nil)
				}
				bringBack(t, m, heir, err)
			})
		}
	}
}

// A process that the driver lost is reported; the container and the others' memory stay.
func TestLostIsKept(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	a, b := m.Start("c", 100*mib), m.Start("c", 200*mib)
	s := newSwapper(t, m, stateDir(t))
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	check(t, err, nil)
	m.SetState(b, checkpoint.Failed)
	for range 2 {
		_, err = s.Resume(t.Context(), "c", nil)
		check(t, err, enforce.ErrStuck)
	}
	if m.StateOf(a) != checkpoint.Checkpointed || m.StateOf(b) != checkpoint.Failed {
		t.Errorf("states %s %s", m.StateOf(a), m.StateOf(b))
	}
	if _, frozen := m.Engine.Paused("c"); !frozen {
		t.Error("not frozen")
	}
	m.Remove("c")
	_, err = s.Resume(t.Context(), "c", nil)
	check(t, err, nil)
}

// Another process takes the room between the look and the restore, and the driver says so
// without harm: all goes off the GPU again.
func TestRoomIsTakenMeanwhile(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	a, b := m.Start("c", 100*mib), m.Start("c", 200*mib)
	s := newSwapper(t, m, stateDir(t))
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	check(t, err, nil)
	m.Break(func(_ context.Context, step string, pid int) (error, bool) {
		if step == "restore" && pid == b {
			return checkpoint.OutOfMemory, false
		}
		return nil, true
	})
	_, err = s.Resume(t.Context(), "c", nil)
	check(t, err, enforce.ErrNoRoom)
	if m.StateOf(a) != checkpoint.Checkpointed || m.StateOf(b) != checkpoint.Checkpointed {
		t.Errorf("states %s %s", m.StateOf(a), m.StateOf(b))
	}
	m.Break(nil)
	_, err = s.Resume(t.Context(), "c", nil)
	bringBack(t, m, s, err)
}

// A process ends, or the whole container is removed, in the middle of a step.
func TestEndsMeanwhile(t *testing.T) {
	for _, step := range steps[1:5] {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, all %v", step, all), func(t *testing.T) {
				m := checkpointtest.NewMachine(1000 * mib)
				m.Start("c", 100*mib)
				m.Start("c", 200*mib)
				s := newSwapper(t, m, stateDir(t))
				var first sync.Once
				m.Break(func(_ context.Context, name string, pid int) (error, bool) {
					if name == step {
						first.Do(func() {
							if all {
								m.Remove("c")
							} else {
								m.Kill(pid)
							}
						})
					}
					return nil, true
				})
				_, err := s.Suspend(t.Context(), "c", "c", "test")
				if err == nil {
					_, err = s.Resume(t.Context(), "c", nil)
				}
				if err != nil && !errors.Is(err, enforce.ErrUndone) {
					t.Error(err)
				}
				runs(t, m, "c")
				if rest, err := s.Swapped(); len(rest) != 0 || err != nil {
					t.Errorf("on record is %+v (%v)", rest, err)
				}
			})
		}
	}
}

// Memory of processes that ended while they were swapped out does not come back, and is not counted.
func TestOnlyWhatIsRestoredIsCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(m *checkpointtest.Machine, first, second int)
		bytes uint64
		moved int
	}{
		"both live":             {func(*checkpointtest.Machine, int, int) {}, 300 * mib, 2},
		"one was killed":        {func(m *checkpointtest.Machine, first, _ int) { m.Kill(first) }, 200 * mib, 1},
		"both were killed":      {func(m *checkpointtest.Machine, first, second int) { m.Kill(first); m.Kill(second) }, 0, 0},
		"the container is gone": {func(m *checkpointtest.Machine, _, _ int) { m.Remove("c") }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			first, second := m.Start("c", 100*mib), m.Start("c", 200*mib)
			s := newSwapper(t, m, t.TempDir())
			_, err := s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, nil)
			tt.end(m, first, second)
			r, err := s.Resume(t.Context(), "c", nil)
			check(t, err, nil)
			if r.Bytes[checkpointtest.UUID] != tt.bytes || r.Processes != tt.moved {
				t.Errorf("%+v, want %d bytes of %d", r, tt.bytes, tt.moved)
			}
		})
	}
}

// Random times, random faults, two containers that do not fit beside each other: after
// 500 cycles nobody is lost.
func TestRandomCycles(t *testing.T) {
	cycles := 500
	if testing.Short() {
		cycles = 50
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	m := checkpointtest.NewMachine(700 * mib)
	ids := []string{"a", "b"}
	for _, id := range ids {
		m.Start(id, 200*mib)
		m.Start(id, 100*mib)
	}
	dir := stateDir(t)
	s := newSwapper(t, m, dir)
	var mu sync.Mutex
	m.Break(func(context.Context, string, int) (error, bool) {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(40) > 0 {
			return nil, true
		}
		return []error{checkpoint.Unknown, checkpoint.ErrHelper, checkpoint.NotReady}[random.IntN(3)], random.IntN(2) == 0
	})
	for i := range cycles {
		id := ids[i%2]
		m.SetBallast(uint64(300+i%100) * mib) // with one of them on it, the card is nearly full
		_, err := s.Suspend(t.Context(), id, id, "test")
		if err != nil && errors.Is(err, enforce.ErrCannotSwap) {
			t.Fatal(err)
		}
		m.SetBallast(uint64(random.IntN(90)) * mib)
		for range 50 {
			if _, err = s.Resume(t.Context(), id, nil); err == nil || errors.Is(err, enforce.ErrForeign) {
				break
			}
		}
		runs(t, m, id)
		if t.Failed() {
			t.Fatalf("cycle %d: %v", i, err)
		}
	}
	if m.Lost() != 0 {
		t.Errorf("%d lost", m.Lost())
	}
}
