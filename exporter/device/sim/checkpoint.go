package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Errors of the checkpoint API and the resource manager.
var (
	ErrNoProcess    = errors.New("no such process uses CUDA")
	ErrState        = errors.New("the process is not in the state for this")
	ErrNotReady     = errors.New("kernels did not end in time")
	ErrNotSupported = errors.New("not supported")
	ErrNotPermitted = errors.New("not permitted")
)

// CheckpointState is a process's state in the driver's checkpoint API.
type CheckpointState int

// The states; the numbers are those of CUprocessState.
const (
	ProcessRunning CheckpointState = iota
	ProcessLocked
	ProcessCheckpointed
	ProcessFailed
)

// CheckpointCost is how long the steps of the checkpoint API take. Durations are as in
// Options: 0 is the default, a negative one is none.
type CheckpointCost struct {
	Lock       time.Duration // besides the kernels that have to end; default 30 ms
	Checkpoint time.Duration // besides the memory; default 100 ms
	Restore    time.Duration // the same; default 100 ms
	Unlock     time.Duration // default 2 ms
	// CheckpointRate and RestoreRate are bytes per second; default 2.8e9 and 8e9.
	CheckpointRate, RestoreRate float64
}

func (c CheckpointCost) withDefaults() CheckpointCost {
	set := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		*d = max(*d, 0)
	}
	set(&c.Lock, 30*time.Millisecond)
	set(&c.Checkpoint, 100*time.Millisecond)
	set(&c.Restore, 100*time.Millisecond)
	set(&c.Unlock, 2*time.Millisecond)
	if c.CheckpointRate <= 0 {
		c.CheckpointRate = 2.8e9
	}
	if c.RestoreRate <= 0 {
		c.RestoreRate = 8e9
	}
	return c
}

// step is one call of the checkpoint API on a process. Its steps are done by the
// process's own threads: one that cannot run (frozen, stopped) does nothing, for
// ever, whatever the call's time limit.
type step struct {
	name string
	from CheckpointState
}

// CheckpointState is cuCheckpointProcessGetState.
func (g *GPU) CheckpointState(pid int) (CheckpointState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.procs[pid]
	if p == nil {
		return 0, fmt.Errorf("%w: %d", ErrNoProcess, pid)
	}
	return p.state, nil
}

// CheckpointStep names the step of the checkpoint API that is under way on a process: lock,
// checkpoint, restore, unlock; empty if none is. Tests wait for it to interrupt that step.
func (g *GPU) CheckpointStep(pid int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.procs[pid]; p != nil {
		return p.step
	}
	return ""
}

// Lock is cuCheckpointProcessLock: what is queued runs to its end, and further calls of
// the process block. limit 0 is none.
func (g *GPU) Lock(ctx context.Context, pid int, limit time.Duration) error {
	return g.step(ctx, step{name: "lock", from: ProcessRunning}, pid, func(ctx context.Context, p *Process) error {
		return g.lock(ctx, p, limit)
	})
}

func (g *GPU) lock(ctx context.Context, p *Process, limit time.Duration) error {
	g.mu.Lock()
	if p.state != ProcessRunning { // two at a time
		g.mu.Unlock()
		return ErrState
	}
	p.state, p.turn = ProcessLocked, make(chan struct{})
	g.mu.Unlock()
	err := g.quiet(ctx, p, limit)
	if err == nil {
		err = p.pass(ctx, g.opts.Checkpoint.Lock)
	}
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		p.release()
	}
	return err
}

