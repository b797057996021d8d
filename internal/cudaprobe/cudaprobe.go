// Package cudaprobe observes from outside what processes do with the CUDA driver, by uprobes on the
// functions of its library: one BPF program serves every process and container that maps the same
// file, and none of them needs a change.
//
// The programs are package cudabpf's. The kernel decides what is reported, so that a process that
// calls a function a million times a second sends no million events.
//
// The programs need Linux 5.8 with BTF; to follow launches (Track) 5.12, and for the memory guard
// 5.15.
//
// The exporter's start sensor uses it, and the actuator's memory guard finds files and functions
// with it. It knows neither: it imports cilium/ebpf, internal/cudabpf, internal/cudaprobe/cudafile,
// golang.org/x/sys and the standard library.
package cudaprobe

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// The default and the least value of Options.Quiet: with a shorter one we would inspect processes
// more than 500 times a second.
const defaultQuiet, shortestQuiet = 50 * time.Millisecond, 10 * time.Millisecond

var (
	// ErrUnsupported means that this machine does not let us probe; the wrapped text says why, and
	// what would help.
	ErrUnsupported = errors.New("uprobes not supported here")
	// ErrNotLoaded means that a process has not loaded the CUDA driver.
	ErrNotLoaded = errors.New("the process has not loaded libcuda")
	// ErrClosed is returned by Next after Close.
	ErrClosed = errors.New("probe is closed")
)

// Options change how the probes work; the zero value has good defaults.
type Options struct {
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	// Quiet is how long a process must neither launch nor wait for the GPU to count as idle, if that
	// must be found out (see Track): 10 ms or more. A shorter value, such as 0, means 50 ms.
	Quiet time.Duration
	// OneByOne attaches each function separately, as kernels before 6.10 need it.
	OneByOne bool
}

// Probe holds the BPF programs and their attachments. It is safe for concurrent use; Next is for
// one goroutine.
type Probe struct {
	finder   cudafile.Finder
	attacher attacher
	starts   cudabpf.StartsObjects
	exits    exitProbe
	reader   *ringbuf.Reader
	record   ringbuf.Record
	quiet    time.Duration
	pending  []Event       // for Next, before those of the reader
	lookAt   time.Duration // CLOCK_MONOTONIC, for Next: when an inspection is due; 0: never

	mu       sync.Mutex // nobody reads a container's file, or attaches to it, while holding this
	files    map[cudafile.ID]*attached
	tracked  map[int]*tracked         // by PID
	launches *cudabpf.LaunchesObjects // loaded by the first Track
	looks    uint64                   // Stats.Looks
	closed   bool
	detaches sync.WaitGroup // detachments, and attachments of Add and Track under way
	inFlight atomic.Int64   // detachments that have not ended

	lostMu sync.Mutex // guards starts.Lost against free, so that Lost need not wait for mu
	freed  bool
}

// attached keeps probes in place.
type attached struct {
	links     links
	functions cudafile.Functions // of a file
	over      chan struct{}      // closed once they are attached, or cannot be
}

// New loads the programs. The error wraps ErrUnsupported if this machine does not allow it.
func New(o Options) (*Probe, error) {
	types := btf.NewCache()
	if err := checkKernel(o.Proc, types); err != nil {
		return nil, err
	}
	p := &Probe{
		finder:   cudafile.Finder{Proc: o.Proc},
		attacher: newAttacher(o.OneByOne),
		quiet:    o.Quiet,
		files:    map[cudafile.ID]*attached{},
		tracked:  map[int]*tracked{},
	}
	if p.quiet < shortestQuiet {
		p.quiet = defaultQuiet
	}
	if err := p.load(types); err != nil {
		return nil, errors.Join(explain("load BPF programs", err), p.free())
	}
	return p, nil
}

func (p *Probe) load(types *btf.Cache) error {
	err := p.attacher.load(cudabpf.LoadStarts, &p.starts, types, nil)
	if err != nil {
		return err
	}
	// Without it others report ends, later: no reason to fail.
	if err := p.attachExits(types); err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	p.reader, err = ringbuf.NewReader(p.starts.Events)
	return err
}

