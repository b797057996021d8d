package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/checkpointtest"
)

const mib = checkpointtest.MiB

func newSwapper(t *testing.T, m *checkpointtest.Machine, dir string) *checkpoint.Swapper {
	t.Helper()
	s, err := checkpoint.New(m.Options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pids(t *testing.T, m *checkpointtest.Machine, id string) []int {
	t.Helper()
	list, err := m.Of(id)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// runs fails the test unless all processes of the container run.
func runs(t *testing.T, m *checkpointtest.Machine, id string) {
	t.Helper()
	for _, pid := range pids(t, m, id) {
		if s := m.StateOf(pid); s != checkpoint.Running {
			t.Errorf("process %d is %s", pid, s)
		}
	}
	if engine, kernel := m.Engine.Paused(id); engine || kernel {
		t.Errorf("paused: engine %v, kernel %v", engine, kernel)
	}
}

func TestConformance(t *testing.T) {
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Subject {
		m := checkpointtest.NewMachine(10000 * mib)
		return checkpointtest.Subject{
			Swapper: newSwapper(t, m, t.TempDir()),
			Run: func(*testing.T) string {
				id := fmt.Sprintf("c%d", len(m.Engine.Calls())+m.Start("other", 0))
				m.Start(id, 100*mib)
				m.Start(id, 0)
				m.Start(id, 200*mib)
				return id
			},
			Computes: func(t *testing.T, id string) { runs(t, m, id) },
			Holds: func(t *testing.T, id string) (sum uint64) {
				gpus, err := m.GPUs(t.Context())
				check(t, err, nil)
				for _, pid := range pids(t, m, id) {
					sum += gpus[0].Processes[pid]
				}
				return sum
			},
			Frozen:    func(_ *testing.T, id string) bool { _, kernel := m.Engine.Paused(id); return kernel },
			SetPaused: func(_ *testing.T, id string, paused bool) { m.Engine.SetPaused(id, paused) },
			Remove:    func(_ *testing.T, id string) { m.Remove(id) },
			Fill: func(*testing.T) func() {
				m.SetBallast(9800 * mib)
				return func() { m.SetBallast(0) }
			},
		}
	})
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// Why a container cannot be swapped is said, and nothing is stopped.
func TestCan(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*checkpointtest.Machine, int)
		want    error
		says    string
	}{
		"it can":         {func(*checkpointtest.Machine, int) {}, nil, ""},
		"traced":         {func(m *checkpointtest.Machine, p int) { m.SetStat(p, func(s *checkpoint.Stat) { s.Traced = true }) }, enforce.ErrCannotSwap, "debugger"},
		"at a stop":      {func(m *checkpointtest.Machine, p int) { m.SetStat(p, func(s *checkpoint.Stat) { s.Stopped = true }) }, enforce.ErrCannotSwap, "released first"},
		"locked":         {func(m *checkpointtest.Machine, p int) { m.SetState(p, checkpoint.Locked) }, enforce.ErrCannotSwap, "somebody else"},
		"failed":         {func(m *checkpointtest.Machine, p int) { m.SetState(p, checkpoint.Failed) }, enforce.ErrCannotSwap, "failed"},
		"no host memory": {func(m *checkpointtest.Machine, _ int) { m.SetHost(100 * mib) }, enforce.ErrNoHostMemory, "it needs 100 MiB"},
		"MPS": {func(m *checkpointtest.Machine, _ int) {
			m.Break(func(_ context.Context, step string, _ int) (error, bool) {
				if step == "state" {
					return checkpoint.ErrNoCUDA, false
				}
				return nil, true
			})
		}, enforce.ErrCannotSwap, "MPS"},
		"no API": {func(m *checkpointtest.Machine, _ int) {
			m.Break(func(_ context.Context, step string, _ int) (error, bool) {
				if step == "state" {
					return fmt.Errorf("%w: the driver is 550", checkpoint.ErrUnavailable), false
				}
				return nil, true
			})
		}, enforce.ErrCannotSwap, "driver is 550"},
	} {
		t.Run(name, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			pid := m.Start("c", 100*mib)
			c.prepare(m, pid)
			s := newSwapper(t, m, t.TempDir())
			was := m.StateOf(pid)
			err := s.Can(t.Context(), "c")
			check(t, err, c.want)
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), c.says) || !errors.Is(err, enforce.ErrCannotSwap) {
				t.Errorf("it says %q, want %q", err, c.says)
			}
			_, err = s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, c.want)
			if got := m.StateOf(pid); got != was || len(m.Engine.Calls()) > 0 {
				t.Errorf("state %s, calls %v", got, m.Engine.Calls())
			}
		})
	}
	t.Run("no CUDA", func(t *testing.T) {
		m := checkpointtest.NewMachine(1000 * mib)
		m.Start("c", 0)
		check(t, newSwapper(t, m, t.TempDir()).Can(t.Context(), "c"), enforce.ErrCannotSwap)
	})
}

