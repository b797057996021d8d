package gate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// phases in the order in which they tell what a container does whose processes
// are in different ones.
var phases = []plan.Phase{plan.Computing, plan.Waiting, plan.Preparing, plan.Finishing}

// process is one process of a container that is under the gate. What is in it is
// guarded by Gate.mu.
type process struct {
	pid, pidfd int
	of         *container
	phase      plan.Phase
	since      time.Time // in this phase
	obstacle   string    // why the gate does not stop it; empty as a rule
	assumed    bool      // computing, as far as anybody knows
	leaving    bool      // it was asked to end: it is not stopped any more
	through    time.Time // when its launches were last known to be through
	lingering  bool      // a timer runs that looks whether it has launched again
	creates    bool      // it has called for a context, or may have
	stands     time.Time // since when it stands at that call; zero: it does not
}

func (g *Gate) enter(p *process, phase plan.Phase, at time.Time) {
	p.assumed = false
	if p.phase == phase {
		return
	}
	p.phase, p.since = phase, at
	g.o.Logger.Debug("launch gate: phase", "pid", p.pid, "container", p.of.id, "phase", string(phase), "at", at, "admitted", p.of.admitted)
	g.tell()
}

// since is from when on a process was seen.
type since int

const (
	loaded   since = iota // it has loaded the driver, and may have launched
	early                 // it called cuInit a while ago, and may have a context
	starting              // it is just calling cuInit
)

