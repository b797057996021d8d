package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNoGroup means that a process has no such channel group (any more).
var ErrNoGroup = errors.New("no such channel group")

// ChannelCost is how long the resource manager's calls take. Durations are as in
// Options: 0 is the default, a negative one is none.
type ChannelCost struct {
	Find   time.Duration // the groups of a process; default 5 ms
	Slice  time.Duration // read or set one; default 400 µs
	Switch time.Duration // channels off or on; default 1 ms
}

func (c ChannelCost) withDefaults() ChannelCost {
	set := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		*d = max(*d, 0)
	}
	set(&c.Find, 5*time.Millisecond)
	set(&c.Slice, 400*time.Microsecond)
	set(&c.Switch, time.Millisecond)
	return c
}

// Handles as a CUDA program has them on an H200: clients differ, the objects of each
// have the same handles in every program.
const (
	firstClient    = 0xc1d00000
	subdevice      = 0x5c000003
	groupHandle    = 0x5c000015
	handlesPerUnit = 0x100
	groupClass     = 0xa06c
	groupChannels  = 8
	// scheduled is a group's slice before libcuda sets its own, this long after.
	scheduled     = time.Millisecond
	ownSliceAfter = time.Millisecond
	maxSlice      = 100 * time.Second
)

// Group is the compute group of one process on one GPU.
type Group struct {
	GPU       string   `json:"gpu"` // UUID
	Client    uint32   `json:"client"`
	Subdevice uint32   `json:"subdevice"`
	Handle    uint32   `json:"handle"`
	Class     uint32   `json:"class"`
	Channels  []uint32 `json:"channels"`
}

// Tenant names one process: a PID and when it started, in clock ticks since boot;
// 0: whoever has the PID now.
type Tenant struct {
	PID   int
	Start uint64
}

// Groups are the compute groups of a tenant, in order of the GPUs. The error is
// ErrNoProcess when it uses no GPU. A group is there before libcuda has set its slice.
func (g *GPU) Groups(ctx context.Context, t Tenant) (list []Group, err error) {
	err = g.control(ctx, "find", g.opts.Channels.Find, t, func(p *Process) error {
		for i, u := range g.units {
			c := p.contexts[u]
			if c == nil || !c.runs || p.state == ProcessCheckpointed {
				continue
			}
			group := Group{GPU: u.info.UUID, Client: p.client, Subdevice: subdevice + uint32(i)*handlesPerUnit, Handle: c.handle, Class: groupClass}
			for n := range uint32(groupChannels) {
				group.Channels = append(group.Channels, c.handle+1+n)
			}
			list = append(list, group)
		}
		return nil
	})
	return list, err
}

// Slice is the time slice of a group.
func (g *GPU) Slice(ctx context.Context, t Tenant, client, handle uint32) (d time.Duration, err error) {
	err = g.control(ctx, "slice", g.opts.Channels.Slice, t, func(p *Process) error {
		u, c, err := p.group(client, handle)
		if err == nil {
			d = u.compute.Slice(c.owner)
		}
		return err
	})
	return d, err
}

// SetSlice changes it at once, also in a slice that runs. It is 1 µs to 100 s, in whole
// microseconds.
func (g *GPU) SetSlice(ctx context.Context, t Tenant, client, handle uint32, d time.Duration) error {
	if d < time.Microsecond || d > maxSlice {
		return fmt.Errorf("%w: a slice of %v", ErrInvalid, d)
	}
	return g.control(ctx, "setslice", g.opts.Channels.Slice, t, func(p *Process) error {
		u, c, err := p.group(client, handle)
		if err == nil {
			u.compute.SetSlice(time.Now(), c.owner, d.Truncate(time.Microsecond))
		}
		return err
	})
}

// SwitchChannels takes the channels of a tenant's groups off their GPUs or lets them on
// again, all or none. A kernel that runs there stands at once, and goes on where it was.
func (g *GPU) SwitchChannels(ctx context.Context, t Tenant, client uint32, handles []uint32, on bool) error {
	return g.control(ctx, "switch", g.opts.Channels.Switch, t, func(p *Process) error {
		for _, h := range handles {
			if _, _, err := p.group(client, h); err != nil {
				return err
			}
		}
		for u, c := range p.contexts {
			if slices.Contains(handles, c.handle) {
				u.compute.Switch(time.Now(), c.owner, on)
			}
		}
		return nil
	})
}

// Off reports whether the channels of any group of a tenant are off. No protocol says so,
// as no driver does: it is for who checks the others.
func (g *GPU) Off(pid int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.procs[pid]; p != nil {
		for u, c := range p.contexts {
			if u.compute.Off(c.owner) {
				return true
			}
		}
	}
	return false
}

// Sliced is a slice that somebody else than a tenant's own program has set for one of its
// groups; 0: none. As Off, it is for who checks the others.
func (g *GPU) Sliced(pid int) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.procs[pid]; p != nil {
		for u, c := range p.contexts {
			if d := u.compute.Slice(c.owner); c.runs && d != scheduled && d != g.opts.TimeSlice {
				return d
			}
		}
	}
	return 0
}

// control is what is the same for all calls: what they take, and whom they are for.
func (g *GPU) control(ctx context.Context, name string, cost time.Duration, t Tenant, run func(*Process) error) error {
	if cost > 0 {
		timer := time.NewTimer(cost)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if callerEnded(ctx) {
		return fmt.Errorf("%w: the manager", ErrExited)
	}
	if err := g.faults.steps[name]; err != nil {
		return err
	}
	p := g.procs[t.PID]
	if p == nil || t.Start != 0 && p.start != 0 && t.Start != p.start {
		return fmt.Errorf("%w: %d", ErrNoProcess, t.PID)
	}
	if p.mps {
		return fmt.Errorf("%w: process %d computes through MPS, whose channels are other processes' too", ErrNotSupported, t.PID)
	}
	g.advance()
	defer g.rearm()
	return run(p)
}

// group finds one of the process's groups. The caller holds mu.
func (p *Process) group(client, handle uint32) (*unit, *gpuContext, error) {
	for u, c := range p.contexts {
		if p.client == client && c.handle == handle && c.runs && p.state != ProcessCheckpointed {
			return u, c, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: %#x of client %#x", ErrNoGroup, handle, client)
}

// schedule makes the group of a process's new context, with the slice that all begin with.
func (g *GPU) schedule(p *Process, i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := p.contexts[g.units[i]]; c != nil && !c.runs {
		c.runs = true
		g.units[i].compute.SetSlice(time.Now(), c.owner, scheduled)
	}
}

// ownSlice is libcuda setting its own slice, just after the group was scheduled.
func (g *GPU) ownSlice(p *Process, i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := p.contexts[g.units[i]]; c != nil && !c.sliced {
		c.sliced = true
		g.units[i].compute.SetSlice(time.Now(), c.owner, g.opts.TimeSlice)
		g.rearm()
	}
}
