package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// Direction is the way of a transfer, seen from the GPU.
type Direction int

// In is host to device, Out is device to host.
const (
	In Direction = iota
	Out
)

// Process is a tenant. Its methods block as long as the driver's would. It is
// safe for concurrent use.
type Process struct {
	gpu      *GPU
	pid      int
	refs     int // connections
	exited   chan struct{}
	contexts map[*unit]*gpuContext
	copying  int // transfers under way

	// Of the checkpoint API, see checkpoint.go.
	state     CheckpointState
	turn      chan struct{} // closed when calls may go on; nil: they may
	step      string        // the step that is under way, or empty
	restoring bool
	agents    map[*agent]bool

	mps    bool   // it computes through an MPS server
	start  uint64 // clock ticks since boot; 0: not known
	client uint32 // of the resource manager
}

// Attach makes pid a tenant, or returns the tenant that it already is. Each
// Attach is undone by one Detach.
func (g *GPU) Attach(pid int) *Process { return g.attach(Tenant{PID: pid}) }

func (g *GPU) attach(t Tenant) *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	pid := t.PID
	p := g.procs[pid]
	if p == nil {
		g.clients++
		p = &Process{gpu: g, pid: pid, exited: make(chan struct{}), contexts: map[*unit]*gpuContext{},
			client: firstClient + g.clients}
		g.procs[pid] = p
	}
	if t.Start != 0 {
		p.start = t.Start
	}
	p.refs++
	return p
}

// UseMPS makes the tenant, before its first context, a client of an MPS server, which owns its
// channels: it is listed as one, and nobody may control its channels.
func (p *Process) UseMPS() {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	p.mps = true
}

// Detach undoes one Attach; the last one is the end of the tenant.
func (p *Process) Detach() {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if p.refs--; p.refs <= 0 {
		p.exit()
	}
}

// Exit ends the tenant. See the package's comment for what happens to its work.
func (p *Process) Exit() {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	p.exit()
}

func (p *Process) exit() {
	g := p.gpu
	select {
	case <-p.exited:
		return
	default:
	}
	close(p.exited)
	if p.restoring {
		p.gpu.casualties.Killed++
	}
	if g.procs[p.pid] == p {
		delete(g.procs, p.pid)
	}
	g.advance()
	for u := range p.contexts {
		p.closeContext(u)
	}
	g.rearm()
}

// Exited is closed when the tenant has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Open creates a context on unit i, and blocks until it is there. A second one
// is the same one.
func (p *Process) Open(ctx context.Context, i int) error {
	for {
		if more, err := p.openPiece(ctx, i); !more || err != nil {
			return err
		}
	}
}

// openPiece is one piece of Open: what a process still gets done that is frozen
// then. more: there is more to do.
func (p *Process) openPiece(ctx context.Context, i int) (more bool, err error) {
	g := p.gpu
	g.mu.Lock()
	if err := p.awaitTurn(); err != nil {
		g.mu.Unlock()
		return false, err
	}
	now := g.advance()
	c, err := p.openLocked(i, now)
	if err != nil {
		g.mu.Unlock()
		return false, err
	}
	piece := min(c.work, pieceTime)
	c.work -= piece
	more = c.work > 0
	g.mu.Unlock()
	if piece > 0 {
		if err := p.hold(ctx, piece); err != nil {
			return false, err
		}
	}
	if more {
		return true, nil
	}
	if err := p.sleep(ctx, time.Until(c.ready)-ownSliceAfter); err != nil {
		return false, err
	}
	g.schedule(p, i)
	if err := p.sleep(ctx, time.Until(c.ready)); err != nil {
		return false, err
	}
	g.ownSlice(p, i)
	return false, nil
}

