// Package channelstest has what tests of channels need: the conformance suite (Run), and a
// machine in memory whose processes have channel groups (Machine).
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

// OwnSlice is what libcuda sets.
const OwnSlice = 2048 * time.Microsecond

// Machine is processes with channel groups, in memory, and a channels.Driver. It is safe
// for concurrent use.
type Machine struct {
	mu      sync.Mutex
	procs   map[int]*process
	last    uint64
	wrong   []string // calls for a process that was not meant
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

// NewMachine makes one without processes.
func NewMachine() *Machine {
	return &Machine{procs: map[int]*process{}, touched: map[rm.Process]int{}}
}

// Start begins a process with this PID, which is not in use, and a group on each of these
// GPUs.
func (m *Machine) Start(pid int, gpus ...string) rm.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	return m.adopt(rm.Process{PID: pid, Start: m.last}, gpus)
}

// Adopt is Start for a process that there is.
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

// AddGroup is a new context of a process.
func (m *Machine) AddGroup(p rm.Process, gpu string) { m.with(p, func(p *process) { p.add(gpu) }) }

// AddChannel is a new stream of a process, in its first group.
func (m *Machine) AddChannel(p rm.Process) {
	m.with(p, func(p *process) {
		if len(p.groups) > 0 {
			g := p.groups[0]
			g.Channels = append(slices.Clone(g.Channels), g.Handle+1+uint32(len(g.Channels)))
		}
	})
}

// DropGroup is the end of a process's last context.
func (m *Machine) DropGroup(p rm.Process) {
	m.with(p, func(p *process) { p.groups = p.groups[:max(len(p.groups)-1, 0)] })
}

// Kill ends a process.
func (m *Machine) Kill(p rm.Process) { m.with(p, func(p *process) { delete(m.procs, p.PID) }) }

// SetState is what StateOf says from now on.
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

// Off is how many of a process's channels are off.
func (m *Machine) Off(p rm.Process) (n int) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			n += len(g.off)
		}
	})
	return n
}

// Channels is how many a process has.
func (m *Machine) Channels(p rm.Process) (n int) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			n += len(g.Channels)
		}
	})
	return n
}

// Slices are those of a process's groups.
func (m *Machine) Slices(p rm.Process) (list []time.Duration) {
	m.with(p, func(p *process) {
		for _, g := range p.groups {
			list = append(list, g.slice)
		}
	})
	return list
}

// Wrong are the calls that were for another process than the one with the PID, or enabled
// one that was exiting.
func (m *Machine) Wrong() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wrong)
}

// Changes is how many calls changed a process.
func (m *Machine) Changes(p rm.Process) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.touched[p]
}

// Calls are the names of all calls so far.
func (m *Machine) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// call runs f for a living process. The caller does not have mu.
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
		for _, g := range groups {
			own, err := p.group(g)
			if err != nil || slices.ContainsFunc(g.Channels, func(c uint32) bool { return !slices.Contains(own.Channels, c) }) {
				return rm.ErrChanged
			}
		}
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
		m.touched[p.Process]++
		return nil
	})
}
