package cudaprobe

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// What a Gate tells besides Launched and Done, and what a MemoryGuard tells.
const (
	// Held: stopped at the entry of a launch, and on record.
	Held Kind = iota + 16
	// Continued: somebody sent SIGCONT to a process that is held. It has been
	// stopped again, see Gate.Weakness.
	Continued
	// AskedToEnd: a held process got a signal that asks it to end, which it does
	// not hear as long as it is stopped.
	AskedToEnd
	// HeldBack: stopped at the entry of a call that creates a context, and on record.
	HeldBack
)

// GateOptions say where a Gate keeps its record.
type GateOptions struct {
	Options
	// Pins is the name of the folder for the record, below /sys/fs/bpf.
	Pins string
}

// Gate stops chosen processes at the entry of their launches, in the kernel, with
// nobody asked, and those that Back names before they create a context; and follows
// their work as Probe.Track does. It is safe for
// concurrent use; Next is for one goroutine.
//
// Its probes belong to this process: they vanish when it dies, however it dies.
// The record of whom it has stopped does not, see OpenRecord.
type Gate struct {
	holder
	maps gateMaps
	code *trackPrograms
	// create is at the calls that create a context.
	create *ebpf.Program
}

// PinFolder is where the record of a gate with this name is.
func PinFolder(name string) string { return filepath.Join(bpfFS, name) }

// NewGate loads the programs. The error wraps ErrUnsupported where that cannot
// be. A record with the same name is replaced: whoever is on it must have been
// let go before.
func NewGate(o GateOptions) (*Gate, error) {
	g := &Gate{}
	g.verb, g.attach, g.leave, g.left = "gate", g.attachTo, g.shutOut, g.Reset
	if err := g.begin(o); err != nil {
		return nil, err
	}
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
	var errs [5]error
	g.code.launch, errs[0] = g.probe.attacher.program(gateLaunch(g.maps, offsets))
	g.code.begin, errs[1] = g.probe.attacher.program(begin(g.maps.maps))
	g.code.syncDone, errs[2] = g.probe.attacher.program(done(g.maps.maps, false))
	g.code.copyDone, errs[3] = g.probe.attacher.program(done(g.maps.maps, true))
	g.create, errs[4] = g.probe.attacher.program(gateCreate(g.maps, offsets))
	g.probe.perCall = g.code
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	g.weakness = g.keepers.keep(g.maps.maps, g.maps.ifHeld, onWake(g.maps), offsets)
	g.reader, err = ringbuf.NewReader(g.maps.ring)
	return err
}

// Gate stops the process at its next launch, unless it is admitted. busy says
// that it may have launched work already, whose end is told as Done. A process
// that has not loaded the driver gives ErrNotLoaded. Doing it twice is once.
func (g *Gate) Gate(pid int, busy bool) error {
	begun := busyState{}
	if busy {
		begun.Launched = 1
	}
	return g.take(pid, func() error { return g.maps.busy.Put(uint32(pid), begun) })
}

func (g *Gate) attachTo(file *cudafile.File, pid int) (links, error) {
	functions, err := g.probe.functions(file)
	if err != nil {
		return nil, err
	}
	// First: it is what the process calls first.
	creates, err := g.probe.attacher.attach(file, g.create, functions[cudafile.Context], pid, false)
	if err != nil {
		return creates, err
	}
	calls, err := g.probe.attachCalls(file, pid)
	if err != nil {
		return append(creates, calls...), err
	}
	launches, err := g.probe.attachLaunches(file, pid)
	return slices.Concat(creates, calls, launches), err
}

// Back stops the process, from now on, before it creates a context.
func (g *Gate) Back(pid int) error { return g.maps.back.Put(uint32(pid), uint32(1)) }

// Forth ends that. It does not continue the process.
func (g *Gate) Forth(pid int) error {
	if err := g.maps.back.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// shutOut ends it for the programs.
func (g *Gate) shutOut(pid int) {
	_ = g.maps.back.Delete(uint32(pid))
	_ = g.maps.admitted.Put(uint32(pid), uint32(1)) // for a program that runs right now
	_ = g.maps.busy.Delete(uint32(pid))             // then the others do nothing
}

// Admit lets the process launch from now on. It does not continue it.
func (g *Gate) Admit(pid int) error { return g.maps.admitted.Put(uint32(pid), uint32(1)) }

// Reset ends what was said of a process with the same PID before: Admit and Back.
func (g *Gate) Reset(pid int) {
	_ = g.maps.admitted.Delete(uint32(pid))
	_ = g.maps.back.Delete(uint32(pid))
}

// Shut ends an admission: the next launch stops. busy reports that the process
// has work under way, or stands at a launch already. Of one that Gate has not been
// called for, or that is dropped, nothing is known to be under way.
func (g *Gate) Shut(pid int) (busy bool, err error) {
	if err := g.maps.admitted.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, err
	}
	begun, done, err := g.Launches(pid)
	return begun != done, err
}

// IsHeld reports whether the process is on record.
func (g *Gate) IsHeld(pid int) bool {
	var raw [heldSize]byte
	return g.maps.held.Lookup(uint32(pid), &raw) == nil
}

// Close takes all probes off, which takes some 0.1 s, and ends Next. Who is on
// record stays stopped: let them go before.
func (g *Gate) Close() error {
	if !g.stop() {
		return nil
	}
	return g.free()
}

func (g *Gate) free() error {
	errs := []error{g.holder.free()}
	if g.code != nil {
		errs = append(errs, g.code.Close())
	}
	if g.create != nil {
		errs = append(errs, g.create.Close())
	}
	return errors.Join(append(errs, g.maps.Close())...)
}

// Launches returns how many launches the process has begun, the one at which it
// may stand included, and how many are known to be done. One that was said to be
// busy begins with one. Of one that Gate has not been called for they are 0.
func (g *Gate) Launches(pid int) (begun, done uint64, err error) {
	var s busyState
	err = g.maps.busy.Lookup(uint32(pid), &s)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return s.Launched, s.Done, err
}
