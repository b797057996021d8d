package rm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// chunk is how many handles are asked for over one duplicate: some 4 ms.
	chunk = 2048
	// politeAbove is the number of handles above which a search rests as long as it works.
	politeAbove = 16 * chunk
	// tick is what field 22 of /proc/PID/stat counts: USER_HZ is 100 on Linux.
	tick = 10 * time.Millisecond
	// maxMarks bounds what a Manager remembers of the counter of client handles.
	maxMarks = 256
	// maxSearches is how many processes are known before those that are gone are dropped.
	maxSearches = 256
)

// mark is where the counter of client handles stood.
type mark struct {
	at     time.Duration // since boot
	handle uint32
}

// Mark notes where the counter of client handles stands, so that a search for the
// clients of processes that start later begins there. Find does it too. A daemon calls
// it when it starts, and now and then while processes come that have no label.
func (m *Manager) Mark(ctx context.Context) error {
	return m.do(ctx, "mark", 0, func(context.Context, func() bool) error {
		_, err := m.mark()
		return err
	})
}

// mark makes a client of our own, notes its handle, and lets it go.
func (m *Manager) mark() (mark, error) {
	at, err := m.kernel.Uptime()
	if err != nil {
		return mark{}, err
	}
	f, err := m.open()
	if err != nil {
		return mark{}, err
	}
	defer f.close()
	handle, err := f.alloc(0, 0, classClient, nil)
	if err != nil {
		return mark{}, err
	}
	if handle-clientBase >= clientMax {
		return mark{}, fmt.Errorf("%w: a client's handle is %#x, outside the known range", ErrUnsupported, handle)
	}
	here := mark{at, handle - clientBase}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) == maxMarks { // thin out: every other of the older half
		kept := m.marks[:0]
		for i, old := range m.marks {
			if i >= maxMarks/2 || i%2 == 0 {
				kept = append(kept, old)
			}
		}
		m.marks = kept
	}
	m.marks = append(m.marks, here)
	return here, nil
}

// before returns the last mark that is older than p, if there is one.
func (m *Manager) before(p Process) (mark, bool) {
	started := time.Duration(p.Start) * tick
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Backward(m.marks) {
		if k.at < started-tick {
			return k, true
		}
	}
	return mark{}, false
}

// Find returns the compute channel groups of a process, on all GPUs, sorted by client
// and handle; none if it has no context, or none that computes. ErrGone if the process
// is gone or exits.
//
// What it costs, in system calls of about 2 µs: a look at every descriptor of the
// process; three to make a client of our own; one for each client handle that was given
// out since the last Mark before the process started, and each of its descriptors of the
// control device; then Options.Gap and some 200 for each client found. A process that is
// older than every Mark costs all 0x100000 handles for each descriptor, once: that takes
// seconds, half of them at rest, and if ctx ends earlier the next Find goes on from there.
// Later Finds of the same process look at new handles and at the clients that are known.
func (m *Manager) Find(ctx context.Context, p Process) ([]Group, error) {
	groups, err := m.find(ctx, p)
	if errors.Is(err, ErrGone) {
		m.mu.Lock()
		delete(m.searches, p)
		m.mu.Unlock()
	}
	return groups, err
}

// find works in steps, each of which is one call on a worker: what is known of the
// process is read and written only there, in the order of the steps.
func (m *Manager) find(ctx context.Context, p Process) ([]Group, error) {
	left := 0
	step := func(work func(ctx context.Context) error) error {
		return m.do(ctx, "find", p.PID, func(ctx context.Context, _ func() bool) error { return work(ctx) })
	}
	if err := step(func(context.Context) (err error) {
		left, err = m.begin(p)
		return err
	}); err != nil {
		return nil, err
	}
	for polite := left > politeAbove; left > 0; {
		began := time.Now()
		if err := step(func(ctx context.Context) (err error) {
			left, err = m.findClients(ctx, p)
			return err
		}); err != nil {
			return nil, err
		}
		if polite {
			if err := rest(ctx, time.Since(began)); err != nil {
				return nil, fmt.Errorf("find the clients of %v: %w", p, err)
			}
		}
	}
	var groups []Group
	if err := step(func(ctx context.Context) (err error) {
		groups, err = m.findGroups(ctx, p)
		return err
	}); err != nil {
		return nil, err
	}
	return groups, nil
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
