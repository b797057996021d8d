// Package rmtest is a resource manager in memory, with processes that use it. Package rm's tests
// run against it where there is no GPU. Its numbers are those of an H200 with driver 580. It
// imports internal/rm and the standard library.
package rmtest

import (
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
	classMPS       = 0x900e
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
	ever      map[uint32]bool // every client that ever existed
	buffers   map[*trace]bool // every event buffer that was not freed by itself
}

// New returns a resource manager of driver 580 with these GPUs, by UUID, one second
// after boot.
func New(gpus ...string) *RM {
	return &RM{
		version: "580.105.08", now: time.Second, gpus: gpus,
		processes: map[int]*Process{}, fds: map[int]any{}, calls: map[string]int{}, ever: map[uint32]bool{}, buffers: map[*trace]bool{},
	}
}

// SetDriver sets the version of the driver; "" means that there is no driver.
func (r *RM) SetDriver(version string) { r.lock(func() { r.version = version }) }

// Advance advances the clock.
func (r *RM) Advance(d time.Duration) { r.lock(func() { r.now += d }) }

// SkipClients skips n client handles, as other programs' clients do.
func (r *RM) SkipClients(n int) { r.lock(func() { r.counter = (r.counter + uint32(n)) % clientMax }) }

// Hook makes f run at each ioctl, before the ioctl takes effect. f may block, and may call every
// method of RM and Process. Several goroutines may run it at once: of a slow driver the Manager asks questions together.
func (r *RM) Hook(f func(*Call)) { r.lock(func() { r.hook = f }) }

// Calls counts the calls of a Kernel's method since New, by its name in lower case.
func (r *RM) Calls(name string) (n int) {
	r.lock(func() { n = r.calls[name] })
	return n
}

// Held counts our open descriptors: of files, duplicates and processes.
func (r *RM) Held() (n int) {
	r.lock(func() { n = len(r.fds) })
	return n
}

// Clients counts the existing clients, the processes' and ours.
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
type file struct {
	clients map[uint32]*client
	memory  []byte // what was tied to it, to be mapped
}

// gpu is an open file of a GPU's device.
type gpu struct{ uuid string }

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
	memory        []byte // of memory
	trace         *trace // of an event buffer
}

func (c *client) add(class, parent uint32, gpu int) uint32 {
	h := c.next
	c.next++
	c.objects[h] = &object{class: class, parent: parent, gpu: gpu}
	return h
}

// newClient makes a client over f.
func (r *RM) newClient(f *file) uint32 {
	h := clientBase + r.counter
	for r.client(h) != nil { // as rs_server.c does: the next handle of the same bucket
		h = clientBase + (h-clientBase+0x400)%clientMax
	}
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
