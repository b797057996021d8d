package cudaprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// exitProbe tells of Exiting, for every file and process at once.
type exitProbe struct {
	program *ebpf.Program
	link    link.Link
}

// attachExits needs the kernel's description of its types (offsets not nil) and
// its scheduler's tracepoints.
func attachExits(m maps, offsets *taskOffsets) (exitProbe, error) {
	if offsets == nil {
		return exitProbe{}, ErrUnsupported
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: license, Instructions: exiting(m, offsets),
	})
	if err != nil {
		return exitProbe{}, explain("load the program for exits", err)
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: program})
	if err != nil {
		return exitProbe{}, errors.Join(explain("attach to sched_process_exit", err), program.Close())
	}
	return exitProbe{program, l}, nil
}

// Know has the end of a process told (Exiting) that made no call while its library
// was watched: it called before, or in a file that nobody had found yet. Where ends are
// not told at all (Stats.Exits) it does nothing.
//
// It means the process that has this PID now. If that has ended already, the end of a
// later process with this PID may be told instead: Event.Start says whose it is.
func (p *Probe) Know(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.exits.link == nil:
		return nil
	}
	if err := p.maps.known.Put(uint32(pid), uint64(monotonic())); err != nil {
		return fmt.Errorf("have the end of process %d told: %w", pid, err)
	}
	return nil
}

// Close takes the probe off, if it is there.
func (e exitProbe) Close() error {
	if e.link == nil {
		return nil
	}
	return errors.Join(e.link.Close(), e.program.Close())
}
