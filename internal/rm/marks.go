package rm

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// tick is what field 22 of /proc/PID/stat counts: USER_HZ is 100 on Linux.
	tick = 10 * time.Millisecond
	// markAgain is how old a mark may be for descriptors that existed when it was made. A mark takes
	// the locks of all GPUs for 0.1 to 0.2 ms.
	markAgain = 25 * time.Millisecond
	// maxMarks bounds what a Manager remembers of the counter of client handles.
	maxMarks = 256
)

// mark is a reading of the counter of client handles.
type mark struct {
	at     time.Duration // since boot
	handle uint32        // from clientBase
}

// Mark reads the counter of client handles, so that a search for the clients of later processes
// starts there. Find calls it where it must. A daemon calls it when it starts, and from time to
// time while processes without a label start.
func (m *Manager) Mark(ctx context.Context) error {
	return m.do(ctx, "mark", 0, func(context.Context, func() bool) error {
		_, err := m.mark()
		return err
	})
}

// mark makes a client of our own, notes its handle, and frees it.
func (m *Manager) mark() (*mark, error) {
	at, err := m.kernel.Uptime()
	if err != nil {
		return nil, err
	}
	f, err := m.open()
	if err != nil {
		return nil, err
	}
	defer f.close()
	handle, err := f.alloc(0, 0, classClient, nil)
	if err != nil {
		return nil, err
	}
	if handle-clientBase >= clientMax {
		return nil, fmt.Errorf("%w: a client's handle is %#x, outside the known range", ErrUnsupported, handle)
	}
	here := &mark{at, handle - clientBase}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.marks); n > 0 && below(here.handle, m.marks[n-1].handle) > clientMax/2 {
		return here, nil // a later call was faster
	}
	if len(m.marks) == maxMarks { // drop every other mark of the older half
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

// below is how far one handle is below another, on their circle.
func below(high, low uint32) uint32 { return (high - low) & (clientMax - 1) }

// before returns the last mark that is older than p; nil if there is none.
func (m *Manager) before(p Process) *mark {
	started := time.Duration(p.Start) * tick
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Backward(m.marks) {
		if k.at < started-tick {
			return k
		}
	}
	return nil
}

// latest returns the last mark; nil if there is none.
func (m *Manager) latest() *mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) == 0 {
		return nil
	}
	return m.marks[len(m.marks)-1]
}