// quiet waits until nothing of the process is under way.
func (g *GPU) quiet(ctx context.Context, p *Process, limit time.Duration) error {
	if limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrNotReady)
		defer cancel()
	}
	for {
		g.mu.Lock()
		g.advance()
		busy := p.copying > 0
		for u, c := range p.contexts {
			busy = busy || u.compute.Busy(c.owner)
		}
		g.mu.Unlock()
		if !busy {
			return nil
		}
		if err := p.pass(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// Checkpoint is cuCheckpointProcessCheckpoint: the process's contexts leave the GPU.
func (g *GPU) Checkpoint(ctx context.Context, pid int) error {
	return g.step(ctx, step{name: "checkpoint", from: ProcessLocked}, pid, func(ctx context.Context, p *Process) error {
		g.mu.Lock()
		bytes := p.held()
		g.mu.Unlock()
		cost := g.opts.Checkpoint
		if err := p.pass(ctx, cost.Checkpoint+seconds(float64(bytes)/cost.CheckpointRate)); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.advance()
		for u, c := range p.contexts {
			u.contexts = slices.DeleteFunc(u.contexts, func(other *gpuContext) bool { return other == c })
		}
		p.state = ProcessCheckpointed
		return nil
	})
}

// Restore is cuCheckpointProcessRestore: the contexts come back. Without room on every
// GPU the process is lost.
func (g *GPU) Restore(ctx context.Context, pid int) error {
	return g.step(ctx, step{name: "restore", from: ProcessCheckpointed}, pid, func(ctx context.Context, p *Process) error {
		g.mu.Lock()
		now := g.advance()
		for u, c := range p.contexts {
			if u.held(g.opts)+c.memory+g.opts.ContextMemory > u.info.MemoryTotal {
				p.state = ProcessFailed
				g.casualties.NoRoom++
				p.release()
				g.mu.Unlock()
				return fmt.Errorf("%w: restore of %d", ErrOutOfMemory, pid)
			}
		}
		for u, c := range p.contexts {
			c.opened = now.Add(-g.opts.ListDelay) // listed at once, as measured
			u.contexts = append(u.contexts, c)
		}
		bytes := p.held()
		p.restoring = true
		g.mu.Unlock()
		cost := g.opts.Checkpoint
		err := p.pass(ctx, cost.Restore+seconds(float64(bytes)/cost.RestoreRate))
		g.mu.Lock()
		defer g.mu.Unlock()
		if err == nil {
			p.restoring, p.state = false, ProcessLocked
		}
		return err
	})
}

// Unlock is cuCheckpointProcessUnlock.
func (g *GPU) Unlock(ctx context.Context, pid int) error {
	return g.step(ctx, step{name: "unlock", from: ProcessLocked}, pid, func(ctx context.Context, p *Process) error {
		if err := p.pass(ctx, g.opts.Checkpoint.Unlock); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		p.state = ProcessRunning
		p.release()
		return nil
	})
}

// step checks what is the same for all steps, and runs one.
func (g *GPU) step(ctx context.Context, s step, pid int, run func(context.Context, *Process) error) error {
	g.mu.Lock()
	p := g.procs[pid]
	if p == nil {
		g.mu.Unlock()
		return fmt.Errorf("%w: %d", ErrNoProcess, pid)
	}
	state, injected := p.state, g.faults.steps[s.name]
	busy := p.step != ""
	if state == s.from && !busy && injected == nil {
		p.step = s.name
	}
	agents := maps.Clone(p.agents)
	g.mu.Unlock()
	switch {
	case injected != nil:
		return injected
	case state != s.from || busy:
		return fmt.Errorf("%w: %s of %d, which is in state %d", ErrState, s.name, pid, state)
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		p.step = ""
	}()
	for a := range agents {
		if err := a.ask(ctx, p); err != nil {
			return err
		}
	}
	return run(ctx, p)
}

// pass waits for some time of the process's life.
func (p *Process) pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.exited:
		return ErrExited
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release lets the process's calls go on. The caller holds mu.
func (p *Process) release() {
	if p.state == ProcessLocked {
		p.state = ProcessRunning
	}
	if p.turn != nil {
		close(p.turn)
		p.turn = nil
	}
}

// held is what the process holds on all GPUs, or held. The caller holds mu.
func (p *Process) held() uint64 {
	var sum uint64
	for _, c := range p.contexts {
		sum += c.memory + p.gpu.opts.ContextMemory
	}
	return sum
}

// awaitTurn waits until the process is not locked. The caller holds mu, which is given
// up meanwhile.
func (p *Process) awaitTurn() error {
	for p.turn != nil {
		turn := p.turn
		p.gpu.mu.Unlock()
		select {
		case <-turn:
		case <-p.exited:
		}
		p.gpu.mu.Lock()
		select {
		case <-p.exited:
			return ErrExited
		default:
		}
	}
	if p.state == ProcessFailed {
		return fmt.Errorf("%w: the process could not be restored", ErrLost)
	}
	return nil
}

// agent is the thread of a process that does the steps for it.
type agent struct {
	asked chan chan<- struct{}
	gone  chan struct{}
}

func (p *Process) addAgent() *agent {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	a := &agent{asked: make(chan chan<- struct{}), gone: make(chan struct{})}
	if p.agents == nil {
		p.agents = map[*agent]bool{}
	}
	p.agents[a] = true
	return a
}

func (p *Process) removeAgent(a *agent) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	delete(p.agents, a)
	close(a.gone)
}

// ask returns when the thread has run.
func (a *agent) ask(ctx context.Context, p *Process) error {
	done := make(chan struct{})
	asked := a.asked
	for {
		select {
		case asked <- done:
			asked = nil
		case <-done:
			return nil
		case <-a.gone:
			return nil // it says nothing any more: the end of the process is seen elsewhere
		case <-p.exited:
			return ErrExited
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Casualties counts processes that a checkpoint API was used on wrongly.
type Casualties struct {
	NoRoom int // restored without room: lost
	Killed int // ended in the middle of a restore, which can hang a real host
}

// Casualties returns the counts since New.
func (g *GPU) Casualties() Casualties {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.casualties
}

// FailStep makes a step of the checkpoint API (lock, checkpoint, restore or unlock) or a
// call on channels (find, slice, setslice or switch) fail with err, for every process
// and without doing anything; nil makes it work again.
func (g *GPU) FailStep(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.steps == nil {
		g.faults.steps = map[string]error{}
	}
	g.faults.steps[name] = err
}
