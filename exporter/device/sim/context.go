package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// gpuContext is what one process holds on one unit.
type gpuContext struct {
	owner   compute.Owner
	pid     int
	mps     bool // of a client of an MPS server
	opened  time.Time
	ready   time.Time     // creation is through, unless there is work left
	work    time.Duration // left of ContextShared
	memory  uint64        // allocated, without the context itself
	coming  uint64        // of that, by calls that have not returned yet
	allocs  map[uint64]uint64
	nextPtr uint64
	last    uint64                 // number of the last kernel
	flying  map[uint64]*compute.Op // kernels by number, until seen ended
	handle  uint32                 // of its channel group
	runs    bool                   // the group is scheduled, and can be found
	sliced  bool                   // libcuda has set the group's slice
	dying   bool
	died    time.Time
}

func (p *Process) openLocked(i int, now time.Time) (*gpuContext, error) {
	g := p.gpu
	u, err := g.unitAt(i)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.exited:
		return nil, ErrExited
	default:
	}
	if c := p.contexts[u]; c != nil {
		return c, nil
	}
	if u.held(g.opts)+g.opts.ContextMemory > u.info.MemoryTotal {
		return nil, fmt.Errorf("%w: a context needs %d MiB", ErrOutOfMemory, g.opts.ContextMemory/mib)
	}
	g.owners++
	c := &gpuContext{
		owner: g.owners, pid: p.pid, mps: p.mps, opened: now, ready: now.Add(g.opts.ContextTime), work: g.opts.ContextShared,
		allocs: map[uint64]uint64{}, flying: map[uint64]*compute.Op{}, nextPtr: 1 << 40,
		handle: groupHandle + uint32(i)*handlesPerUnit,
	}
	p.contexts[u] = c
	g.pids[c.owner] = p.pid
	u.contexts = append(u.contexts, c)
	return c, nil
}

func (p *Process) closeContext(u *unit) {
	c := p.contexts[u]
	delete(p.contexts, u)
	u.compute.Drop(time.Now(), c.owner)
	c.dying, c.died = true, time.Now()
	if left := p.gpu.opts.ReleaseTime; left > 0 {
		time.AfterFunc(left, p.gpu.tick)
	}
	u.reap(p.gpu.opts)
}

func (c *gpuContext) forgetEnded() {
	for n, op := range c.flying {
		select {
		case <-op.Done():
			delete(c.flying, n)
		default:
		}
	}
}

// held is the memory in use, contexts included, in bytes.
func (u *unit) held(o Options) uint64 {
	var sum uint64
	for _, c := range u.contexts {
		sum += c.memory + o.ContextMemory
	}
	return sum
}

// reap frees the contexts whose process is gone and whose kernels are through.
func (u *unit) reap(o Options) {
	u.contexts = slices.DeleteFunc(u.contexts, func(c *gpuContext) bool {
		if !c.dying || u.compute.Busy(c.owner) || time.Since(c.died) < o.ReleaseTime {
			return false
		}
		u.compute.Forget(c.owner)
		return true
	})
}
