package gate

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
)

// released is a process that was let go a moment ago.
type released struct {
	pid, pidfd int
	until      time.Time
}

const (
	// verifyFor is how long it is looked after whoever was let go.
	verifyFor = time.Second
	// verifyEvery is how often.
	verifyEvery = 10 * time.Millisecond
)

// The kernel stops a thread that it has just turned to in two steps: it looks
// whether the process is held, and sends SIGSTOP when interrupts are on again. A
// SIGCONT of ours in between, on a machine whose CPUs are taken away for a while,
// would come first; the process would stand still, and nobody would know. So
// whoever was let go is looked after for a while.
func (g *Gate) release(p *process) {
	pidfd, err := unix.FcntlInt(uintptr(p.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		g.o.Logger.Warn("cannot look after a process that was let go", "pid", p.pid, "err", err)
		return
	}
	g.released = append(g.released, released{p.pid, pidfd, g.o.Now().Add(verifyFor)})
	select {
	case g.letgo <- struct{}{}:
	default:
	}
}

// lookAfter continues those that were let go and are stopped all the same.
func (g *Gate) lookAfter(ctx context.Context) error {
	rounds{every: verifyEvery, woken: g.letgo, look: func() bool { return g.verify(false) }}.run(ctx)
	return nil
}

// verify reports whether somebody is left to be looked after.
func (g *Gate) verify(last bool) (left bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.o.Now()
	g.released = slices.DeleteFunc(g.released, func(r released) bool {
		// In this order: whoever was stopped at a new launch was on record before.
		if s, ok := proc.ReadStat(g.o.Proc, r.pid); ok && s.State == 'T' && !g.kernel.IsHeld(r.pid) && !proc.Ended(r.pidfd) {
			g.o.Logger.Debug("launch gate: a process was stopped after it was let go", "pid", r.pid)
			_ = unix.PidfdSendSignal(r.pidfd, unix.SIGCONT, nil, 0) // it may be gone
		}
		over := last || !now.Before(r.until)
		if over {
			_ = unix.Close(r.pidfd)
		}
		return over
	})
	return len(g.released) > 0
}
