// Package channelstest serves tests of channels: the conformance suite (Run), and a machine in
// memory whose processes have channel groups (Machine).
//
// It imports actuator/enforce/channels, internal/rm and the standard library.
package channelstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// OwnSlice is the slice that libcuda sets.
const OwnSlice = 2048 * time.Microsecond

// Machine holds processes with channel groups, in memory, and is a channels.Driver. It is safe for
// concurrent use.
type Machine struct {
	mu      sync.Mutex
	procs   map[int]*process
	last    uint64
	wrong   []string // calls for another process than the one with the PID
	touched map[rm.Process]int
	calls   []string
}

type process struct {
	rm.Process
	state  channels.State
	groups []*group
	named  uint32 // handles given
}

type group struct {
	rm.Group
	slice time.Duration
	off   map[uint32]bool
}

// NewMachine makes a Machine without processes.
func NewMachine() *Machine {
	return &Machine{procs: map[int]*process{}, touched: map[rm.Process]int{}}
}

// Start begins a process with this PID, which must be free, and a group on each of these GPUs.
func (m *Machine) Start(pid int, gpus ...string) rm.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return m.adopt(rm.Process{PID: pid, Start: m.last}, gpus)
}

// Adopt is Start for a process that exists.
func (m *Machine) Adopt(p rm.Process, gpus ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adopt(p, gpus)
}

func (m *Machine) adopt(named rm.Process, gpus []string) rm.Process {
	p := &process{Process: named}
	m.procs[named.PID] = p
	for _, gpu := range gpus {
		p.add(gpu)
	}
	return named
}

func (p *process) add(gpu string) {
	g := &group{slice: OwnSlice, off: map[uint32]bool{}}
	handle := 0x5c000015 + 0x100*p.named
	p.named++
	g.Group = rm.Group{Process: p.Process, GPU: gpu, FD: 5, Client: 0xc1d00000 + uint32(p.Start), Subdevice: 0x5c000003, Handle: handle, Class: 0xa06c}
	for n := range uint32(8) {
		g.Channels = append(g.Channels, handle+1+n)
	}
	p.groups = append(p.groups, g)
}

// AddGroup adds a group, as a new context of the process does.
func (m *Machine) AddGroup(p rm.Process, gpu string) { m.with(p, func(p *process) { p.add(gpu) }) }

// AddChannel adds a channel to the process's first group, as a new stream does.
func (m *Machine) AddChannel(p rm.Process) {
	m.with(p, func(p *process) {
		if len(p.groups) > 0 {
			g := p.groups[0]
			g.Channels = append(slices.Clone(g.Channels), g.Handle+1+uint32(len(g.Channels)))
		}
	})
}

// DropGroup removes the process's last group, as the end of a context does.
func (m *Machine) DropGroup(p rm.Process) {
	m.with(p, func(p *process) { p.groups = p.groups[:max(len(p.groups)-1, 0)] })
}

// Kill ends a process.
func (m *Machine) Kill(p rm.Process) { m.with(p, func(p *process) { delete(m.procs, p.PID) }) }

// SetState sets what State returns from now on.
func (m *Machine) SetState(p rm.Process, s channels.State) {
	m.with(p, func(p *process) { p.state = s })
}

// Own sets the slice of all of a process's groups, as the process itself does.
func (m *Machine) Own(p rm.Process, d time.Duration) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			g.slice = d
		}
	})
}

func (m *Machine) with(p rm.Process, f func(*process)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.procs[p.PID]; now != nil && now.Process == p {
		f(now)
	}
}

// State is channels.Options.State.
func (m *Machine) State(p rm.Process) (s channels.State, err error) {
	s = channels.Gone
	m.with(p, func(p *process) { s = p.state })
	return s, nil
}

// Off returns how many of a process's channels are off.
func (m *Machine) Off(p rm.Process) (n int) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			n += len(g.off)
		}
	})
	return n
}

// Channels returns how many channels a process has.
func (m *Machine) Channels(p rm.Process) (n int) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			n += len(g.Channels)
		}
	})
	return n
}

