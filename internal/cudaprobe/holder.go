package cudaprobe

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// holder is the lower half of a Gate: the probes on the chosen
// processes, the events, and the record of whom they have stopped.
type holder struct {
	*Record
	verb     string // what is done to a process, for errors
	probe    Probe  // for what it shares with the probes: finder, attacher, detach
	keepers  keepers
	weakness error // why the kernel does not keep stopped what others continue
	reader   *ringbuf.Reader
	record   ringbuf.Record

	// What is particular, set before the first process. attach puts the probes on
	// a file that the process maps. leave takes the process from the programs' maps;
	// left, if any, is for what must wait until its probes are off. Both are called
	// with mu held.
	attach func(file *cudafile.File, pid int) (links, error)
	leave  func(pid int)
	left   func(pid int)

	attaching sync.Mutex // one after the other, as probe.files is used

	mu        sync.Mutex
	processes map[int]*heldLinks
	closed    atomic.Bool
}

// heldLinks are the probes on one process.
type heldLinks struct{ links links }

// begin looks whether this machine lets us hold, and fills in what New does for a
// Probe.
func (h *holder) begin(o GateOptions) error {
	if err := checkNamespace(o.Proc); err != nil {
		return err
	}
	if err := mountBPF(); err != nil {
		return err
	}
	h.processes = map[int]*heldLinks{}
	h.probe.finder = cudafile.Finder{Proc: o.Proc}
	h.probe.attacher = newAttacher(o.OneByOne)
	h.probe.files = map[cudafile.ID]*attached{}
	return nil
}

// take puts the probes on a process, after enter has made it known to the programs.
// A process that has not loaded the driver gives ErrNotLoaded. Doing it twice is
// once.
func (h *holder) take(pid int, enter func() error) error {
	files, err := h.probe.finder.Mapped(pid)
	if err != nil {
		return err
	}
	defer cudafile.CloseAll(files)
	one, err := h.enlist(pid, enter)
	if one == nil || err != nil {
		return err
	}
	all, err := h.attachAll(files, pid, h.attach)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s process %d: %w", h.verb, pid, ErrNotLoaded)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.add(pid, one, all) && err != nil {
		h.drop(pid)
	}
	return err
}

// add takes links over. It reports false, and takes them off, if the process has been
// dropped meanwhile. It is called with mu held.
func (h *holder) add(pid int, one *heldLinks, all links) bool {
	one.links = append(one.links, all...)
	if h.processes[pid] == one {
		return true
	}
	h.detach(pid, one)
	return false
}

// enlist makes the process known to the programs; nil: it is known.
func (h *holder) enlist(pid int, enter func() error) (*heldLinks, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Load() {
		return nil, ErrClosed
	}
	if h.processes[pid] != nil {
		return nil, nil
	}
	if err := enter(); err != nil {
		return nil, fmt.Errorf("%s process %d: %w", h.verb, pid, err)
	}
	one := &heldLinks{}
	h.processes[pid] = one
	return one, nil
}

func (h *holder) attachAll(files []*cudafile.File, pid int, attach func(*cudafile.File, int) (links, error)) (all links, err error) {
	h.attaching.Lock()
	defer h.attaching.Unlock()
	for _, file := range files {
		functions, err := h.probe.functions(file)
		var l links
		if err == nil {
			h.probe.files[file.ID] = &attached{functions: functions} // so that they are read once
			l, err = attach(file, pid)
		}
		all = append(all, l...)
		if err != nil && !errors.Is(err, cudafile.ErrNotDriver) {
			return all, explainAttach(fmt.Sprintf("%s process %d", h.verb, pid), err)
		}
	}
	return all, nil
}

// Drop ends what was begun for a process, at once for the process, some 0.1 s later
// for the probes. It does not continue it, and the record stays.
func (h *holder) Drop(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(pid)
}

func (h *holder) drop(pid int) {
	one := h.processes[pid]
	if one == nil {
		return
	}
	delete(h.processes, pid)
	h.leave(pid)
	h.detach(pid, one)
}

func (h *holder) detach(pid int, one *heldLinks) {
	all := one.links
	one.links = nil
	h.probe.inFlight.Add(1)
	h.probe.detaches.Go(func() {
		defer h.probe.inFlight.Add(-1)
		_ = all.Close() // there is nothing to be done about it
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.left != nil && h.processes[pid] == nil {
			h.left(pid)
		}
	})
}

// Weakness says why the kernel itself does not stop a held process again that
// somebody continues; nil: it does. With a weakness one call may slip through, and
// Continued is told where the kernel at least hears of signals.
func (h *holder) Weakness() error { return h.weakness }

// Next waits for the next event. After Close it returns ErrClosed.
func (h *holder) Next() (Event, error) { return nextEvent(h.reader, &h.record) }

// stop takes all probes off, waits until they are, and reports whether that was
// still to be done.
func (h *holder) stop() bool {
	h.mu.Lock()
	if h.closed.Swap(true) {
		h.mu.Unlock()
		return false
	}
	for pid := range h.processes {
		h.drop(pid)
	}
	h.mu.Unlock()
	h.attaching.Lock()   // an attachment under way is undone, not forgotten
	h.attaching.Unlock() //nolint:staticcheck // it only waits
	h.probe.detaches.Wait()
	return true
}

// free gives back what is loaded for any holder.
func (h *holder) free() error {
	errs := []error{h.keepers.Close()}
	if h.reader != nil {
		errs = append(errs, h.reader.Close())
	}
	return errors.Join(errs...)
}