// What the driver refuses is undone, and not tried again for these processes.
func TestNotSupportedIsRemembered(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	pid := m.Start("c", 100*mib)
	s := newSwapper(t, m, t.TempDir())
	m.Break(func(_ context.Context, step string, _ int) (error, bool) {
		return map[string]error{"checkpoint": checkpoint.NotSupported}[step], step != "checkpoint"
	})
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	check(t, err, enforce.ErrUndone)
	check(t, err, enforce.ErrCannotSwap)
	runs(t, m, "c")
	m.Break(nil)
	check(t, s.Can(t.Context(), "c"), enforce.ErrCannotSwap)
	m.Kill(pid)
	m.Start("c", 100*mib)
	check(t, s.Can(t.Context(), "c"), nil)
}

// Processes that begin to use CUDA while others are suspended are suspended too.
func TestNewProcesses(t *testing.T) {
	for _, at := range []string{"lock", "checkpoint"} {
		t.Run("during "+at, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("c", 100*mib)
			born := 0
			m.Break(func(_ context.Context, step string, _ int) (error, bool) {
				if step == at && born < 2 {
					born++
					m.Start("c", 50*mib)
				}
				return nil, true
			})
			s := newSwapper(t, m, t.TempDir())
			r, err := s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, nil)
			if r.Processes != 3 || r.Bytes[checkpointtest.UUID] != 200*mib {
				t.Errorf("%+v", r)
			}
			for _, pid := range pids(t, m, "c") {
				if got := m.StateOf(pid); got != checkpoint.Checkpointed {
					t.Errorf("process %d is %s", pid, got)
				}
			}
			_, err = s.Resume(t.Context(), "c", nil)
			check(t, err, nil)
			runs(t, m, "c")
		})
	}
	t.Run("and ends before it is on record", func(t *testing.T) {
		m := checkpointtest.NewMachine(1000 * mib)
		first := m.Start("c", 100*mib)
		second := 0
		m.Break(func(_ context.Context, step string, pid int) (error, bool) {
			switch {
			case step == "checkpoint" && second == 0:
				second = m.Start("c", 50*mib)
			case step == "state" && pid == second:
				m.Kill(second)
			}
			return nil, true
		})
		r, err := newSwapper(t, m, t.TempDir()).Suspend(t.Context(), "c", "c", "test")
		check(t, err, nil)
		if got := pids(t, m, "c"); r.Processes != 1 || len(got) != 1 || got[0] != first || second == 0 {
			t.Errorf("%+v, processes %v, want %d alone", r, got, first)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		m := checkpointtest.NewMachine(10000 * mib)
		m.Start("c", 100*mib)
		m.Break(func(_ context.Context, step string, _ int) (error, bool) {
			if step == "lock" {
				m.Start("c", 50*mib)
			}
			return nil, true
		})
		_, err := newSwapper(t, m, t.TempDir()).Suspend(t.Context(), "c", "c", "test")
		check(t, err, enforce.ErrUndone)
		runs(t, m, "c")
	})
}

// Two suspends at once do not count on the same host memory.
func TestHostMemoryIsPromisedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		fails error
		want  error // of the second, once the first has ended
	}{
		"the first fails":  {checkpoint.Unknown, nil},
		"the first is off": {nil, enforce.ErrNoHostMemory}, // until it is back: its memory is the host's
	} {
		t.Run(name, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.SetHost(150 * mib)
			first := m.Start("a", 100*mib)
			m.Start("b", 100*mib)
			s := newSwapper(t, m, t.TempDir())
			begun, goOn := make(chan struct{}), make(chan struct{})
			m.Break(func(_ context.Context, step string, pid int) (error, bool) {
				if step == "checkpoint" && pid == first {
					close(begun)
					<-goOn
					return tt.fails, tt.fails == nil
				}
				return nil, true
			})
			ended := make(chan error)
			go func() {
				_, err := s.Suspend(context.Background(), "a", "a", "test")
				ended <- err
			}()
			<-begun
			check(t, s.Can(t.Context(), "b"), enforce.ErrNoHostMemory)
			_, err := s.Suspend(t.Context(), "b", "b", "test")
			check(t, err, enforce.ErrNoHostMemory)
			runs(t, m, "b")
			close(goOn)
			err = <-ended
			m.Break(nil)
			if tt.fails != nil {
				check(t, err, enforce.ErrUndone)
			} else {
				check(t, err, nil)
			}
			_, err = s.Suspend(t.Context(), "b", "b", "test")
			check(t, err, tt.want)
			if tt.want == nil {
				return
			}
			_, err = s.Resume(t.Context(), "a", nil)
			check(t, err, nil)
			_, err = s.Suspend(t.Context(), "b", "b", "test")
			check(t, err, nil)
		})
	}
}