// hold takes its turn with the driver for as long as a piece of its work takes.
func (p *Process) hold(ctx context.Context, piece time.Duration) error {
	select {
	case p.gpu.creating <- struct{}{}: // first come, first served
		defer func() { <-p.gpu.creating }()
		return p.sleep(ctx, piece)
	case <-p.exited:
		return ErrExited
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Process) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-p.exited:
		return ErrExited
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close destroys the context on unit i and all that it holds.
func (p *Process) Close(i int) error {
	return p.with(i, func(u *unit, _ *gpuContext, _ time.Time) error {
		p.closeContext(u)
		return nil
	})
}

// Alloc takes bytes of memory on unit i and returns their address. It blocks for as
// long as that takes; only then the process is listed with it.
func (p *Process) Alloc(i int, bytes uint64) (address uint64, err error) {
	var owner *gpuContext
	err = p.with(i, func(u *unit, c *gpuContext, _ time.Time) error {
		if bytes == 0 {
			return fmt.Errorf("%w: allocation of 0 bytes", ErrInvalid)
		}
		if free := u.info.MemoryTotal - u.held(p.gpu.opts); bytes > free {
			return fmt.Errorf("%w: asked for %d MiB, %d MiB free", ErrOutOfMemory, bytes/mib, free/mib)
		}
		address = c.nextPtr
		c.nextPtr += (bytes + 0xfff) &^ 0xfff
		c.allocs[address] = bytes
		c.memory += bytes
		c.coming += bytes
		owner = c
		return nil
	})
	if err != nil {
		return 0, err
	}
	if rate := p.gpu.opts.AllocRate; rate > 0 {
		select {
		case <-time.After(seconds(float64(bytes) / rate)):
		case <-p.exited:
			return 0, ErrExited
		}
	}
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	owner.coming -= bytes
	return address, nil
}

// Free gives back what Alloc returned.
func (p *Process) Free(i int, address uint64) error {
	return p.with(i, func(_ *unit, c *gpuContext, _ time.Time) error {
		bytes, ok := c.allocs[address]
		if !ok {
			return fmt.Errorf("%w: nothing allocated at %#x", ErrInvalid, address)
		}
		delete(c.allocs, address)
		c.memory -= bytes
		return nil
	})
}

// Memory is the free and the total memory of unit i, in bytes.
func (p *Process) Memory(i int) (free, total uint64, err error) {
	err = p.with(i, func(u *unit, _ *gpuContext, _ time.Time) error {
		total = u.info.MemoryTotal
		free = total - u.held(p.gpu.opts)
		return nil
	})
	return free, total, err
}

// Launch queues a kernel of so many floating-point operations and returns its
// number at once; the process's kernels on a unit are numbered from 1.
func (p *Process) Launch(i int, flops float64) (number uint64, err error) {
	if !(flops >= 0) || math.IsInf(flops, 0) {
		return 0, fmt.Errorf("%w: %v operations", ErrInvalid, flops)
	}
	return p.launch(i, func(u *unit) time.Duration { return seconds(flops / u.speed.Flops) })
}

// LaunchFor queues a kernel that takes alone when the unit is otherwise idle.
func (p *Process) LaunchFor(i int, alone time.Duration) (number uint64, err error) {
	if alone < 0 {
		return 0, fmt.Errorf("%w: a kernel of %v", ErrInvalid, alone)
	}
	return p.launch(i, func(*unit) time.Duration { return alone })
}

func (p *Process) launch(i int, length func(*unit) time.Duration) (number uint64, err error) {
	err = p.with(i, func(u *unit, c *gpuContext, now time.Time) error {
		c.last++
		number = c.last
		c.flying[number] = u.compute.Launch(now, c.owner, length(u))
		return nil
	})
	return number, err
}

// Sync blocks until the kernels up to number have ended; 0 means all that were
// launched so far.
func (p *Process) Sync(ctx context.Context, i int, number uint64) error {
	op, err := p.lastUpTo(i, number)
	if err != nil {
		return err
	}
	return p.await(ctx, op)
}

// Query tells without waiting what Sync would wait for.
func (p *Process) Query(i int, number uint64) (ended bool, err error) {
	op, err := p.lastUpTo(i, number)
	return op == nil, err
}

// lastUpTo returns the last kernel in flight with at most this number, nil if
// there is none. Kernels of one process end in order.
func (p *Process) lastUpTo(i int, number uint64) (op *compute.Op, err error) {
	err = p.with(i, func(_ *unit, c *gpuContext, _ time.Time) error {
		if number > c.last {
			return fmt.Errorf("%w: kernel %d was not launched", ErrInvalid, number)
		}
		if number == 0 {
			number = c.last
		}
		c.forgetEnded()
		latest := uint64(0)
		for n, o := range c.flying {
			if n <= number && n > latest {
				latest, op = n, o
			}
		}
		return nil
	})
	return op, err
}

// Copy moves bytes, after the kernels that were launched so far, and blocks
// until they are there.
func (p *Process) Copy(ctx context.Context, i int, dir Direction, bytes uint64) error {
	if dir != In && dir != Out {
		return fmt.Errorf("%w: direction %d", ErrInvalid, dir)
	}
	if err := p.Sync(ctx, i, 0); err != nil {
		return err
	}
	var op *compute.Op
	var on *unit
	err := p.with(i, func(u *unit, c *gpuContext, now time.Time) error {
		rate := u.speed.CopyIn
		if dir == Out {
			rate = u.speed.CopyOut
		}
		op = u.compute.Copy(now, c.owner, seconds(float64(bytes)/rate))
		p.copying++
		on = u
		return nil
	})
	if err != nil {
		return err
	}
	err = p.await(ctx, op)
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	p.copying--
	if err == nil {
		on.copied[dir] += bytes
	}
	return err
}

// SetPower sets what GPU i draws, in W, beyond its idle power, while this process computes.
func (p *Process) SetPower(i int, watts float64) error {
	return p.with(i, func(u *unit, c *gpuContext, now time.Time) error {
		u.compute.Draw(now, c.owner, watts)
		return nil
	})
}

func (p *Process) await(ctx context.Context, op *compute.Op) error {
	if op == nil {
		return nil
	}
	select {
	case <-op.Done():
		if op.Dropped() {
			return ErrLost
		}
		return nil
	case <-p.exited:
		return ErrExited
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with runs f on the process's context of unit i, at the present.
func (p *Process) with(i int, f func(*unit, *gpuContext, time.Time) error) error {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := p.awaitTurn(); err != nil {
		return err
	}
	u, err := g.unitAt(i)
	if err != nil {
		return err
	}
	now := g.advance()
	c := p.contexts[u]
	if c == nil {
		return fmt.Errorf("%w: %d", ErrNoContext, i)
	}
	if err := f(u, c, now); err != nil {
		return err
	}
	g.rearm()
	return nil
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s*1e9, math.MaxInt64/4))
}
