package memory_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/memory"
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

// If the container is known, it may get more than its limit, which is told.
func TestWhoCannotBeGuardedIsReported(t *testing.T) {
	var calls, fails sync.Map // by PID: how often its container was asked for; from which call on that fails
	r := start(t, func(o *memory.Options) {
		real := o.Container
		o.Container = func(pid int) (string, bool, error) {
			n, _ := calls.LoadOrStore(pid, 0)
			calls.Store(pid, n.(int)+1)
			if parity, ok := fails.Load(pid); ok && n.(int)%2 == parity.(int) {
				return "", false, unix.EIO
			}
			return real(pid)
		}
	})
	r.join(t, 100*mib)
	p := r.built.Start(t)
	r.members.Store(p.PID, "a")
	fails.Store(p.PID, 1) // the first look finds the container, the second one does not
	p.Open()
	p.Call("cuInit")
	until(t, func() bool { return strings.Contains(r.Report()["a"].Obstacle, "input/output error") }, r.reports("a"))
	if why := <-r.failed; !strings.Contains(why, "cannot be guarded: ") {
		t.Error(why)
	}
	fails.Delete(p.PID)
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