// Add attaches the permanent probes to a file: from its return on, cuInit and contexts of every
// process that maps it are reported. added is false if the file has them already. The error wraps
// cudafile.ErrNotDriver if it is no CUDA driver. The file may be closed afterwards. While another Add of
// the file is under way, Add waits for that.
func (p *Probe) Add(file *cudafile.File) (added bool, err error) {
	if has, err := p.has(file.ID); has || err != nil {
		return false, err
	}
	functions, err := file.Functions() // without mu: it may take long, or for ever
	if err != nil {
		return false, err
	}
	a := &attached{functions: functions, over: make(chan struct{})}
	for {
		mine, err := p.reserve(file.ID, a)
		if err != nil {
			return false, err
		}
		if mine {
			break
		}
		if has, err := p.has(file.ID); has || err != nil {
			return false, err
		}
	}
	defer p.detaches.Done()
	defer close(a.over)
	l, err := p.attacher.attachEach(file, functions, 0, []put{
		{[]cudafile.Kind{cudafile.Init}, p.starts.InitEntry, false},
		{[]cudafile.Kind{cudafile.Context}, p.starts.ContextEntry, false},
		{[]cudafile.Kind{cudafile.ContextGone}, p.starts.LeaveEntry, false},
		{[]cudafile.Kind{cudafile.ContextGone}, p.starts.LeaveReturn, true},
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	removed := p.files[file.ID] != a // meanwhile, or the probe was closed
	switch {
	case err != nil:
		p.detach(l)
		if !removed {
			delete(p.files, file.ID)
		}
		return false, explainAttach("attach to "+file.Path, err)
	case removed:
		p.detach(l)
		return false, ErrClosed
	}
	a.links = l
	return true, nil
}

// has reports whether a file has its probes. It waits until an attachment under way is over.
func (p *Probe) has(id cudafile.ID) (bool, error) {
	p.mu.Lock()
	a := p.files[id]
	p.mu.Unlock()
	if a != nil {
		<-a.over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, ErrClosed
	}
	return a != nil && p.files[id] == a, nil
}

// reserve makes a the entry of a file that has none. If so, Close waits for detaches.Done.
func (p *Probe) reserve(id cudafile.ID, a *attached) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, ErrClosed
	}
	if p.files[id] != nil {
		return false, nil
	}
	p.files[id] = a
	p.detaches.Add(1)
	return true, nil
}

// Remove detaches the probes from a file. It does not wait for that.
func (p *Probe) Remove(id cudafile.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.files[id]; a != nil {
		delete(p.files, id)
		p.detach(a.links)
	}
}

// Next waits for the next event. After Close it returns ErrClosed. While it is not called, no
// process becomes unwatched or watched again: see Track.
func (p *Probe) Next() (Event, error) {
	for {
		if len(p.pending) > 0 {
			e := p.pending[0]
			p.pending = p.pending[1:]
			return e, nil
		}
		p.reader.SetDeadline(p.deadline())
		e, err := nextEvent(p.reader, &p.record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.lookIfDue()
		case err != nil:
			return Event{}, err
		case e.Kind == Launched || e.Kind == launchedFast:
			p.pending = append(p.pending, p.launched(e)...)
		default:
			return e, nil
		}
	}
}

func nextEvent(r *ringbuf.Reader, record *ringbuf.Record) (Event, error) {
	err := r.ReadInto(record)
	switch {
	case errors.Is(err, ringbuf.ErrClosed), errors.Is(err, os.ErrClosed):
		return Event{}, ErrClosed
	case err != nil:
		return Event{}, fmt.Errorf("read events: %w", err)
	}
	return decode(record.RawSample, readClocks)
}

