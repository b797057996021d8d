package cudaprobe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// What a Gate tells besides Launched and Done.
const (
	// Held: stopped at the entry of a launch, and on record.
	Held Kind = iota + 16
	// Continued: somebody sent SIGCONT to a process that is held. It has been
	// stopped again, see Gate.Weakness.
	Continued
	// AskedToEnd: a held process got a signal that asks it to end, which it does
	// not hear as long as it is stopped.
	AskedToEnd
)

// GateOptions say where a Gate keeps its record.
type GateOptions struct {
	Options
	// Pins is the name of the folder for the record, below /sys/fs/bpf.
	Pins string
}

// Gate stops chosen processes at the entry of their launches, in the kernel, with
// nobody asked; and follows their work as Probe.Track does. It is safe for
// concurrent use; Next is for one goroutine.
//
// Its probes belong to this process: they vanish when it dies, however it dies.
// The record of whom it has stopped does not, see OpenRecord.
type Gate struct {
	*Record
	probe    Probe // for what it shares with the probes: finder, attacher, detach
	maps     gateMaps
	code     *trackPrograms
	keepers  []*ebpf.Program // keep stopped what others continue
	keeping  links
	weakness error // why the kernel does not keep stopped what others continue
	reader   *ringbuf.Reader
	record   ringbuf.Record

	attaching sync.Mutex // one after the other, as probe.files is used

	mu     sync.Mutex
	gated  map[int]*gatedLinks
	closed atomic.Bool
}

// gatedLinks are the probes on one process.
type gatedLinks struct{ links links }

// PinFolder is where the record of a gate with this name is.
func PinFolder(name string) string { return filepath.Join(bpfFS, name) }

// NewGate loads the programs. The error wraps ErrUnsupported where that cannot
// be. A record with the same name is replaced: whoever is on it must have been
// let go before.
func NewGate(o GateOptions) (*Gate, error) {
	if err := checkNamespace(o.Proc); err != nil {
		return nil, err
	}
	if err := mountBPF(); err != nil {
		return nil, err
	}
	g := &Gate{gated: map[int]*gatedLinks{}}
	g.probe.finder = cudafile.Finder{Proc: o.Proc}
	g.probe.attacher = newAttacher(o.OneByOne)
	g.probe.files = map[cudafile.ID]*attached{}
	if err := g.load(PinFolder(o.Pins)); err != nil {
		return nil, errors.Join(explain("load the gate's BPF programs", err), g.free())
	}
	return g, nil
}

func (g *Gate) load(pins string) (err error) {
	if g.maps, err = newGateMaps(pins); err != nil {
		return err
	}
	g.Record = &Record{held: g.maps.held, until: g.maps.until}
	offsets := kernelOffsets()
	g.code = &trackPrograms{}
	var errs [4]error
	g.code.launch, errs[0] = g.probe.attacher.program(gateLaunch(g.maps, offsets))
	g.code.begin, errs[1] = g.probe.attacher.program(begin(g.maps.maps))
	g.code.syncDone, errs[2] = g.probe.attacher.program(done(g.maps.maps, false))
	g.code.copyDone, errs[3] = g.probe.attacher.program(done(g.maps.maps, true))
	g.probe.perCall = g.code
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	g.weakness = g.keep(offsets)
	g.reader, err = ringbuf.NewReader(g.maps.ring)
	return err
}

// keep attaches the programs that keep stopped what others continue. Where the
// kernel does not let us, the gate works all the same, but a tenant that continues
// itself may get one launch through: the error says so.
func (g *Gate) keep(offsets *taskOffsets) error {
	if offsets == nil {
		return fmt.Errorf("%w: the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)", ErrUnsupported)
	}
	if err := g.hook("signal_generate", onSignal(g.maps, offsets, kernelFunction("bpf_send_signal_task"))); err != nil {
		return err
	}
	return g.hook("sched_exit_tp", onWake(g.maps)) // since Linux 6.16
}

// hook runs a program at one of the kernel's trace points.
func (g *Gate) hook(point string, code asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: point, License: license, Instructions: code,
	})
	if err != nil {
		return explain("load the program for "+point, err)
	}
	g.keepers = append(g.keepers, program)
	l, err := link.AttachTracing(link.TracingOptions{Program: program, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		return explain("attach to "+point, err)
	}
	g.keeping = append(g.keeping, l)
	return nil
}

// kernelFunction returns the number of a function that the kernel lends to BPF
// programs; 0: it has none.
func kernelFunction(name string) int64 {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return 0
	}
	var function *btf.Func
	if err := spec.TypeByName(name, &function); err != nil {
		return 0
	}
	id, err := spec.TypeID(function)
	if err != nil {
		return 0
	}
	return int64(id)
}

// Weakness says why the kernel itself does not stop a held process again that
// somebody continues; nil: it does. With a weakness one launch may slip through,
// and Continued is told where the kernel at least hears of signals.
func (g *Gate) Weakness() error { return g.weakness }