// What was copied is not counted twice while the container's other processes are suspended.
func TestCopiedMemoryIsCountedOnce(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	m.SetHost(350 * mib)
	m.Start("a", 100*mib)
	second := m.Start("a", 100*mib)
	m.Start("b", 100*mib)
	s := newSwapper(t, m, t.TempDir())
	m.Break(func(_ context.Context, step string, pid int) (error, bool) {
		if step == "checkpoint" && pid == second { // 100 MiB are copied, 100 MiB promised
			_, err := s.Suspend(context.Background(), "b", "b", "test")
			return err, err == nil
		}
		return nil, true
	})
	_, err := s.Suspend(t.Context(), "a", "a", "test")
	check(t, err, nil)
}

// What a restore has freed is kept until all of the container is back, because it may have to go off again.
func TestFreedMemoryIsKeptUntilAllAreBack(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("the second fails %v", fails), func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.SetHost(250 * mib)
			m.Start("a", 100*mib)
			second := m.Start("a", 100*mib)
			m.Start("b", 100*mib)
			s := newSwapper(t, m, t.TempDir())
			_, err := s.Suspend(t.Context(), "a", "a", "test")
			check(t, err, nil)
			var meanwhile error
			m.Break(func(_ context.Context, step string, pid int) (error, bool) {
				if step == "restore" && pid == second {
					meanwhile = s.Can(context.Background(), "b")
					if fails {
						return checkpoint.OutOfMemory, false
					}
				}
				return nil, true
			})
			_, err = s.Resume(t.Context(), "a", nil)
			check(t, meanwhile, enforce.ErrNoHostMemory)
			m.Break(nil)
			if fails {
				check(t, err, enforce.ErrNoRoom)
				_, err = s.Resume(t.Context(), "a", nil)
			}
			check(t, err, nil)
			check(t, s.Can(t.Context(), "b"), nil)
		})
	}
}

// A record that cannot be read is enough to bring its container back.
func TestBrokenRecord(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	m.Start("c", 100*mib)
	dir := t.TempDir()
	_, err := newSwapper(t, m, dir).Suspend(t.Context(), "c", "c", "test")
	check(t, err, nil)
	check(t, os.WriteFile(filepath.Join(checkpoint.Folder(dir), "c.json"), []byte("{"), 0o600), nil)
	s := newSwapper(t, m, dir)
	all, err := s.Swapped()
	check(t, err, nil)
	if len(all) != 1 || all[0].Error == "" {
		t.Errorf("%+v", all)
	}
	_, err = s.Resume(t.Context(), "c", nil)
	check(t, err, nil)
	runs(t, m, "c")
}

// unreadable are processes of which one cannot be read for a moment, or all.
type unreadable struct {
	checkpoint.Processes
	of  bool // which they are
	pid int
}

func (u *unreadable) Of(id string) ([]int, error) {
	if u.of {
		return nil, syscall.EMFILE
	}
	return u.Processes.Of(id)
}

func (u *unreadable) Stat(pid int) (checkpoint.Stat, error) {
	if u.pid == pid {
		return checkpoint.Stat{}, syscall.EMFILE
	}
	return u.Processes.Stat(pid)
}

// stateFails makes the driver fail to say what state a process is in.
func stateFails(of int, err error) checkpointtest.Fault {
	return func(_ context.Context, step string, pid int) (error, bool) {
		if step == "state" && pid == of {
			return err, false
		}
		return nil, true
	}
}

