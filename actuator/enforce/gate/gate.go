// Package gate keeps containers from computing on a GPU without stopping them
// before they want to: a process is stopped at the entry of its first launch, in
// the kernel, with its input on the GPU already, and goes on within a millisecond
// when its container's turn comes. Host and copy phases are not disturbed.
//
// # Who is stopped
//
// The processes of the containers given to Arbitrate that call cuInit, or have
// the driver's library mapped when their container is given. A container is shut
// out by default: the first launch of each of its processes stops until Admit.
// When the launches of an admitted container are through (a synchronising call
// has returned, and nothing was launched for as long as Linger), its admission is
// over: what it launches later queues again.
//
// A container that is kept Back is stopped before that, where one of its processes
// would create a context: another one's start-up is not to be disturbed.
//
// # Nobody stays stopped
//
// The kernel writes a process on record, in a map that outlives us, before it
// stops it. Probes die with the process that set them. LetGo, which the guardian
// calls after our death, opens the gate and continues everybody on record. A gate
// that is not renewed opens by itself.
//
// # What the gate does not stop
//
// A process with a tracer, which would see the signal; one under a shell with job
// control, which would take it for suspended (and whose orphaned stopped group
// the kernel kills): they pass, View says so, and the container is to be paused
// instead. Where the kernel is older than 6.16, a process that somebody else
// continues with SIGCONT may get one launch through (see Gate.Weakness).
//
// It imports actuator/enforce, actuator/journal, actuator/plan and actuator/policy for
// their words,
// internal/cudaprobe and golang.org/x/sys.
package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Options of a Gate. Name and Container are required.
type Options struct {
	// Name of the record in the BPF file system; see Name.
	Name string
	// Container returns the id of the container that a process belongs to; ok is
	// false when it belongs to none.
	Container func(pid int) (id string, ok bool, err error)
	// Proc is where the host's proc file system is mounted; /proc by default.
	Proc string
	// Linger is for how long nothing may be launched after a synchronising call
	// returned before the turn is over; 1 ms by default. A task that launches
	// and synchronises in a loop keeps its turn.
	Linger time.Duration
	// Assume is for how long a process that was there before its container was
	// given counts as computing though nothing is seen of it, from when its
	// launches can be seen; 2 s by default.
	Assume time.Duration
	// Attached is told how long it took to put the probes on a process; may be nil.
	Attached func(pid int, took time.Duration)
	Logger   *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Target is a container whose processes are to be gated.
type Target struct {
	ID  string
	PID int // its first process, in the host's PID namespace
}

// Gate is made by New. It is safe for concurrent use.
type Gate struct {
	o       Options
	kernel  *cudaprobe.Gate
	starts  *cudaprobe.Probe
	exits   *proc.Exits
	changed chan struct{}
	letgo   chan struct{} // somebody was let go, and is to be looked after

	mu         sync.Mutex
	containers map[string]*container
	processes  map[int]*process
	waiting    map[string][]int // container not known yet → processes that called cuInit
	looking    sync.WaitGroup
	closed     bool
	turn       time.Duration // moving average
	released   []released
}

// ErrNotGated means that a container was not given to Arbitrate, or that one of
// its processes cannot be stopped by the gate; the wrapped text says why.
var ErrNotGated = errors.New("not under the launch gate")

// New loads the gate, which begins to work with Run and the first Renew. Whoever
// was left stopped by a gate of this name before is let go. The error wraps
// cudaprobe.ErrUnsupported where this machine cannot gate.
func New(o Options) (*Gate, error) {
	if o.Name == "" || o.Container == nil {
		return nil, errors.New("enforce/gate: Name and Container are required")
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Linger <= 0 {
		o.Linger = time.Millisecond
	}
	if o.Assume <= 0 {
		o.Assume = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Gate{
		o: o, changed: make(chan struct{}, 1), letgo: make(chan struct{}, 1),
		containers: map[string]*container{}, processes: map[int]*process{}, waiting: map[string][]int{},
	}
	if _, err := LetGo(context.Background(), LetGoOptions{Name: o.Name, Proc: o.Proc}); err != nil {
		return nil, fmt.Errorf("let go what a former gate left: %w", err)
	}
	var err error
	probes := cudaprobe.Options{Proc: o.Proc}
	if g.starts, err = cudaprobe.New(probes); err != nil {
		return nil, err
	}
	if g.kernel, err = cudaprobe.NewGate(cudaprobe.GateOptions{Options: probes, Pins: o.Name}); err != nil {
		return nil, errors.Join(err, g.starts.Close())
	}
	if g.exits, err = proc.NewExits(); err != nil {
		return nil, errors.Join(err, g.starts.Close(), g.kernel.Close())
	}
	g.watch(cudafile.Finder{Proc: o.Proc}.Host())
	if err := g.kernel.Weakness(); err != nil {
		o.Logger.Warn("a tenant that continues itself may get one launch through the gate", "why", err)
	}
	return g, nil
}

// Weakness says why a process that somebody else continues may get one launch
// through; nil: it does not.
func (g *Gate) Weakness() error { return g.kernel.Weakness() }

// Run takes the kernel's events until ctx ends. Then it lets everybody go.
func (g *Gate) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	var failed [4]error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, loop := range []func() error{
		func() error { return cudaprobe.Each(g.kernel.Next, g.onKernel) },
		func() error { return cudaprobe.Each(g.starts.Next, g.onStart) },
		func() error { return g.exits.Run(g.onExit) },
		func() error { return g.lookAfter(ctx) },
	} {
		wait.Go(func() {
			failed[i] = loop()
			cancel()
		})
	}
	<-ctx.Done()
	err := g.Close()
	wait.Wait()
	return errors.Join(append(failed[:], err)...)
}

// Close opens the gate, continues everybody and takes the probes off, which takes
// some 0.1 s. Run does it at its end. Again, it does nothing.
func (g *Gate) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()
	_, err := LetGo(context.Background(), LetGoOptions{Name: g.o.Name, Proc: g.o.Proc})
	g.mu.Lock()
	for _, p := range g.processes {
		g.remove(p)
	}
	g.mu.Unlock()
	g.looking.Wait()
	g.verify(true)
	return errors.Join(err, g.starts.Close(), g.kernel.Close(), g.exits.Close())
}

// Renew keeps the gate shut for this long from now. Whoever decides must call it
// again and again: if it hangs, the gate opens.
func (g *Gate) Renew(d time.Duration) error { return g.kernel.Renew(d) }

// Turn is how long a turn lasts, from the first launch to the end of the GPU work,
// as a moving average; 0 before the first one ended.
func (g *Gate) Turn() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turn
}

// Changed gets a value after View has changed.
func (g *Gate) Changed() <-chan struct{} { return g.changed }

func (g *Gate) tell() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}
