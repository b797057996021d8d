// Package rm controls the channel groups of other processes from outside, through NVIDIA's resource
// manager (RM): their time slices, and whether their channels may run. It imports the standard
// library and golang.org/x/sys.
//
// The resource manager ties a client to the open file that made it, not to a process. So a
// duplicate of a process's descriptor of /dev/nvidiactl (pidfd_getfd: CAP_SYS_PTRACE) gives its
// holder the right to control that process's objects. Nothing is injected, and the process is not
// stopped.
//
// A duplicate lives for one call: the resource manager frees a client, and the memory of a dead
// process with it, only when the last descriptor of the file is closed. Whoever closes last runs
// that teardown, and an ioctl cannot be interrupted. So calls run on workers, and a caller whose
// context ends does not wait for them.
//
// The structures follow the headers of NVIDIA/open-gpu-kernel-modules: see abi.go.
package rm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Errors that callers distinguish. Every other error has the name of the resource manager's status
// (see Status), or the system's errno.
var (
	// ErrGone: the process has ended or is about to, or its PID was reused.
	ErrGone = errors.New("the process is gone")
	// ErrChanged: an object is not what the group says. Find it again.
	ErrChanged = errors.New("the channel group has changed")
	// ErrUnsupported: this driver, or this system, cannot do it, or the process has so much that it
	// would take too long.
	ErrUnsupported = errors.New("not supported here")
	// ErrUnfinished: the search for a process's clients has not ended. See Find.
	ErrUnfinished = errors.New("the search has not ended")
)

// Process is one process: a PID alone may be reused.
type Process struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat: clock ticks since boot
}

func (p Process) String() string { return fmt.Sprintf("process %d", p.PID) }

// Group is a compute channel group of a process on one GPU.
//
// Client and Handle identify it on the whole machine. A process that was forked after its parent
// made a context shares the parent's file, so a search may find the same group in both.
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

// Options are the settings of a Manager; the zero value has good defaults.
type Options struct {
	// Workers bounds the calls under way at once. 0: 8.
	Workers int
	// Timeout bounds a call whose context has no earlier deadline; for Find it bounds each step. 0:
	// 2 s.
	Timeout time.Duration
	// Gap is how many absent handles in a row end the search for a client's objects, less than
	// 2^18 in any case. 0: 2048.
	Gap int
	// SearchRate bounds the client handles that all searches together try per second, plus up to
	// 16384 after a pause. 0: 100,000, which take some 0.3 s of one core.
	SearchRate int
	// Proven names driver versions outside Branches that have passed a self-test.
	Proven []string
	// Observe gets the name and duration of each call that ran on a worker. It must not block, and
	// several goroutines call it.
	Observe func(call string, took time.Duration, err error)
}

// Manager finds and controls channel groups. It is safe for concurrent use; calls for one process
// run one after another, in order.
type Manager struct {
	kernel Kernel
	opt    Options
	slots  chan struct{}
	lent   lender

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

// Supported returns nil if the structures of this driver are known, or a self-test has proven it.
// Else it returns an error that is ErrUnsupported, with the reason.
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

// queue orders the calls for one process.
type queue struct {
	turn  chan struct{} // holds one token while the turn is free
	users int
}

// enter waits for the turn of each of these PIDs, and for a worker.
func (m *Manager) enter(ctx context.Context, pids []int) (leave func(), err error) {
	var left []func()
	leave = func() {
		for _, f := range slices.Backward(left) {
			f()
		}
	}
	// All calls take their turns in the same order, which avoids deadlock, and the worker last.
	for _, pid := range slices.Compact(slices.Sorted(slices.Values(pids))) {
		end, err := m.takeTurn(ctx, pid)
		if err != nil {
			leave()
			return nil, err
		}
		left = append(left, end)
	}
	select {
	case m.slots <- struct{}{}:
		left = append(left, func() { <-m.slots })
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (m *Manager) takeTurn(ctx context.Context, pid int) (end func(), err error) {
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
		return func() { <-q.turn; drop() }, nil
	case <-ctx.Done():
		drop()
		return nil, ctx.Err()
	}
}

// do runs work on a worker and returns its error, or the context's if that ends first. abandoned
// tells work that the caller has gone; from then on it stays true, and nobody gets what work
// returns. Work that must not be lost asks it last, and undoes what it did.
func (m *Manager) do(ctx context.Context, call string, pid int, work func(ctx context.Context, abandoned func() bool) error) error {
	return m.doFor(ctx, call, []int{pid}, work)
}

// doFor is do for work that concerns several processes.
func (m *Manager) doFor(ctx context.Context, call string, pids []int, work func(ctx context.Context, abandoned func() bool) error) error {
	if err := m.Supported(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.opt.Timeout)
	leave, err := m.enter(ctx, pids)
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
	// Whichever changes state first decides whether the result is delivered.
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
	return <-done // work is about to return, and its result counts
}

// recovered turns a panic of a worker into an error, which nothing else would do.
func recovered(work func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rm: panic: %v\n%s", r, debug.Stack())
		}
	}()
	return work()
}
