// Package rmtest is a resource manager in memory, with processes that use it: what
// package rm's tests run against where there is no GPU. Its numbers are those of an
// H200 with driver 580. It imports package rm and the standard library.
package rmtest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// What a context of libcuda looks like.
const (
	clientBase = 0xc1d00000
	clientMax  = 0x100000
	objectBase = 0x5c000000

	classClient    = 0x41
	classDevice    = 0x80
	classSubdevice = 0x2080
	classDiag      = 0x208f
	classMemory    = 0x40
	classGroup     = 0xa06c
	classChannel   = 0xc86f
	classCompute   = 0xcbc0
	classCopy      = 0xc8b5

	computeChannels = 8
	computeSlice    = 2048 // µs
	copySlice       = 1024
)

// RM is a resource manager and the processes of its machine.
type RM struct {
	mu        sync.Mutex
	version   string
	now       time.Duration
	counter   uint32
	processes map[int]*Process
	fds       map[int]any // ours: *file, *Process for a pidfd, *planted
	gpus      []string
	hook      func(*Call)
	calls     map[string]int
	ever      map[uint32]bool // every client that there was
}

// New returns a resource manager of driver 580 with these GPUs, by UUID, one second
// after boot.
func New(gpus ...string) *RM {
	return &RM{
		version: "580.105.08", now: time.Second, gpus: gpus,
		processes: map[int]*Process{}, fds: map[int]any{}, calls: map[string]int{}, ever: map[uint32]bool{},
	}
}

// SetDriver sets the version of the driver; "" means that there is none.
func (r *RM) SetDriver(version string) { r.lock(func() { r.version = version }) }

// Advance lets time pass.
func (r *RM) Advance(d time.Duration) { r.lock(func() { r.now += d }) }

// SkipClients counts n client handles on, as other programs do.
func (r *RM) SkipClients(n int) { r.lock(func() { r.counter = (r.counter + uint32(n)) % clientMax }) }

// Hook has f called at each ioctl, before it is carried out. F may block, and may call
// every method of RM and Process.
func (r *RM) Hook(f func(*Call)) { r.lock(func() { r.hook = f }) }

// Calls counts the calls of a Kernel's method since New, by its name in lower case.
func (r *RM) Calls(name string) (n int) {
	r.lock(func() { n = r.calls[name] })
	return n
}

// Held counts our descriptors that are open: of files, duplicates and processes.
func (r *RM) Held() (n int) {
	r.lock(func() { n = len(r.fds) })
	return n
}

// Clients counts the clients that exist, of processes and ours.
func (r *RM) Clients() (n int) {
	r.lock(func() {
		for f := range r.files() {
			n += len(f.clients)
		}
	})
	return n
}

func (r *RM) lock(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// files are the open files of the control device.
func (r *RM) files() map[*file]bool {
	all := map[*file]bool{}
	for _, x := range r.fds {
		if f, ok := x.(*file); ok {
			all[f] = true
		}
	}
	for _, p := range r.processes {
		for _, x := range p.fds {
			if f, ok := x.(*file); ok {
				all[f] = true
			}
		}
	}
	return all
}

// file is an open file of the control device. Its clients live as long as it.
type file struct{ clients map[uint32]*client }

// planted is what a tenant put in the place of the control device.
type planted struct{ device rm.Device }

type client struct {
	objects map[uint32]*object
	next    uint32
}

type object struct {
	class, parent uint32
	gpu           int
	slice         uint64 // of a group
	off           bool   // of a channel
}

func (c *client) add(class, parent uint32, gpu int) uint32 {
	h := c.next
	c.next++
	c.objects[h] = &object{class: class, parent: parent, gpu: gpu}
	return h
}

// newClient makes a client over f.
func (r *RM) newClient(f *file) uint32 {
	for r.client(clientBase+r.counter) != nil {
		r.counter = (r.counter + 1) % clientMax
	}
	h := clientBase + r.counter
	r.counter = (r.counter + 1) % clientMax
	r.ever[h] = true
	f.clients[h] = &client{next: objectBase, objects: map[uint32]*object{h: {class: classClient}}}
	return h
}

func (r *RM) client(handle uint32) *client {
	if !r.ever[handle] {
		return nil
	}
	for f := range r.files() {
		if c := f.clients[handle]; c != nil {
			return c
		}
	}
	return nil
}

// Process is a process of the machine.
type Process struct {
	rm      *RM
	pid     int
	start   uint64
	exiting bool
	gone    bool
	fds     map[int]any // *file or *planted
}

// Start starts a process. Its PID may be one that was used before.
func (r *RM) Start(pid int) *Process {
	p := &Process{rm: r, pid: pid, fds: map[int]any{}}
	r.lock(func() {
		p.start = uint64(r.now / (10 * time.Millisecond))
		r.processes[pid] = p
	})
	return p
}

// ID is the process as package rm names it.
func (p *Process) ID() rm.Process { return rm.Process{PID: p.pid, Start: p.start} }

// Exit lets the process begin to exit.
func (p *Process) Exit() { p.rm.lock(func() { p.exiting = true }) }

// Kill ends the process: its descriptors are closed, its PID is free.
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
	p.rm.lock(func() {
		f := &file{clients: map[uint32]*client{}}
		p.fds[fd] = f
		handle = p.rm.newClient(f)
	})
	return handle
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

// Off returns the channels of a group that are off.
func (r *RM) Off(g rm.Group) (off []uint32) {
	r.lock(func() {
		if c := r.client(g.Client); c != nil {
			for h, o := range c.objects {
				if o.class == classChannel && o.parent == g.Handle && o.off {
					off = append(off, h)
				}
			}
		}
	})
	slices.Sort(off)
	return off
}