// Each passes the events of next to do, until next is closed or fails.
func Each[E any](next func() (E, error), do func(E)) error {
	for {
		e, err := next()
		if errors.Is(err, ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		do(e)
	}
}

// Stats is the work of a Probe, and what it could not do.
type Stats struct {
	Files     int    // library files with probes
	Tracked   int    // processes whose launches are followed
	Unwatched int    // of these, processes that launch so fast that their launches are not watched now
	Exits     bool   // whether Exiting is reported
	Detaching int    // probes that are being detached
	Lost      uint64 // events without room since the start
	Looks     uint64 // how often processes whose launches are not watched were inspected since the start
}

// Stats returns the present state.
func (p *Probe) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Files: len(p.files), Tracked: len(p.tracked), Exits: p.exits.link != nil,
		Detaching: int(p.inFlight.Load()), Lost: p.Lost(), Looks: p.looks,
	}
	for _, t := range p.tracked {
		if t.unwatched != nil && t.unwatched.armed == 0 {
			s.Unwatched++
		}
	}
	return s
}

// Lost is Stats.Lost, and 0 after Close. It does not wait for other calls.
func (p *Probe) Lost() (lost uint64) {
	p.lostMu.Lock()
	defer p.lostMu.Unlock()
	if !p.freed {
		_ = p.starts.Lost.Lookup(uint32(0), &lost)
	}
	return lost
}

// Close detaches all probes, which takes some 0.1 s, and ends Next.
func (p *Probe) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	for _, a := range p.files {
		p.detach(a.links)
	}
	clear(p.files) // a later Remove finds nothing to detach
	for pid := range p.tracked {
		p.untrack(pid)
	}
	p.mu.Unlock()
	err := p.reader.Close() // ends Next now: an attachment under way may hang
	p.detaches.Wait()
	return errors.Join(err, p.free())
}

// free frees what New and Track have loaded.
func (p *Probe) free() error {
	p.lostMu.Lock()
	p.freed = true
	p.lostMu.Unlock()
	var errs []error
	errs = append(errs, p.exits.Close())
	if p.reader != nil {
		errs = append(errs, p.reader.Close())
	}
	if p.launches != nil {
		errs = append(errs, p.launches.Close())
	}
	return errors.Join(append(errs, p.starts.Close())...)
}

// detach detaches probes in the background: the kernel waits some 0.1 s until every CPU has left
// them.
func (p *Probe) detach(l links) {
	if len(l) == 0 {
		return
	}
	p.inFlight.Add(1)
	p.detaches.Go(func() {
		defer p.inFlight.Add(-1)
		_ = l.Close() // there is nothing to do about an error
	})
}

// Check tries on this process whether this machine lets us probe. It returns nil if so; else the
// error wraps ErrUnsupported.
func Check(o Options) error {
	p, err := New(o)
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := p.attacher.toSelf(p.starts.InitEntry)
	if err != nil {
		return explain("attach a uprobe", err)
	}
	return l.Close()
}

// CheckTrack tries in the same way whether launches can be followed.
func CheckTrack(o Options) error {
	p, err := New(o)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.loadLaunches()
}

// explain wraps the kernel's refusal with ErrUnsupported, and a hint.
func explain(what string, err error) error {
	hint := "the kernel refuses it"
	if _, ok := errors.AsType[unix.Errno](err); !ok && !errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%s: %w", what, err) // the kernel was not reached
	}
	switch {
	case refused(err):
		hint = "run as root with CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, which many kernels before 6.10 want for probes"
		if filtered() {
			hint += "; a system call filter is on, which must let bpf and perf_event_open through"
		}
		if mode := lockdown(); mode != "" {
			hint += "; kernel lockdown is on: " + mode
		}
	case errors.Is(err, ebpf.ErrNotSupported):
		hint = "the kernel is too old or built without it: 5.8, CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS are needed"
	}
	return fmt.Errorf("%w: %s: %w (%s)", ErrUnsupported, what, err, hint)
}

// explainAttach is explain for an error whose cause may also be one file or process.
func explainAttach(what string, err error) error {
	if refused(err) || errors.Is(err, ebpf.ErrNotSupported) {
		return explain(what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func refused(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }
