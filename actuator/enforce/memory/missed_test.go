package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// unreadables are processes, by PID, with the error that the search for their container ends with.
type unreadables struct{ sync.Map }

func (u *unreadables) of(real func(int) (string, bool, error)) func(int) (string, bool, error) {
	return func(pid int) (string, bool, error) {
		if err, ok := u.Load(pid); ok {
			return "", false, fmt.Errorf("container of process %d: %w", pid, err.(error))
		}
		return real(pid)
	}
}

// A process whose container cannot be read is none that has ended: it is guarded as soon as that can be read.
func TestWhoCannotBeLookedAtIsTriedAgain(t *testing.T) {
	var hidden unreadables
	r := start(t, func(o *memory.Options) { o.Container = hidden.of(o.Container) })
	first := r.join(t, 100*mib) // its driver has its probe
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	hidden.Store(p.PID, unix.EMFILE)
	p.Open()
	p.Call("cuInit")
	until(t, func() bool { return r.Missed(p.PID) != "" }, r.reports("a"))
	if v := r.Report()["a"]; slices.Contains(v.PIDs, p.PID) || !slices.Contains(v.PIDs, first.PID) {
		t.Errorf("%+v", v)
	}
	hidden.Delete(p.PID)
	until(t, func() bool { return slices.Contains(r.Report()["a"].PIDs, p.PID) }, r.reports("a"))
	if why := r.Missed(p.PID); why != "" {
		t.Errorf("it is still to be looked at: %s", why)
	}
}

// seconds are processes, by PID, whose container every other look does not find: the first one does, so that the
// container of who cannot be guarded is known.
type seconds struct{ sync.Map }

func (s *seconds) fails(real func(int) (string, bool, error)) func(int) (string, bool, error) {
	var looks sync.Map // by PID
	return func(pid int) (string, bool, error) {
		if _, ok := s.Load(pid); ok {
			n, _ := looks.LoadOrStore(pid, new(atomic.Int64))
			if n.(*atomic.Int64).Add(1)%2 == 0 {
				return "", false, unix.EIO
			}
		}
		return real(pid)
	}
}

// TestMissedFailureEnds: a container with a process that could not be looked at may get more than its limit
// until that is guarded, or has ended, and a later reading shows the container within the limit and one context.
func TestMissedFailureEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes                               uint64 // allocated while it is missed
		lost, beyond, ended, slow, stranger bool
	}{
		"it has ended":                                 {bytes: 10 * mib, ended: true},
		"its container is not found meanwhile":         {bytes: 10 * mib, lost: true},
		"it is looked at, and its probes come late":    {bytes: 10 * mib, slow: true},
		"a process of unknown container is on its GPU": {bytes: 10 * mib, stranger: true},
		"it is guarded, beyond the limit by less":      {bytes: 120 * mib},
		"beyond the limit by more than a context":      {bytes: 200 * mib, beyond: true},
	} {
		t.Run(name, func(t *testing.T) {
			var secondLook seconds
			var hidden unreadables
			var why sync.Map
			var now clock
			var read atomic.Int64
			r := start(t, func(o *memory.Options) {
				o.Container = hidden.of(secondLook.fails(o.Container))
				o.Passing = func(id, reason string) { why.Store(id, reason) }
				o.Now = now.Now
				usage := o.Usage
				o.Usage = func(ctx context.Context) (map[string]task.Usage, error) { read.Add(1); return usage(ctx) }
			})
			report := r.reports("a")
			failed := func() bool { w, _ := why.Load("a"); return w != nil && w != "" }
			later := func(ahead time.Duration) { // and some readings
				t.Helper()
				now.set(ahead)
				seen := read.Load()
				until(t, func() bool { return read.Load() > seen+2 }, report)
			}
			r.join(t, 100*mib)
			p := r.built.Start(t)
			r.members.Store(p.PID, "a")
			secondLook.Store(p.PID, true)
			p.Open()
			p.Call("cuInit")
			until(t, failed, report)
			if tt.lost {
				hidden.Store(p.PID, unix.EMFILE)
				until(t, func() bool { return strings.Contains(r.Missed(p.PID), unix.EMFILE.Error()) }, report)
				later(30 * time.Second)
				if !failed() {
					t.Fatal("it ended though a process that was in it is missed")
				}
			}
			if a := p.Alloc("cuMemAlloc_v2", tt.bytes, 1); a.Count != 1 {
				t.Fatalf("it is not guarded, and is refused: %+v", a)
			}
			var stranger *cudatest.Program
			if tt.stranger {
				stranger = r.built.Start(t)
				hidden.Store(stranger.PID, unix.EMFILE)
				stranger.Open()
				stranger.Call("cuInit")
				until(t, func() bool { return r.Missed(stranger.PID) != "" }, report)
				stranger.Alloc("cuMemAlloc_v2", mib, 1)
			}
			later(time.Minute)
			if !failed() {
				t.Fatal("it ended though a process is missed")
			}
			if tt.ended {
				if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				until(t, func() bool { return r.Missed(p.PID) == "" }, report)
			} else {
				release := func() {}
				if tt.slow {
					var wait func()
					wait, release = cudatest.Hold(t, r.built.Library, unix.FAN_OPEN_PERM|unix.FAN_ACCESS_PERM)
					secondLook.Delete(p.PID)
					wait()
					later(90 * time.Second)
					if !failed() {
						t.Fatal("it ended though a process has no probes yet")
					}
				}
				guarded := time.Now()
				hidden.Delete(p.PID)
				secondLook.Delete(p.PID)
				release()
				until(t, func() bool { return slices.Contains(report().PIDs, p.PID) }, report)
				later(time.Duration(now.ahead.Load()))
				if !failed() && time.Since(guarded) < 4*time.Second {
					t.Fatal("it ended though the driver may not list what passed")
				}
			}
			later(2 * time.Minute)
			if tt.stranger {
				if !failed() {
					t.Fatalf("it ended though nobody knows whether another process is one of it: %+v", report())
				}
				hidden.Delete(stranger.PID)
			}
			if tt.beyond {
				if !failed() {
					t.Fatalf("it ended beyond the limit: %+v", report())
				}
				p.Free("cuMemFree_v2", 1)
			}
			until(t, func() bool { return !failed() }, report)
			if tt.ended {
				return
			}
			if a := p.Alloc("cuMemAlloc_v2", 200*mib, 1); a.Result != cudatest.OutOfMemory {
				t.Errorf("the limit holds again: %+v", a)
			}
		})
	}
}

// If the container is known, it may get more than its limit, which is told.
func TestWhoCannotBeGuardedIsReported(t *testing.T) {
	var secondLook seconds
	passing := make(chan string, 100)
	r := start(t, func(o *memory.Options) {
		o.Container = secondLook.fails(o.Container)
		o.Passing = func(_, why string) { passing <- why }
	})
	r.join(t, 100*mib)
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	secondLook.Store(p.PID, true)
	p.Open()
	p.Call("cuInit")
	until(t, func() bool { return strings.Contains(r.Report()["a"].Obstacle, "input/output error") }, r.reports("a"))
	if why := <-passing; !strings.Contains(why, "cannot be guarded: ") {
		t.Error(why)
	}
	secondLook.Delete(p.PID)
	until(t, func() bool {
		v := r.Report()["a"]
		return slices.Contains(v.PIDs, p.PID) && v.Obstacle == ""
	}, r.reports("a"))
}

func TestGone(t *testing.T) {
	for _, tt := range []struct {
		err  error
		gone bool
	}{
		{unix.ESRCH, true}, {fmt.Errorf("container of process 1: %w", fs.ErrNotExist), true}, {unix.ENOENT, true},
		{unix.EMFILE, false}, {unix.ENOSPC, false}, {unix.EPERM, false}, {errors.New("x"), false},
	} {
		if memory.Gone(tt.err) != tt.gone {
			t.Errorf("%v", tt.err)
		}
	}
}
