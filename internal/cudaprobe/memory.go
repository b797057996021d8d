package cudaprobe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// MemoryGuard watches the allocations of chosen processes, in the kernel. Each is
// counted on a slot; one that the slot's budget covers goes on within some 2 µs.
// Another one is held: its process is stopped at the entry of the call, on record,
// and Held is told, until Continue, with or without Deny before.
//
// Its probes belong to this process, as a Gate's do, and the record of whom it has
// stopped outlives it. It is safe for concurrent use; Next is for one goroutine.
type MemoryGuard struct {
	holder
	maps     memoryMaps
	programs memoryPrograms
}

// memoryPrograms are put on a process's functions.
type memoryPrograms struct {
	allocation, allocated, freed, asked, answered *ebpf.Program
	makes, made, turns                            *ebpf.Program // of contexts
	graphCalled, graphDone, graphGone             *ebpf.Program
}

func (p memoryPrograms) Close() error {
	var errs []error
	for _, one := range []*ebpf.Program{p.allocation, p.allocated, p.freed, p.asked, p.answered, p.makes, p.made, p.turns, p.graphCalled, p.graphDone, p.graphGone} {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// NewMemoryGuard loads the programs. It needs Linux 5.15 on amd64; the error wraps
// ErrUnsupported where that cannot be. A record with the same name is replaced:
// whoever is on it must have been let go before.
func NewMemoryGuard(o GateOptions) (*MemoryGuard, error) {
	if !canGuard {
		return nil, fmt.Errorf("%w: allocations are guarded on amd64 alone", ErrUnsupported)
	}
	g := &MemoryGuard{}
	g.verb, g.attach, g.leave = "guard", g.attachTo, g.forgetProcess
	if err := g.begin(o); err != nil {
		return nil, err
	}
	if err := g.load(PinFolder(o.Pins)); err != nil {
		return nil, errors.Join(explain("load the memory guard's BPF programs", err), g.free())
	}
	return g, nil
}

func (g *MemoryGuard) load(pins string) (err error) {
	if g.maps, err = newMemoryMaps(pins); err != nil {
		return err
	}
	g.Record = &Record{held: g.maps.holds, until: g.maps.until}
	offsets := kernelOffsets()
	var errs [11]error
	load := g.probe.attacher.program
	g.programs.allocation, errs[0] = load(allocation(g.maps, offsets))
	g.programs.allocated, errs[1] = load(allocated(g.maps))
	g.programs.freed, errs[2] = load(freed(g.maps))
	g.programs.asked, errs[3] = load(asked(g.maps))
	g.programs.answered, errs[4] = load(answered(g.maps, offsets))
	g.programs.makes, errs[5] = load(makes(g.maps))
	g.programs.made, errs[6] = load(made(g.maps))
	g.programs.turns, errs[7] = load(turns(g.maps))
	g.programs.graphCalled, errs[8] = load(graphCalled(g.maps))
	g.programs.graphDone, errs[9] = load(graphDone(g.maps))
	g.programs.graphGone, errs[10] = load(graphGone(g.maps))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	g.weakness = g.keepers.keep(g.maps.maps, g.maps.ifHeld, onThread(g.maps), offsets)
	g.reader, err = ringbuf.NewReader(g.maps.ring)
	return err
}

// Guard watches the allocations of a process from now on. slots are those of the
// GPUs that it sees, in its order, 1 to 16 of them. context is how many bytes
// its first context on a GPU counts for; on is the set of those, as bits by their
// order, on which it has one. A process that has not loaded the driver gives
// ErrNotLoaded. Doing it twice is once.
func (g *MemoryGuard) Guard(pid int, slots []uint32, context uint64, on uint32) error {
	if len(slots) == 0 || len(slots) > maxOrdinals {
		return fmt.Errorf("guard process %d: it sees %d GPUs; 1 to %d are supported", pid, len(slots), maxOrdinals)
	}
	v := guardedValue{Ordinals: uint32(len(slots)), Context: context, Contexts: on}
	copy(v.Slots[:], slots)
	return g.take(pid, func() error {
		g.forgetCalls(pid)
		g.forgetContexts(pid)
		g.forgetGraphs(pid)
		return errors.Join(g.maps.pools.Put(uint32(pid), poolValue{}), g.maps.guarded.Put(uint32(pid), v))
	})
}

func (g *MemoryGuard) attachTo(file *cudafile.File, pid int) (all links, err error) {
	calls := slices.Concat(cudafile.Contexts, cudafile.Allocations)
	infos := []cudafile.Kind{cudafile.MemInfo, cudafile.TotalMem}
	wanted := []put{
		{[]cudafile.Kind{cudafile.Free}, g.programs.freed, false},
		{calls, g.programs.allocated, true}, // before the entries, so that each of those has its return
		{infos, g.programs.answered, true},
		{infos, g.programs.asked, false},
		{calls, g.programs.allocation, false},
	}
	var v guardedValue
	if err := g.maps.guarded.Lookup(uint32(pid), &v); err == nil && v.Ordinals > 1 {
		turns := []cudafile.Kind{cudafile.SetContext, cudafile.PushContext, cudafile.PopContext}
		wanted = append([]put{{cudafile.Contexts, g.programs.made, true}, {cudafile.Contexts, g.programs.makes, false}, {turns, g.programs.turns, false}}, wanted...)
	}
	return g.put(file, pid, wanted)
}

// put is a program, and where it belongs.
type put struct {
	kinds    []cudafile.Kind
	program  *ebpf.Program
	atReturn bool
}

// put puts programs on a process's functions, in this order.
func (g *MemoryGuard) put(file *cudafile.File, pid int, wanted []put) (all links, err error) {
	functions, err := g.probe.functions(file)
	if err != nil {
		return nil, err
	}
	for _, want := range wanted {
		l, err := g.probe.attacher.attachKinds(file, want.program, functions, want.kinds, pid, want.atReturn)
		if err != nil {
			return all, err
		}
		all = append(all, l...)
	}
	return all, nil
}

// Note takes note of what is known of a process: on which GPUs it has a context (as
// Guard has it), so that another one there takes no memory that is not seen; how much
// of the peak of its pools has gone back to the driver, bytes; and how many of the
// contexts that it has made (Pool.Contexts) the ledger shows. While that is not all of
// them nobody knows how large they are, and its allocations are held.
func (g *MemoryGuard) Note(pid int, on uint32, trimmed, seen uint64) error {
	return g.change(pid, func(v *guardedValue) {
		v.Contexts |= on
		v.Trimmed = trimmed
		v.Seen = seen
	})
}

// change changes what the programs know of a process, if it is guarded.
func (g *MemoryGuard) change(pid int, how func(*guardedValue)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var v guardedValue
	if g.processes[pid] == nil {
		return nil
	}
	if err := g.maps.guarded.Lookup(uint32(pid), &v); err != nil {
		return err
	}
	known := v
	how(&v)
	if v == known {
		return nil
	}
	return g.maps.guarded.Put(uint32(pid), v)
}

// forgetProcess ends it for the programs.
func (g *MemoryGuard) forgetProcess(pid int) {
	_ = g.maps.guarded.Delete(uint32(pid)) // then the programs do nothing
	_ = g.maps.pools.Delete(uint32(pid))
	_ = g.maps.stopped.Delete(uint32(pid)) // nobody keeps it stopped any more
	g.forgetCalls(pid)
	forgetOf(g.maps.live, pid)
	g.forgetGraphs(pid)
	g.forgetContexts(pid)
}

// Continue ends all holds of a process that were made up to the time of the latest
// of these calls, and continues it. Their verdicts must be carried out before. A
// later hold keeps it stopped.
func (g *MemoryGuard) Continue(pid, pidfd int, calls []Call) error {
	var latest time.Duration
	for _, c := range calls {
		latest = max(latest, c.at)
	}
	if err := g.maps.released.Put(uint32(pid), uint64(latest)); err != nil {
		return fmt.Errorf("continue process %d: %w", pid, err)
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("continue process %d: %w", pid, err) // it stays on record
	}
	var errs []error
	for _, c := range calls {
		errs = append(errs, g.forget(holdKey{PID: uint32(c.PID), TID: uint32(c.TID), Time: uint64(c.at)}))
	}
	return errors.Join(errs...)
}

// Lost are the holds of a process of whose calls nothing is known: it was dropped, or
// is guarded anew, since they began or while they did. Nobody can decide about them;
// they are for Continue.
func (g *MemoryGuard) Lost(pid int) (lost []Call) {
	for _, key := range g.holds(pid) {
		var v callValue
		if err := g.maps.inCalls.Lookup(key.TID, &v); err != nil || v.Time != key.Time {
			lost = append(lost, Call{PID: pid, TID: int(key.TID), at: time.Duration(key.Time)})
		}
	}
	return lost
}

// Again continues a process once more that was stopped again an instant after its
// last hold had ended; done is false where it may still come to that. It is to be
// called after each Continued, and again while it is not done.
func (g *MemoryGuard) Again(pid, pidfd int, proc string) (done bool, err error) {
	calls, err := g.Calls()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(calls, func(c Call) bool { return c.PID == pid && c.Held }) {
		return true, nil
	}
	// One that runs must not get a SIGCONT: it may be on its way to its next stop.
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return true, nil //nolint:nilerr // it is gone
	}
	if _, state, ok := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); !ok || !strings.HasPrefix(state, "T") {
		return false, nil
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return true, fmt.Errorf("continue process %d: %w", pid, err)
	}
	return true, nil
}

// Close takes all probes off, which takes some 0.1 s, and ends Next. Who is on
// record stays stopped: let them go before.
func (g *MemoryGuard) Close() error {
	if !g.stop() {
		return nil
	}
	return g.free()
}

func (g *MemoryGuard) free() error {
	return errors.Join(g.holder.free(), g.programs.Close(), g.maps.Close())
}