// adopt puts a process under the gate. The process may be any, and gone. Attaching
// takes a while, so it happens without the lock: nobody's turn waits for it.
func (g *Gate) adopt(pid int, c *container, seen since) {
	busy := seen == loaded
	p := g.enlist(pid, c, seen)
	if p == nil {
		return
	}
	begun := time.Now()
	err := g.kernel.Gate(pid, busy)
	if err == nil {
		if g.o.Attached != nil {
			g.o.Attached(pid, time.Since(begun))
		}
		if busy { // from now on its launches are seen
			time.AfterFunc(g.o.Assume, func() { g.doubt(p) })
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.processes[pid] != p {
		return
	}
	if proc.Ended(p.pidfd) || errors.Is(err, cudaprobe.ErrNotLoaded) || g.closed {
		g.remove(p)
		return
	}
	g.exclude(p, err.Error())
}

// enlist makes a process known; nil: it is known, or not one of the container's.
func (g *Gate) enlist(pid int, c *container, seen since) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.containers[c.id] != c || g.processes[pid] != nil {
		return nil
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // gone
	}
	// What is read of the PID is of the process behind the pidfd, if that is still
	// alive afterwards.
	id, in, err := g.o.Container(pid)
	obstacle := proc.Obstacle(g.o.Proc, pid)
	if err != nil || !in || id != c.id || proc.Ended(pidfd) || g.exits.Add(pid, pidfd) != nil {
		_ = unix.Close(pidfd)
		return nil
	}
	p := &process{pid: pid, pidfd: pidfd, of: c, phase: plan.Preparing, since: g.o.Now(), creates: seen != starting}
	g.processes[pid], c.processes[pid] = p, p
	g.o.Logger.Debug("launch gate: found", "pid", pid, "container", c.id, "busy", seen == loaded, "admitted", c.admitted)
	g.tell()
	if obstacle != "" {
		g.exclude(p, obstacle)
		return nil
	}
	if seen == loaded {
		p.phase, p.assumed = plan.Computing, true
	}
	g.kernel.Reset(pid)
	switch {
	case c.admitted:
		g.note(g.kernel.Admit(pid))
	case c.back && !p.creates:
		g.note(g.kernel.Back(pid))
	}
	return p
}

// exclude leaves a process to be paused with its container.
func (g *Gate) exclude(p *process, why string) {
	g.o.Logger.Warn("the launch gate cannot stop a process; its container is to be paused instead", "pid", p.pid, "why", why)
	p.obstacle, p.phase = why, ""
	g.tell()
}

// doubt ends the assumption that a process computes, unless it has launched since.
func (g *Gate) doubt(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || !p.assumed || g.processes[p.pid] != p {
		return
	}
	p.assumed = false
	if begun, _, err := g.kernel.Launches(p.pid); err != nil || begun <= 1 {
		g.enter(p, plan.Finishing, g.o.Now())
	}
}

// remove takes a process from under the gate: it passes from then on.
func (g *Gate) remove(p *process) {
	if g.processes[p.pid] != p {
		return
	}
	delete(g.processes, p.pid)
	delete(p.of.processes, p.pid)
	p.of.left = g.o.Now()
	g.kernel.Drop(p.pid)
	g.letGo(p)
	g.exits.Remove(p.pidfd)
	_ = unix.Close(p.pidfd)
	g.tell()
}

// letGo continues a process if it is stopped. Its admission, or the end of its
// being gated, must be in the kernel before.
func (g *Gate) letGo(p *process) {
	if !g.kernel.IsHeld(p.pid) {
		return
	}
	if err := unix.PidfdSendSignal(p.pidfd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		g.o.Logger.Error("cannot continue a process", "pid", p.pid, "err", err)
		return // it stays on record
	}
	g.note(g.kernel.Forget(p.pid))
	g.release(p)
}

// note says what should not happen, and what nobody can do anything about.
func (g *Gate) note(err error) {
	if err != nil && !g.closed {
		g.o.Logger.Error("launch gate", "err", err)
	}
}

// onStart takes note that a process has called cuInit.
func (g *Gate) onStart(e cudaprobe.Event) {
	switch e.Kind {
	case cudaprobe.InitCalled:
	case cudaprobe.ContextCalled:
		g.mu.Lock()
		if p := g.processes[e.PID]; p != nil {
			p.creates = true
		}
		g.mu.Unlock()
		return
	default:
		return
	}
	id, in, err := g.o.Container(e.PID)
	if err != nil || !in {
		return
	}
	g.mu.Lock()
	c := g.containers[id]
	switch p := g.processes[e.PID]; {
	case p == nil:
	case p.assumed: // it had loaded the driver, and begins only now
		g.enter(p, plan.Preparing, e.Time)
	default:
		g.remove(p) // another process, or a new program in the old one
	}
	if c == nil {
		g.keepEarly(id, e.PID)
	}
	g.mu.Unlock()
	if c != nil {
		g.adopt(e.PID, c, starting)
	}
}

// onKernel takes note of what a process under the gate did.
func (g *Gate) onKernel(e cudaprobe.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.processes[e.PID]
	if p == nil {
		return // it was removed at this moment, and let go
	}
	switch e.Kind {
	case cudaprobe.Held:
		if p.of.admitted || p.leaving { // its admission came at the same time
			g.letGo(p)
			g.enter(p, plan.Computing, e.Time)
			return
		}
		g.enter(p, plan.Waiting, e.Time)
	case cudaprobe.HeldBack:
		p.creates, p.stands = true, e.Time
		if !p.of.back || p.leaving { // it was called forth at the same time
			g.forth(p)
		}
		g.tell()
	case cudaprobe.Launched:
		g.enter(p, plan.Computing, e.Time)
	case cudaprobe.Done:
		g.done(p)
	case cudaprobe.Continued:
		if g.kernel.Weakness() != nil && !p.of.admitted {
			_ = unix.PidfdSendSignal(p.pidfd, unix.SIGSTOP, nil, 0) // it may be gone
		}
	case cudaprobe.AskedToEnd:
		p.leaving = true
		g.note(g.kernel.Forth(p.pid))
		g.note(g.kernel.Admit(p.pid))
		g.letGo(p)
		p.stands = time.Time{}
		g.enter(p, plan.Finishing, e.Time)
	}
}

func (g *Gate) onExit(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[pid]; p != nil && proc.Ended(p.pidfd) {
		g.note(g.kernel.Forget(pid))
		g.remove(p)
		g.rest(p.of)
	}
}
