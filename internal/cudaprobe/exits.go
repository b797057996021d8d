package cudaprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/laxity/laxity/internal/cudabpf"
)

// exitProbe reports Exiting, for all files and processes at once.
type exitProbe struct {
	objects cudabpf.ExitsObjects
	link    link.Link
}

// attachExits needs the scheduler's tracepoints.
func (p *Probe) attachExits(types *btf.Cache) (err error) {
	err = p.attacher.load(cudabpf.LoadExits, &p.exits.objects, types, map[string]*ebpf.Map{
		cudabpf.ExitsMapEvents: p.starts.Events, cudabpf.ExitsMapLost: p.starts.Lost,
		cudabpf.ExitsMapTold: p.starts.Told, cudabpf.ExitsMapKnown: p.starts.Known,
	})
	if err != nil {
		return explain("load the program for exits", err)
	}
	p.exits.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: p.exits.objects.ThreadExit})
	if err != nil {
		return explain("attach to sched_process_exit", err)
	}
	return nil
}

// Know has the end of a process reported (Exiting) that made no call while its library was watched:
// it called before, or in a file that was not found yet. If ends are not reported at all
// (Stats.Exits), it does nothing.
//
// It means the process that has this PID now. If that has ended already, the end of a later process
// with this PID may be reported instead: Event.Start tells them apart.
func (p *Probe) Know(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.exits.link == nil:
		return nil
	}
	if err := p.starts.Known.Put(uint32(pid), uint64(monotonic())); err != nil {
		return fmt.Errorf("have the end of process %d told: %w", pid, err)
	}
	return nil
}

// Close removes the probe, if there is one.
func (e *exitProbe) Close() error {
	if e.link == nil {
		return e.objects.Close()
	}
	return errors.Join(e.link.Close(), e.objects.Close())
}
