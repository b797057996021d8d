package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/bounded"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/statefolder"
)

// Options of a Guard. Name, Container, Usage and Decider are required.
type Options struct {
	// Name of the record in the BPF file system; see Name.
	Name string
	// Container returns the id of the container that a process belongs to; ok is
	// false when it belongs to none.
	Container func(pid int) (id string, ok bool, err error)
	// Usage is called up to a hundred times a second while limited containers
	// allocate, one call at a time. It may hang: then allocations pass. Where it cannot read one GPU,
	// allocations pass on that one alone.
	Usage   task.UsageReader
	Decider Decider
	// Failed is called for a container that may get more than its limit, with the reason. Passing is
	// called instead where that is for want of a reading, or as a process of it could not be looked at.
	// It is called without a reason once no process of the container is unguarded and a later reading
	// shows the container within its limit and one context. They MUST NOT block. May be nil.
	Failed, Passing func(containerID, why string)
	// Proc is where the host's proc file system is mounted; /proc by default.
	Proc string
	// Context is how much a process's first context counts while it is made, bytes; 512 MiB by
	// default.
	Context uint64
	// MaxWait is how long a Wait may last before the call is denied; 10 s by default. SetMaxWait
	// changes it.
	MaxWait time.Duration
	// Settle is how long a denial waits while other processes of the container have calls under way:
	// those may fail. 50 ms by default.
	Settle time.Duration
	// Refresh is how often the usage is read while a limited container allocates;
	// 10 ms by default. For containers that do not allocate it is read every 250 ms.
	Refresh time.Duration
	Logger  *slog.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

func (o *Options) defaults() error {
	if o.Name == "" || o.Container == nil || o.Usage == nil || o.Decider == nil {
		return errors.New("enforce/memory: Name, Container, Usage and Decider are required")
	}
	for _, d := range []struct {
		to    *time.Duration
		value time.Duration
	}{{&o.MaxWait, 10 * time.Second}, {&o.Settle, 50 * time.Millisecond}, {&o.Refresh, 10 * time.Millisecond}} {
		if *d.to <= 0 {
			*d.to = d.value
		}
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Context == 0 {
		o.Context = 512 << 20
	}
	for _, f := range []*func(string, string){&o.Failed, &o.Passing} {
		if *f == nil {
			*f = func(string, string) {}
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Target is a container whose GPU memory is limited.
type Target struct {
	ID  string
	PID int // its first process, in the host's PID namespace
	// GPUs that it sees, by UUID, in its own order; at most 16.
	GPUs []string
	// Limit on each of them, bytes, contexts included; 0: none.
	Limit uint64
}

// Guard is made by New. It is safe for concurrent use.
type Guard struct {
	o      Options
	kernel *cudaprobe.MemoryGuard
	record *stop.Record
	starts *cudaprobe.Probe
	exits  *proc.Exits
	again  chan struct{} // asks to decide the waiting calls again

	targets atomic.Pointer[[]Target] // of the last Cover; nil: they were taken
	handed  chan struct{}            // there are some
	late    <-chan reading           // the end of a reading that was given up; for decideAll alone

	waits   atomic.Pointer[map[string]string]
	maxWait atomic.Int64 // nanoseconds
	// hangs and hangsAfter, in nanoseconds; tests change them
	usageLimit, fileLimit atomic.Int64

	mu         sync.Mutex
	containers map[string]*container
	processes  map[int]*process
	slots      slots
	early      map[string][]int      // by container that is not covered: PIDs that called cuInit
	earlyCount int                   // PIDs that are or were in it
	missed     map[int]*missed       // by PID
	tried      time.Time             // when they were last looked at
	usage      map[string]task.Usage // the last that was read of each GPU, by UUID; nil: none was
	blinded    time.Time             // since when the usage cannot be read; zero: it can be
	blindedOn  map[string]time.Time  // since when that of a single GPU cannot be, by UUID
	dues       uint64                // how often a process became due
	looking    sync.WaitGroup
	room       chan struct{} // has an entry for each goroutine that reads files of a container
	ending     chan struct{} // closed by Close
	closed     bool
}

// New loads the guard, which begins to work with Run and the first Renew. New continues every
// process that a former guard of this name left stopped. The error wraps cudaprobe.ErrUnsupported
// where this machine cannot guard: then limits can only be watched.
func New(o Options) (*Guard, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	g := &Guard{
		o: o, again: make(chan struct{}, 1), handed: make(chan struct{}, 1),
		containers: map[string]*container{}, processes: map[int]*process{}, early: map[string][]int{}, missed: map[int]*missed{},
		room: make(chan struct{}, maxReading), ending: make(chan struct{}),
	}
	g.SetMaxWait(o.MaxWait)
	g.usageLimit.Store(int64(hangs))
	g.fileLimit.Store(int64(hangsAfter))
	if _, err := stop.ReleaseAll(context.Background(), stop.Options{Name: o.Name, Proc: o.Proc}); err != nil {
		return nil, fmt.Errorf("continue whom a former guard stopped: %w", err)
	}
	if err := g.open(); err != nil {
		return nil, errors.Join(err, g.unload())
	}
	g.watch(cudafile.Finder{Proc: o.Proc}.Host())
	return g, nil
}

func (g *Guard) open() (err error) {
	probes := cudaprobe.Options{Proc: g.o.Proc}
	if g.kernel, err = cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Options: probes, Pins: g.o.Name}); err != nil {
		return err
	}
	if g.record, err = stop.OpenRecord(g.o.Name); err != nil {
		return err
	}
	if g.starts, err = cudaprobe.New(probes); err != nil {
		return err
	}
	g.exits, err = proc.NewExits()
	return err
}

// unload closes what open opened: side by side, since probes on a file that hangs keep only whose they are.
func (g *Guard) unload() error {
	var errs [4]error
	var wait sync.WaitGroup
	if g.starts != nil {
		wait.Go(func() { errs[0] = g.starts.Close() })
	}
	if g.kernel != nil {
		wait.Go(func() { errs[1] = g.kernel.Close() })
	}
	if g.record != nil {
		errs[2] = g.record.Close()
	}
	if g.exits != nil {
		errs[3] = g.exits.Close()
	}
	wait.Wait()
	return errors.Join(errs[:]...)
}

// Name is the name of the record of the actuator with this state folder.
func Name(folder statefolder.ID) string { return "laxity-" + string(folder) + "-memory" }

// Run decides until ctx ends. Then it continues every process that it stopped.
func (g *Guard) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := make(chan struct{}, 1)
	loops := []func() error{
		func() error {
			return cudaprobe.Each(g.kernel.Next, func(e cudaprobe.MemoryEvent) {
				if g.onKernel(e) {
					notify(wake)
				}
			})
		},
		func() error { return cudaprobe.Each(g.starts.Next, g.onStart) },
		func() error { return g.exits.Run(g.onExit) },
	}
	ended := make(chan error, len(loops))
	for _, loop := range loops {
		go func() {
			ended <- loop()
			cancel()
		}()
	}
	g.decideAll(ctx, wake)
	errs := []error{g.Close()} // it ends them
	for timeout := time.After(closing); len(errs) <= len(loops); {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-timeout:
			return errors.Join(append(errs, errors.New("a loop of the memory guard does not end"))...)
		}
	}
	return errors.Join(errs...)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close lets all calls pass, continues every process that the guard stopped, and detaches the probes,
// in some 0.1 s. Where files of containers cannot be read it takes up to 10 s, and may leave probes to the
// end of this program. Run calls it at its end. Close is idempotent.
func (g *Guard) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	close(g.ending)
	g.mu.Unlock()
	_, err := stop.ReleaseAll(context.Background(), stop.Options{Name: g.o.Name, Proc: g.o.Proc})
	g.mu.Lock()
	for _, p := range g.processes {
		g.remove(p)
	}
	g.mu.Unlock()
	if !bounded.Wait(closing, g.looking.Wait) {
		g.o.Logger.Warn("the memory guard ends, and files are still being read", "containers", g.stillRead(), "why", errFileHangs)
	}
	unloaded := make(chan error, 1)
	if !bounded.Wait(closing, func() { unloaded <- g.unload() }) {
		g.o.Logger.Warn("the memory guard ends, and its probes stay until this program ends", "why", errFileHangs)
		return err
	}
	return errors.Join(err, <-unloaded)
}

// Renew keeps the guard working for this long from now. Its owner must call Renew regularly: if the
// owner hangs, all allocations pass.
func (g *Guard) Renew(d time.Duration) error { return g.kernel.Renew(d) }

// SetMaxWait changes Options.MaxWait, also for calls that wait already.
func (g *Guard) SetMaxWait(d time.Duration) { g.maxWait.Store(int64(d)) }

// Reconsider asks the Decider again about all requests that wait.
func (g *Guard) Reconsider() { notify(g.again) }

// onStart handles a process that calls cuInit. A process that is guarded already keeps its probes,
// also after an exec: the kernel program forgets what it counted of the old program.
func (g *Guard) onStart(e cudaprobe.Event) {
	if e.Kind != cudaprobe.InitCalled {
		return
	}
	g.consider(e.PID, true)
}

// maxEarly bounds how many processes are remembered that called cuInit before their container was
// covered.
const maxEarly = 1024

func (g *Guard) onExit(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[pid]; p != nil && !g.closed && !p.alive() {
		g.remove(p)
	}
}
