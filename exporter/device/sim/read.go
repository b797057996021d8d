package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// smInterval is how often per-process utilisation is read: as rarely as from a
// real driver, where the call is dear.
const smInterval = time.Second

// Device reads the cards from within this program. It ignores its context while
// reads hang, like a driver call.
func (g *GPU) Device() device.Device { return &local{gpu: g, loads: -1} }

type local struct {
	gpu    *GPU
	loads  int // of the driver that this reader began with, −1: none yet
	closed bool
}

func (l *local) Read(context.Context) (device.Reading, error) {
	if l.closed {
		return device.Reading{}, errors.New("simulated GPU: read after Close")
	}
	r, err := l.gpu.read(context.Background(), &l.loads)
	if err != nil {
		return device.Reading{}, fmt.Errorf("simulated GPU: %w", err)
	}
	return r, nil
}

func (l *local) Close() error {
	l.closed = true
	return nil
}

// read is one reading for a reader that began with the driver's load number
// *loads.
func (g *GPU) read(ctx context.Context, loads *int) (device.Reading, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.answers(ctx, loads); err != nil {
		return device.Reading{}, err
	}
	now := g.advance()
	r := device.Reading{Time: now}
	for _, u := range g.units {
		r.GPUs = append(r.GPUs, u.read(now, g.opts, g.faults.driver))
	}
	return r, nil
}

// answers waits while reads hang, and returns why the driver does not answer. The caller holds
// mu, which it gives up meanwhile.
func (g *GPU) answers(ctx context.Context, loads *int) error {
	for g.faults.hung != nil {
		hung := g.faults.hung
		g.mu.Unlock()
		select {
		case <-hung:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	began := *loads
	*loads = g.faults.loads
	if g.faults.unloaded {
		return fmt.Errorf("%w: no driver is loaded", device.ErrUnavailable)
	}
	if began >= 0 && began != g.faults.loads {
		return errReloaded
	}
	return nil
}

func (u *unit) read(now time.Time, o Options, driver string) device.GPU {
	out := u.info
	out.Driver = driver
	out.Utilization = math.NaN()
	out.TellsMPS = true
	if u.lost {
		out.MemoryTotal = 0
		out.ProcessesErr = ErrLost
		return out
	}
	if out.Parent == "" { // NVML does not say for MIG instances
		out.Utilization = u.compute.Utilization(o.lag())
	}
	if now.Sub(u.smTime) >= smInterval {
		u.smTime, u.sm = now, map[compute.Owner]float64{}
		for _, c := range u.contexts {
			u.sm[c.owner] = u.compute.OwnerUtilization(c.owner, o.lag())
		}
	}
	out.MemoryUsed = u.held(o)
	for _, c := range u.contexts {
		if now.Sub(c.opened) < o.ListDelay || (c.dying && o.ReleaseTime > 0) {
			continue
		}
		used := c.memory - c.coming + o.ContextMemory
		out.Processes = addProcess(out.Processes, u.process(c, used))
	}
	if u.queryErr != nil {
		out.Processes, out.ProcessesErr = nil, u.queryErr
	}
	return out
}

func (u *unit) process(c *gpuContext, used uint64) device.Process {
	sm, known := u.sm[c.owner]
	if !known || u.info.Parent != "" {
		sm = math.NaN()
	}
	return device.Process{PID: c.pid, MemoryUsed: used, SMUtilization: sm, MPS: c.mps}
}

// addProcess keeps one entry per PID: a process whose old context is still being
// torn down may have a new one.
func addProcess(list []device.Process, p device.Process) []device.Process {
	for i := range list {
		if list[i].PID == p.PID {
			list[i].MemoryUsed += p.MemoryUsed
			list[i].SMUtilization += p.SMUtilization
			return list
		}
	}
	return append(list, p)
}