// A process that cannot be read has not ended: it is brought back, also where the record is damaged and
// does not name it.
func TestUnreadableProcessIsBroughtBack(t *testing.T) {
	for name, fault := range map[string]func(m *checkpointtest.Machine, of *unreadable, pid int){
		"the processes": func(_ *checkpointtest.Machine, of *unreadable, _ int) { of.of = true },
		"its stat":      func(_ *checkpointtest.Machine, of *unreadable, pid int) { of.pid = pid },
		"a dead helper": func(m *checkpointtest.Machine, _ *unreadable, pid int) {
			m.Break(stateFails(pid, checkpoint.ErrHelper))
		},
		"an error of CUDA": func(m *checkpointtest.Machine, _ *unreadable, pid int) { m.Break(stateFails(pid, checkpoint.Unknown)) },
		"the API cannot be had": func(m *checkpointtest.Machine, _ *unreadable, pid int) {
			m.Break(stateFails(pid, checkpoint.ErrUnavailable))
		},
	} {
		for _, damaged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, damaged record %v", name, damaged), func(t *testing.T) {
				m := checkpointtest.NewMachine(1000 * mib)
				m.Start("c", 100*mib)
				pid := m.Start("c", 100*mib)
				dir := t.TempDir()
				o := m.Options(t, dir)
				of := &unreadable{Processes: o.Processes}
				o.Processes = of
				s, err := checkpoint.New(o)
				check(t, err, nil)
				_, err = s.Suspend(t.Context(), "c", "c", "test")
				check(t, err, nil)
				if damaged {
					check(t, os.WriteFile(filepath.Join(checkpoint.Folder(dir), "c.json"), []byte("{"), 0o600), nil)
				}
				fault(m, of, pid)
				_, err = s.Resume(t.Context(), "c", nil)
				m.Break(nil)
				of.of, of.pid = false, 0
				if damaged {
					check(t, err, enforce.ErrUnavailable)
				}
				if list, lerr := s.Swapped(); err == nil && len(list) == 0 && lerr == nil {
					runs(t, m, "c")
					return
				}
				_, err = s.Resume(t.Context(), "c", nil)
				check(t, err, nil)
				runs(t, m, "c")
			})
		}
	}
}

// What ends while a damaged record is adopted keeps nobody off.
func TestEndedWhileAdopted(t *testing.T) {
	m := checkpointtest.NewMachine(1000 * mib)
	m.Start("c", 100*mib)
	pid := m.Start("c", 100*mib)
	dir := t.TempDir()
	s := newSwapper(t, m, dir)
	_, err := s.Suspend(t.Context(), "c", "c", "test")
	check(t, err, nil)
	check(t, os.WriteFile(filepath.Join(checkpoint.Folder(dir), "c.json"), []byte("{"), 0o600), nil)
	m.Break(func(_ context.Context, step string, of int) (error, bool) {
		if step == "state" && of == pid {
			m.Kill(pid)
			return checkpoint.ErrHelper, false
		}
		return nil, true
	})
	_, err = s.Resume(t.Context(), "c", nil)
	check(t, err, nil)
	runs(t, m, "c")
}

// A process that cannot be read is not taken for one that has ended: the container is not swapped out
// without it.
func TestUnreadableProcessIsNotLeftBehind(t *testing.T) {
	for _, late := range []bool{false, true} { // or while others are locked
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("c", 100*mib)
			o := m.Options(t, t.TempDir())
			of := &unreadable{Processes: o.Processes}
			o.Processes = of
			s, err := checkpoint.New(o)
			check(t, err, nil)
			if late {
				m.Break(func(_ context.Context, step string, _ int) (error, bool) {
					if step == "lock" {
						of.pid = m.Start("c", 50*mib)
					}
					return nil, true
				})
			} else {
				of.pid = m.Start("c", 50*mib)
				check(t, s.Can(t.Context(), "c"), enforce.ErrUnavailable)
			}
			_, err = s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, enforce.ErrUnavailable)
			if late {
				check(t, err, enforce.ErrUndone)
			}
			runs(t, m, "c")
			of.pid = 0
			m.Break(nil)
			r, err := s.Suspend(t.Context(), "c", "c", "test")
			check(t, err, nil)
			if r.Processes != 2 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The same after the driver said that it does not know a process: one that has ended is no reason to
// refuse, and one that cannot be read then is.
func TestUnknownToTheDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(m *checkpointtest.Machine, of *unreadable, pid int)
		want error
	}{
		"it ended":         {func(m *checkpointtest.Machine, _ *unreadable, pid int) { m.Kill(pid) }, nil},
		"it is unreadable": {func(_ *checkpointtest.Machine, of *unreadable, pid int) { of.pid = pid }, enforce.ErrCannotSwap},
	} {
		t.Run(name, func(t *testing.T) {
			m := checkpointtest.NewMachine(1000 * mib)
			m.Start("c", 100*mib)
			pid := m.Start("c", 50*mib)
			o := m.Options(t, t.TempDir())
			of := &unreadable{Processes: o.Processes}
			o.Processes = of
			s, err := checkpoint.New(o)
			check(t, err, nil)
			m.Break(func(_ context.Context, step string, asked int) (error, bool) {
				if step == "state" && asked == pid {
					tt.then(m, of, pid)
					return checkpoint.ErrNoCUDA, false
				}
				return nil, true
			})
			check(t, s.Can(t.Context(), "c"), tt.want)
		})
	}
}