// Gate stops the process at its next launch, unless it is admitted. busy says
// that it may have launched work already, whose end is told as Done. A process
// that has not loaded the driver gives ErrNotLoaded. Doing it twice is once.
func (g *Gate) Gate(pid int, busy bool) error {
	files, err := g.probe.finder.Mapped(pid)
	if err != nil {
		return err
	}
	defer cudafile.CloseAll(files)
	one, err := g.enlist(pid, busy)
	if one == nil || err != nil {
		return err
	}
	all, err := g.attachAll(files, pid)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("gate process %d: %w", pid, ErrNotLoaded)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	one.links = all
	if g.gated[pid] != one { // dropped meanwhile
		g.detach(pid, one)
		return err
	}
	if err != nil {
		g.drop(pid)
	}
	return err
}

// enlist makes the process known to the programs; nil: it is known.
func (g *Gate) enlist(pid int, busy bool) (*gatedLinks, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return nil, ErrClosed
	}
	if g.gated[pid] != nil {
		return nil, nil
	}
	begun := busyState{}
	if busy {
		begun.Launched = 1
	}
	if err := g.maps.busy.Put(uint32(pid), begun); err != nil {
		return nil, fmt.Errorf("gate process %d: %w", pid, err)
	}
	one := &gatedLinks{}
	g.gated[pid] = one
	return one, nil
}

func (g *Gate) attachAll(files []*cudafile.File, pid int) (all links, err error) {
	g.attaching.Lock()
	defer g.attaching.Unlock()
	for _, file := range files {
		l, err := g.attach(file, pid)
		all = append(all, l...)
		if err != nil && !errors.Is(err, cudafile.ErrNotDriver) {
			return all, explainAttach(fmt.Sprintf("gate process %d", pid), err)
		}
	}
	return all, nil
}

func (g *Gate) attach(file *cudafile.File, pid int) (links, error) {
	functions, err := g.probe.functions(file)
	if err != nil {
		return nil, err
	}
	g.probe.files[file.ID] = &attached{functions: functions} // so that they are read once
	return g.probe.trackIn(file, pid)
}

// Admit lets the process launch from now on. It does not continue it.
func (g *Gate) Admit(pid int) error { return g.maps.admitted.Put(uint32(pid), uint32(1)) }

// Reset ends an admission that a process with the same PID had before.
func (g *Gate) Reset(pid int) { _ = g.maps.admitted.Delete(uint32(pid)) }

// Shut ends an admission: the next launch stops. busy reports that the process
// has work under way, or stands at a launch already.
func (g *Gate) Shut(pid int) (busy bool, err error) {
	if err := g.maps.admitted.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, err
	}
	var s busyState
	if err := g.maps.busy.Lookup(uint32(pid), &s); err != nil {
		return false, err
	}
	return s.Launched != s.Done, nil
}

// IsHeld reports whether the process is on record.
func (g *Gate) IsHeld(pid int) bool {
	var raw [heldSize]byte
	return g.maps.held.Lookup(uint32(pid), &raw) == nil
}

// Drop ends what Gate began, at once for the process, some 0.1 s later for the
// probes. It does not continue it, and the record stays.
func (g *Gate) Drop(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(pid)
}

func (g *Gate) drop(pid int) {
	one := g.gated[pid]
	if one == nil {
		return
	}
	delete(g.gated, pid)
	_ = g.maps.admitted.Put(uint32(pid), uint32(1)) // for a program that runs right now
	_ = g.maps.busy.Delete(uint32(pid))             // then the others do nothing
	g.detach(pid, one)
}

func (g *Gate) detach(pid int, one *gatedLinks) {
	all := one.links
	one.links = nil
	g.probe.inFlight.Add(1)
	g.probe.detaches.Go(func() {
		defer g.probe.inFlight.Add(-1)
		_ = all.Close() // there is nothing to be done about it
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.gated[pid] == nil {
			_ = g.maps.admitted.Delete(uint32(pid))
		}
	})
}

// Next waits for the next event.
func (g *Gate) Next() (Event, error) {
	err := g.reader.ReadInto(&g.record)
	switch {
	case errors.Is(err, ringbuf.ErrClosed), errors.Is(err, os.ErrClosed):
		return Event{}, ErrClosed
	case err != nil:
		return Event{}, fmt.Errorf("read the gate's events: %w", err)
	}
	return decode(g.record.RawSample, readClocks)
}

// Close takes all probes off, which takes some 0.1 s, and ends Next. Who is on
// record stays stopped: let them go before.
func (g *Gate) Close() error {
	g.mu.Lock()
	if g.closed.Swap(true) {
		g.mu.Unlock()
		return nil
	}
	for pid := range g.gated {
		g.drop(pid)
	}
	g.mu.Unlock()
	g.attaching.Lock()   // an attachment under way is undone, not forgotten
	g.attaching.Unlock() //nolint:staticcheck // it only waits
	g.probe.detaches.Wait()
	return g.free()
}

func (g *Gate) free() error {
	errs := []error{g.keeping.Close()}
	for _, program := range g.keepers {
		errs = append(errs, program.Close())
	}
	if g.reader != nil {
		errs = append(errs, g.reader.Close())
	}
	if g.code != nil {
		errs = append(errs, g.code.Close())
	}
	return errors.Join(append(errs, g.maps.Close())...)
}

// Launches returns how many launches the process has begun, the one at which it
// may stand included, and how many are known to be done. One that was said to be
// busy begins with one.
func (g *Gate) Launches(pid int) (begun, done uint64, err error) {
	var s busyState
	err = g.maps.busy.Lookup(uint32(pid), &s)
	return s.Launched, s.Done, err
}
