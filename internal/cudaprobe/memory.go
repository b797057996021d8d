package cudaprobe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

const (
	// Slots is how many budgets a MemoryGuard keeps: one per container and GPU.
	Slots = 1024
	// maxGPUs is how many GPUs of one process are distinguished.
	maxGPUs = len(cudabpf.MemoryProcess{}.Slots)
	// noSlot stands for an unknown GPU: such a call is held.
	noSlot = ^uint32(0)
	// setShift: a cookie is the kind of the function, and above it the set of probes.
	setShift = 8
)

// GuardOptions say where a MemoryGuard keeps its record.
type GuardOptions struct {
	Options
	// Pins is the name of the folder for the record, below /sys/fs/bpf.
	Pins string
}

// MemoryGuard watches the allocations of chosen processes, in the kernel. It counts each on a slot.
// An allocation that the slot's budget covers continues within some 2 µs. Any other is held: its
// thread is stopped at the entry of the call, on record, and reported as Held. Package
// actuator/enforce/stop reads the record and continues the process, after Deny or without.
//
// Its probes belong to this process; the record of stopped processes outlives it. It is safe for
// concurrent use; Next is for one goroutine.
type MemoryGuard struct {
	objects  cudabpf.MemoryObjects
	proc     string
	finder   cudafile.Finder
	attacher attacher
	reader   *ringbuf.Reader
	buffer   ringbuf.Record

	functions cudafile.Remembered
	attempts  attempts // to answer calls by the process's registers and memory

	detaches sync.WaitGroup // detachments, and attachments under way

	mu        sync.Mutex // nobody reads a container's file while holding it
	processes map[int]*guardedProcess
	sets      uint32 // sets of probes so far
	epochs    uint64 // programs begun so far; see cudabpf's memory.h
	closed    atomic.Bool
}

// guardedProcess is one process and its one set of probes.
type guardedProcess struct {
	attaching sync.Mutex            // each has its own: to attach to a file on a server that is down may take for ever
	links     map[cudafile.ID]links // by the driver's file
	value     cudabpf.MemoryProcess // what the kernel's programs know about it
	watched   bool                  // an Attach has succeeded
}

// driver is an open file of the driver, and its functions.
type driver struct {
	file      *cudafile.File
	functions cudafile.Functions
}

// NewMemoryGuard loads the programs. It needs amd64, and Linux 5.15 with BTF; else the error wraps
// ErrUnsupported. It replaces a record with the same name: the processes on that must have been
// continued before.
func NewMemoryGuard(o GuardOptions) (*MemoryGuard, error) {
	if !canGuard {
		return nil, fmt.Errorf("%w: allocations are guarded on amd64 alone", ErrUnsupported)
	}
	types := btf.NewCache()
	if err := checkKernel(o.Proc, types); err != nil {
		return nil, err
	}
	if err := mountBPF(); err != nil {
		return nil, err
	}
	proc := o.Proc
	if proc == "" {
		proc = "/proc"
	}
	g := &MemoryGuard{
		proc: proc, finder: cudafile.Finder{Proc: o.Proc}, attacher: newAttacher(o.OneByOne),
		processes: map[int]*guardedProcess{},
	}
	if err := g.load(types, PinFolder(o.Pins)); err != nil {
		return nil, errors.Join(explain("load the memory guard's BPF programs", err), g.free())
	}
	return g, nil
}

func (g *MemoryGuard) load(types *btf.Cache, pins string) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	spec := func() (*ebpf.CollectionSpec, error) { return cudabpf.LoadMemoryFor(cpus) }
	if err := g.attacher.load(spec, &g.objects, types, nil); err != nil {
		return err
	}
	if err := g.pin(pins); err != nil {
		return err
	}
	g.reader, err = ringbuf.NewReader(g.objects.Events)
	return err
}

