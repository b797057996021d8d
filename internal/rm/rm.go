// Package rm controls, from outside, the channel groups of other processes
// through NVIDIA's resource manager (RM): their time slices, and whether their
// channels may run. It imports the standard library and golang.org/x/sys.
//
// The resource manager ties a client to the open file that made it, not to a
// process. A duplicate of a process's descriptor of /dev/nvidiactl therefore gives
// whoever may take one (pidfd_getfd: CAP_SYS_PTRACE) the right to control that
// process's objects. Nothing is injected, and the process is not stopped.
//
// A duplicate lives for one call, because the resource manager frees a client, and
// the memory of a dead process with it, only when the last file closes. Whoever
// closes last carries out that teardown, and an ioctl cannot be interrupted: so
// calls run on workers, and a caller whose context ends does not wait for them.
//
// The structures follow the headers of NVIDIA/open-gpu-kernel-modules: see abi.go.
package rm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// What the callers tell apart. Every other error carries the name of the resource
// manager's status (see Status), or the system's errno.
var (
	// ErrGone: the process ended, is about to, or its PID belongs to another one.
	ErrGone = errors.New("the process is gone")
	// ErrChanged: an object is not what the group says. Find it again.
	ErrChanged = errors.New("the channel group has changed")
	// ErrUnsupported: this driver, or this system, cannot do it.
	ErrUnsupported = errors.New("not supported here")
	// ErrUnfinished: the search for a process's clients has not ended. See Find.
	ErrUnfinished = errors.New("the search has not ended")
)

// Process is one process: a PID alone may be used again.
type Process struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat: clock ticks since boot
}

func (p Process) String() string { return fmt.Sprintf("process %d", p.PID) }

// Group is a compute channel group of a process on one GPU.
//
// Client and Handle name it on the whole machine. A process that was forked after
// its parent made a context shares the parent's file, so that both may be found
// with the same group.
type Group struct {
	Process
	GPU       string // UUID, "GPU-…"
	FD        int    // the process's descriptor of /dev/nvidiactl
	Client    uint32
	Subdevice uint32
	Handle    uint32
	Class     uint32 // of the group: KEPLER_CHANNEL_GROUP_A, 0xa06c
	Channels  []uint32
}

func (g Group) String() string {
	return fmt.Sprintf("channel group %#x of client %#x of process %d", g.Handle, g.Client, g.PID)
}

// Options are the settings of a Manager; the zero value is good.
type Options struct {
	// Workers bounds the calls under way at once. 0: 8.
	Workers int
	// Timeout ends a call of a caller whose context has no earlier deadline, and of Find each
	// of its steps. 0: 2 s.
	Timeout time.Duration
	// Gap is how many absent handles in a row end the search for a client's objects. 0: 2048.
	Gap int
	// SearchRate bounds the client handles that all searches together ask for, in a second; up
	// to 16384 more after a rest. 0: 100,000, which take some 0.3 s of one core.
	SearchRate int
	// Proven names driver versions outside Branches that a self-test has shown to work.
	Proven []string
	// Observe is told of each call that ran on a worker: what, and how long it took. It
	// must not block, and is called by several goroutines.
	Observe func(call string, took time.Duration, err error)
}

// Manager finds and controls channel groups. Its methods may be called by several
// goroutines; calls that concern one process run one after another, in order.
type Manager struct {
	kernel Kernel
	opt    Options
	slots  chan struct{}

	mu        sync.Mutex
	driver    error // why the driver is not supported
	asked     bool
	marks     []*mark
	searches  map[Process]*search
	clients   map[Process][]uint32 // of all processes, by handle
	searching allowance
	queues    map[int]*queue
}

// New returns a Manager that works through kernel; see System.
func New(kernel Kernel, opt Options) *Manager {
	if opt.Workers <= 0 {
		opt.Workers = 8
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 2 * time.Second
	}
	if opt.Gap <= 0 {
		opt.Gap = 2048
	}
	if opt.SearchRate <= 0 {
		opt.SearchRate = 100_000
	}
	return &Manager{
		kernel:    kernel,
		opt:       opt,
		slots:     make(chan struct{}, opt.Workers),
		searches:  map[Process]*search{},
		clients:   map[Process][]uint32{},
		searching: allowance{rate: opt.SearchRate, left: saved},
		queues:    map[int]*queue{},
	}
}

// Supported says whether the driver is one whose structures are known, or proven by
// a self-test: nil, or an error that is ErrUnsupported with the reason.
func (m *Manager) Supported() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked {
		version, err := m.kernel.Driver()
		if err != nil {
			return fmt.Errorf("%w: no version of NVIDIA's driver: %w", ErrUnsupported, err)
		}
		m.asked, m.driver = true, supported(version, m.opt.Proven)
	}
	return m.driver
}

// queue orders the calls that concern one process.
type queue struct {
	turn  chan struct{} // holds one token while nobody has the turn
	users int
}

// enter waits for the turn of pid, and for a worker.
func (m *Manager) enter(ctx context.Context, pid int) (leave func(), err error) {
	m.mu.Lock()
	q := m.queues[pid]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		m.queues[pid] = q
	}
	q.users++
	m.mu.Unlock()
	drop := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(m.queues, pid)
		}
	}
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		<-q.turn
		drop()
		return nil, ctx.Err()
	}
	return func() {
		<-m.slots
		<-q.turn
		drop()
	}, nil
}

// do runs work on a worker and returns its error, or the context's if that ends
// first. Work is told by abandoned whether the caller still waits: once abandoned
// says true it stays so, and what work returns reaches nobody. Work that must not be
// lost asks last, and undoes what it did.
func (m *Manager) do(ctx context.Context, call string, pid int, work func(ctx context.Context, abandoned func() bool) error) error {
	if err := m.Supported(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opt.Timeout)
	leave, err := m.enter(ctx, pid)
	if err != nil {
		cancel()
		return fmt.Errorf("%s: no worker was free: %w", call, err)
	}
	const (
		waits = iota
		ends
		left
	)
	var state atomic.Int32
	// The first of both to move state decides whether the result is delivered.
	abandoned := func() bool { return !state.CompareAndSwap(waits, ends) && state.Load() == left }
	done := make(chan error, 1)
	go func() {
		defer leave()
		began := time.Now()
		err := recovered(func() error { return work(ctx, abandoned) })
		if m.opt.Observe != nil {
			m.opt.Observe(call, time.Since(began), err)
		}
		done <- err
	}()
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if state.CompareAndSwap(waits, left) {
		return fmt.Errorf("%s: the driver has not answered: %w", call, ctx.Err())
	}
	return <-done // work is about to return, and its result holds
}

// recovered turns a panic of a worker into an error: nobody else would catch it.
func recovered(work func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rm: panic: %v\n%s", r, debug.Stack())
		}
	}()
	return work()
}