// Slices returns the slices of a process's groups.
func (m *Machine) Slices(p rm.Process) (list []time.Duration) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			list = append(list, g.slice)
		}
	})
	return list
}

// Wrong returns the calls that were for another process than the one with the PID, or that switched
// an exiting one on.
func (m *Machine) Wrong() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wrong)
}

// Changes returns how many calls changed a process.
func (m *Machine) Changes(p rm.Process) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.touched[p]
}

// Calls returns the names of all calls so far.
func (m *Machine) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// call runs f for a living process. The caller does not hold mu.
func (m *Machine) call(name string, p rm.Process, f func(*process) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, name)
	now := m.procs[p.PID]
	switch {
	case now == nil:
		return rm.ErrGone
	case now.Process != p || now.state == channels.Exiting && name != "find":
		m.wrong = append(m.wrong, fmt.Sprint(name, " ", p))
		return rm.ErrGone
	}
	return f(now)
}

func (p *process) group(g rm.Group) (*group, error) {
	for _, own := range p.groups {
		if own.Client == g.Client && own.Handle == g.Handle {
			return own, nil
		}
	}
	return nil, rm.ErrChanged
}

// Find implements channels.Driver.
func (m *Machine) Find(_ context.Context, p rm.Process) (list []rm.Group, err error) {
	err = m.call("find", p, func(p *process) error {
		for _, g := range p.groups {
			list = append(list, g.Group)
		}
		return nil
	})
	return list, err
}

// Slice implements channels.Driver.
func (m *Machine) Slice(_ context.Context, g rm.Group) (d time.Duration, err error) {
	err = m.call("slice", g.Process, func(p *process) error {
		own, err := p.group(g)
		if err == nil {
			d = own.slice
		}
		return err
	})
	return d, err
}

// SetSlice implements channels.Driver.
func (m *Machine) SetSlice(_ context.Context, g rm.Group, d time.Duration) error {
	return m.call("setslice", g.Process, func(p *process) error {
		own, err := p.group(g)
		if err == nil {
			own.slice = d
			m.touched[p.Process]++
		}
		return err
	})
}

// Switch implements channels.Driver.
func (m *Machine) Switch(_ context.Context, groups []rm.Group, on bool) error {
	if len(groups) == 0 {
		return nil
	}
	return m.call("switch", groups[0].Process, func(p *process) error {
		if err := p.has(groups); err != nil {
			return err
		}
		p.turn(groups, on)
		m.touched[p.Process]++
		return nil
	})
}

func (p *process) has(groups []rm.Group) error {
	for _, g := range groups {
		own, err := p.group(g)
		if err != nil || slices.ContainsFunc(g.Channels, func(c uint32) bool { return !slices.Contains(own.Channels, c) }) {
			return rm.ErrChanged
		}
	}
	return nil
}

func (p *process) turn(groups []rm.Group, on bool) {
	for _, g := range groups {
		own, _ := p.group(g)
		for _, c := range g.Channels {
			if on {
				delete(own.off, c)
			} else {
				own.off[c] = true
			}
		}
	}
}

// Skew is what SwitchAsOne returns.
const Skew = 300 * time.Microsecond

// SwitchAsOne implements channels.Driver. It is one step, for all processes.
func (m *Machine) SwitchAsOne(_ context.Context, groups []rm.Group, on bool) (time.Duration, error) {
	by := map[rm.Process][]rm.Group{}
	for _, g := range groups {
		by[g.Process] = append(by[g.Process], g)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, "switch as one")
	var err error
	for p, of := range by {
		now := m.procs[p.PID]
		switch {
		case now == nil:
			err = rm.ErrGone
		case now.Process != p || now.state == channels.Exiting:
			m.wrong = append(m.wrong, fmt.Sprint("switch as one ", p))
			err = rm.ErrGone
		default:
			if bad := now.has(of); bad != nil {
				err = bad
				break
			}
			continue
		}
		if delete(by, p); !on {
			return 0, err
		}
	}
	for p, of := range by {
		m.procs[p.PID].turn(of, on)
		m.touched[p]++
	}
	return Skew, err
}