// pin gives the maps of the record their names. Existing ones belong to a dead program; if its BPF
// programs still run, they keep their maps.
func (g *MemoryGuard) pin(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, one := range map[string]*ebpf.Map{
		cudabpf.MemoryMapHolds: g.objects.Holds, cudabpf.MemoryMapLeases: g.objects.Leases,
		cudabpf.MemoryMapReleased: g.objects.Released, cudabpf.MemoryMapUntil: g.objects.Until,
	} {
		if err := one.Pin(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// Guarded is a process whose allocations are watched.
type Guarded struct {
	PID int
	// Start is its start time as in /proc/PID/stat (hundredths of a second since boot). The programs
	// ignore another process with its PID. 0: unknown.
	Start uint64
	// Slots are those of the GPUs that it sees, in its order, 1 to 16. See Reorder.
	Slots []uint32
	// Context is how many bytes its first context on a GPU counts for. On is the set of its GPUs, as
	// bits in the order of Slots, on which it has a context.
	Context uint64
	On      uint32
	// Made is how many contexts Totals.Contexts counts from the start: it may have made them before. While Note
	// has not seen as many, its allocations are held.
	Made uint64
}

// Guard is Enlist and Attach.
func (g *MemoryGuard) Guard(o Guarded) error {
	if err := g.Enlist(o); err != nil {
		return err
	}
	return g.Attach(o.PID)
}

// Attach watches the allocations of an enlisted process from now on. A process that has not loaded the
// driver gives ErrNotLoaded. Where the process is watched already, Attach only looks for files of the
// driver that it has loaded since: no function ever gets a second set of probes. After an error a process
// that was not watched before is enlisted no more.
//
// Attach reads the files: on a network file system whose server is down that may never end. Other
// calls do not wait for it.
func (g *MemoryGuard) Attach(pid int) error {
	g.mu.Lock()
	p := g.processes[pid]
	g.mu.Unlock()
	err := g.attachTo(pid, p, func(drivers []driver) error { return g.attachAll(pid, p, drivers) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if p == nil || g.processes[pid] != p {
		return err
	}
	if err == nil && len(p.links) == 0 {
		err = fmt.Errorf("guard process %d: %w", pid, ErrNotLoaded)
	}
	if err != nil && !p.watched {
		g.drop(pid, p)
	}
	p.watched = p.watched || err == nil
	return err
}

// attachTo passes put the files of the driver that a process has loaded, unless it is dropped
// meanwhile. Calls for one process wait for each other's put.
func (g *MemoryGuard) attachTo(pid int, p *guardedProcess, put func([]driver) error) error {
	drivers, err := g.open(pid)
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range drivers {
			_ = d.file.Close()
		}
	}()
	if err := g.begin(pid, p); err != nil {
		return err
	}
	defer g.detaches.Done()
	p.attaching.Lock()
	defer p.attaching.Unlock()
	return put(drivers)
}

// begin begins an attachment. Without an error Close waits for detaches.Done.
func (g *MemoryGuard) begin(pid int, p *guardedProcess) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed.Load():
		return ErrClosed
	case p == nil || g.processes[pid] != p:
		return fmt.Errorf("process %d is not guarded", pid)
	}
	g.detaches.Add(1)
	return nil
}

// open opens the files of the driver that a process has loaded, and reads their functions. It must not
// be called with a lock held: it may never end.
func (g *MemoryGuard) open(pid int) (all []driver, err error) {
	files, err := g.finder.Mapped(pid)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		functions, err := g.functions.Functions(file)
		switch {
		case err == nil:
			all = append(all, driver{file, functions})
		case errors.Is(err, cudafile.ErrNotDriver):
			_ = file.Close()
		default:
			cudafile.CloseAll(files)
			return nil, fmt.Errorf("files of process %d: %w", pid, err)
		}
	}
	return all, nil
}

// Enlist makes a process known to the programs, for Attach. It leaves one that is known as it is.
func (g *MemoryGuard) Enlist(o Guarded) error {
	if len(o.Slots) == 0 || len(o.Slots) > maxGPUs {
		return fmt.Errorf("guard process %d: it sees %d GPUs; 1 to %d are supported", o.PID, len(o.Slots), maxGPUs)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return fmt.Errorf("guard process %d: %w", o.PID, ErrClosed)
	}
	if g.processes[o.PID] != nil {
		return nil
	}
	const userEpochs = 1 << 32
	g.sets, g.epochs = g.sets+1, g.epochs+1
	p := &guardedProcess{links: map[cudafile.ID]links{}}
	p.value = cudabpf.MemoryProcess{
		Context: o.Context, Epoch: userEpochs + g.epochs, Began: o.Start, Set: g.sets, Gpus: uint32(len(o.Slots)), Contexts: o.On,
	}
	copy(p.value.Slots[:], o.Slots)
	err := errors.Join(
		g.objects.TotalsOf.Put(uint32(o.PID), cudabpf.MemoryTotals{Epoch: p.value.Epoch, Contexts: o.Made}),
		g.objects.Processes.Put(uint32(o.PID), p.value),
	)
	if err != nil {
		g.forgetProcess(o.PID, p)
		return fmt.Errorf("guard process %d: %w", o.PID, err)
	}
	g.processes[o.PID] = p
	return nil
}

// wanted are the probes of a process. Returns come before entries, so that each entry has its
// return.
func (g *MemoryGuard) wanted(p *guardedProcess) []put {
	calls := slices.Concat(cudafile.Contexts, cudafile.Allocations)
	infos := []cudafile.Kind{cudafile.MemInfo, cudafile.TotalMem}
	var all []put
	if p.value.Gpus > 1 {
		turns := []cudafile.Kind{cudafile.SetContext, cudafile.PushContext, cudafile.PopContext}
		all = []put{
			{cudafile.Contexts, g.objects.ContextReturn, true}, {cudafile.Contexts, g.objects.ContextEntry, false},
			{turns, g.objects.ContextTurn, false},
		}
	}
	return append(all,
		put{[]cudafile.Kind{cudafile.Free}, g.objects.FreeEntry, false},
		put{calls, g.objects.AllocReturn, true},
		put{infos, g.objects.QuestionReturn, true},
		put{infos, g.objects.QuestionEntry, false},
		put{calls, g.objects.AllocEntry, false})
}

// attachAll puts the probes on the files that have none of this process yet. The caller holds the
// process's attaching.
func (g *MemoryGuard) attachAll(pid int, p *guardedProcess, drivers []driver) error {
	for _, d := range drivers {
		g.mu.Lock()
		_, done := p.links[d.file.ID]
		g.mu.Unlock()
		if done {
			continue
		}
		all, err := g.attach(d, pid, p.value.Set, g.wanted(p))
		if err != nil {
			g.detach(all)
			return explainAttach(fmt.Sprintf("guard process %d", pid), err)
		}
		g.keep(pid, p, d.file.ID, all)
	}
	return nil
}

// keep stores links, or removes the probes if the process was dropped meanwhile.
func (g *MemoryGuard) keep(pid int, p *guardedProcess, id cudafile.ID, all links) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.processes[pid] != p {
		g.detach(all)
		return
	}
	p.links[id] = append(p.links[id], all...)
}

