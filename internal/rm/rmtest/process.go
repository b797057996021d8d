package rmtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Process is a process of the machine.
type Process struct {
	rm      *RM
	pid     int
	start   uint64
	exiting bool
	gone    bool
	fds     map[int]any // *file or *planted
}

// Start starts a process. Its PID may have been used before.
func (r *RM) Start(pid int) *Process {
	p := &Process{rm: r, pid: pid, fds: map[int]any{}}
	r.lock(func() {
		p.start = uint64(r.now / (10 * time.Millisecond))
		r.processes[pid] = p
	})
	return p
}

// ID returns the process as package rm names it.
func (p *Process) ID() rm.Process { return rm.Process{PID: p.pid, Start: p.start} }

// Exit makes the process begin to exit.
func (p *Process) Exit() { p.rm.lock(func() { p.exiting = true }) }

// Kill ends the process: its descriptors are closed, and its PID is free again.
func (p *Process) Kill() {
	p.rm.lock(func() {
		p.gone, p.fds = true, map[int]any{}
		if p.rm.processes[p.pid] == p {
			delete(p.rm.processes, p.pid)
		}
	})
}

// Fork starts a child that has the same open files.
func (p *Process) Fork(pid int) *Process {
	child := p.rm.Start(pid)
	p.rm.lock(func() { child.fds = maps.Clone(p.fds) })
	return child
}

// Plant puts something else at a descriptor.
func (p *Process) Plant(fd int, device rm.Device) {
	p.rm.lock(func() { p.fds[fd] = &planted{device} })
}

// CloseFile closes a descriptor.
func (p *Process) CloseFile(fd int) { p.rm.lock(func() { delete(p.fds, fd) }) }

// OpenFile opens the control device and makes a client, as cuInit does.
func (p *Process) OpenFile(fd int) (handle uint32) {
	p.OpenEmpty(fd)
	return p.NewClient(fd)
}

// OpenEmpty opens the control device, and makes no client yet.
func (p *Process) OpenEmpty(fd int) {
	p.rm.lock(func() { p.fds[fd] = &file{clients: map[uint32]*client{}} })
}

// NewClient makes a client over an open file.
func (p *Process) NewClient(fd int) (handle uint32) {
	p.rm.lock(func() { handle = p.rm.newClient(p.fds[fd].(*file)) })
	return handle
}

// SkipObjects skips n object handles, as memory does that is allocated and freed.
func (p *Process) SkipObjects(client uint32, n int) {
	p.rm.lock(func() { p.rm.client(client).next += uint32(n) })
}

// Context makes a context on a GPU with a client of the process: a compute group with 8
// channels and three groups of copy engines, and some memory between them.
func (p *Process) Context(handle uint32, gpu int) (g rm.Group) {
	p.rm.lock(func() {
		for fd, x := range p.fds {
			f, ok := x.(*file)
			if !ok || f.clients[handle] == nil {
				continue
			}
			c := f.clients[handle]
			g = rm.Group{Process: p.ID(), GPU: p.rm.gpus[gpu], FD: fd, Client: handle, Class: classGroup}
			device := c.add(classDevice, handle, gpu)
			g.Subdevice = c.add(classSubdevice, device, gpu)
			c.next += 3 // handles that were freed
			c.add(classMemory, device, gpu)
			g.Handle = c.add(classGroup, device, gpu)
			c.objects[g.Handle].slice = computeSlice
			for range computeChannels {
				channel := c.add(classChannel, g.Handle, gpu)
				g.Channels = append(g.Channels, channel)
				c.add(classCompute, channel, gpu)
				c.add(classCopy, channel, gpu)
			}
			for range 3 {
				group := c.add(classGroup, device, gpu)
				c.objects[group].slice = copySlice
				c.add(classCopy, c.add(classChannel, group, gpu), gpu)
			}
			return
		}
		panic(fmt.Sprintf("process %d has no client %#x", p.pid, handle))
	})
	return g
}

// ServeMPS makes the object that an MPS server has.
func (p *Process) ServeMPS(client uint32) {
	p.rm.lock(func() { p.rm.client(client).add(classMPS, client, 0) })
}

// AddChannels adds channels to a group, as new streams do.
func (p *Process) AddChannels(g rm.Group, n int) rm.Group {
	g.Channels = slices.Clone(g.Channels)
	p.rm.lock(func() {
		c := p.rm.client(g.Client)
		for range n {
			g.Channels = append(g.Channels, c.add(classChannel, g.Handle, c.objects[g.Handle].gpu))
		}
	})
	return g
}

// AddMemory makes n objects of a client that belong to no group, as memory and events do.
func (p *Process) AddMemory(client uint32, n int) {
	p.rm.lock(func() {
		c := p.rm.client(client)
		for range n {
			c.add(classMemory, client, 0)
		}
	})
}

// FillHole makes a channel of a group at a skipped handle, as a thread does that another overtook.
func (p *Process) FillHole(g rm.Group, handle uint32) rm.Group {
	g.Channels = slices.Sorted(slices.Values(append([]uint32{handle}, g.Channels...)))
	p.rm.lock(func() {
		c := p.rm.client(g.Client)
		c.objects[handle] = &object{class: classChannel, parent: g.Handle, gpu: c.objects[g.Handle].gpu}
	})
	return g
}

// Free frees an object and what is below it.
func (p *Process) Free(client, handle uint32) {
	p.rm.lock(func() { p.rm.client(client).free(handle) })
}

func (c *client) free(handle uint32) {
	delete(c.objects, handle)
	for h, o := range c.objects {
		if o.parent == handle {
			c.free(h)
		}
	}
}

// Reuse makes an object of another class at a handle.
func (p *Process) Reuse(client, handle uint32) {
	p.rm.lock(func() {
		c := p.rm.client(client)
		c.free(handle)
		c.objects[handle] = &object{class: classMemory, parent: client}
	})
}
