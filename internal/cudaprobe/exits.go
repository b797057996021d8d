package cudaprobe

import (
	"errors"

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

// Close takes the probe off, if it is there.
func (e exitProbe) Close() error {
	if e.link == nil {
		return nil
	}
	return errors.Join(e.link.Close(), e.program.Close())
}