func (g *MemoryGuard) attach(d driver, pid int, set uint32, wanted []put) (all links, err error) {
	for _, want := range wanted {
		var offsets, cookies []uint64
		for _, kind := range want.kinds {
			for _, offset := range d.functions[kind] {
				offsets, cookies = append(offsets, offset), append(cookies, uint64(kind)|uint64(set)<<setShift)
			}
		}
		l, err := g.attacher.attachPath(d.file.Name(), want.program, offsets, cookies, pid, want.atReturn)
		all = append(all, l...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Note updates what is known of a process. on: the GPUs on which it has a context (as in
// Guarded.On, in the latest order), so that another context there counts for no further memory. trimmed: how much of the peak
// of its pools went back to the driver, bytes. seen: how many of its contexts (Totals.Contexts) the
// device shows; while that is not all, their size is unknown, and its allocations are held. epoch
// is that of the totals behind these facts: if another program has replaced that one since (exec),
// Note does nothing.
func (g *MemoryGuard) Note(pid int, on uint32, trimmed, seen, epoch uint64) error {
	return g.change(pid, func(v *cudabpf.MemoryProcess) {
		if v.Epoch != epoch {
			v.Contexts = 0
			g.forgetEpoch(v.Epoch)
		}
		v.Contexts |= on
		v.Trimmed, v.Seen, v.Epoch = trimmed, seen, epoch
	})
}

// Reorder sets the slots of the GPUs that a process sees anew, in its order, as many as before. It forgets
// on which of them the process has a context; see Note.
func (g *MemoryGuard) Reorder(pid int, slots []uint32) error {
	return g.change(pid, func(v *cudabpf.MemoryProcess) {
		copy(v.Slots[:v.Gpus], slots)
		v.Contexts = 0
	})
}

// change changes what the programs know of a guarded process.
func (g *MemoryGuard) change(pid int, how func(*cudabpf.MemoryProcess)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.processes[pid]
	if p == nil {
		return nil
	}
	known := p.value
	if how(&p.value); p.value == known {
		return nil
	}
	return g.objects.Processes.Put(uint32(pid), p.value)
}

// Drop stops guarding a process: at once for the process, some 0.1 s later for the probes. It
// continues no process, and the record stays.
func (g *MemoryGuard) Drop(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.processes[pid]; p != nil {
		g.drop(pid, p)
	}
}

func (g *MemoryGuard) drop(pid int, p *guardedProcess) {
	if g.processes[pid] != p {
		return
	}
	delete(g.processes, pid)
	g.forgetProcess(pid, p)
	for _, all := range p.links {
		g.detach(all)
	}
}

// detach removes probes in the background: the kernel waits some 0.1 s until every CPU has left
// them. Meanwhile they do nothing, as their set no longer counts.
func (g *MemoryGuard) detach(all links) {
	if len(all) > 0 {
		g.detaches.Go(func() { _ = all.Close() }) // there is nothing to do about an error
	}
}

// forgetProcess drops what the programs know of a process. What they keep by epoch is dropped with
// the program's last epoch, or as the least recently used.
func (g *MemoryGuard) forgetProcess(pid int, p *guardedProcess) {
	totals, err := g.totals(pid)
	_ = g.objects.Processes.Delete(uint32(pid)) // then the programs do nothing
	_ = g.objects.TotalsOf.Delete(uint32(pid))
	g.forgetCalls(pid)
	g.forgetEpoch(p.value.Epoch)
	if err == nil && totals.Epoch != p.value.Epoch {
		g.forgetEpoch(totals.Epoch)
	}
}

// forgetEpoch drops what is kept of one program.
func (g *MemoryGuard) forgetEpoch(epoch uint64) {
	for _, m := range []*ebpf.Map{g.objects.Blocks, g.objects.Graphs, g.objects.Nodes, g.objects.Contexts, g.objects.Current} {
		var key cudabpf.MemoryPlace
		var old []cudabpf.MemoryPlace
		var value []byte
		for entries := m.Iterate(); entries.Next(&key, &value); {
			if key.Epoch == epoch {
				old = append(old, key)
			}
		}
		for _, key := range old {
			_ = m.Delete(key)
		}
	}
}

// Renew lets the guard stop processes for this long from now; then it is open, even if this program
// hangs. A new guard is open.
func (g *MemoryGuard) Renew(d time.Duration) error {
	return g.objects.Until.Put(uint32(0), uint64(monotonic()+max(d, 0)))
}

// Close removes all probes, which takes some 0.1 s, and ends Next. Processes on record stay
// stopped: continue them before. Close waits for an attachment under way, but for no read of a file.
func (g *MemoryGuard) Close() error {
	g.mu.Lock()
	if g.closed.Swap(true) {
		g.mu.Unlock()
		return nil
	}
	for pid, p := range g.processes {
		g.drop(pid, p)
	}
	g.mu.Unlock()
	err := g.reader.Close() // ends Next now: an attachment under way may hang
	g.detaches.Wait()
	return errors.Join(err, g.free())
}

func (g *MemoryGuard) free() error {
	errs := []error{g.objects.Close()}
	if g.reader != nil {
		errs = append(errs, g.reader.Close())
	}
	return errors.Join(errs...)
}
