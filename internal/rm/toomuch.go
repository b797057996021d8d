package rm

import (
	"errors"
	"fmt"
	"time"
)

// A tenant can open descriptors and make clients and objects without end. Programs have some
// thousands of each at most. Of a process that has more than this Find returns ErrUnsupported.
const (
	// maxDescriptors bounds the open descriptors of a process, of whatever they are.
	maxDescriptors = 1 << 16
	// maxFiles bounds those of the control device.
	maxFiles = 1 << 12
	// maxObjects bounds the objects of all of its clients, of whatever class. A context has some 40
	// of those that matter, a stream three.
	maxObjects = 1 << 16
	// maxHandles bounds the handles that these objects are among: they may be far apart. That many
	// questions take 0.8 s. Each client counts Options.Gap besides, so 128 empty ones are the most.
	maxHandles = 1 << 18
	// refusedFor is how long a process that has too much is not searched again. By then it may have less.
	refusedFor = time.Minute
)

// tooMuchError says what a process has too much of.
type tooMuchError struct{ what string }

func tooMuch(format string, args ...any) error { return &tooMuchError{fmt.Sprintf(format, args...)} }

func (e *tooMuchError) Error() string { return fmt.Sprintf("%v: %s", ErrUnsupported, e.what) }
func (e *tooMuchError) Unwrap() error { return ErrUnsupported }

// budget is what may still be read of a process's objects.
type budget struct{ objects, handles int }

// bounded runs a step of the search of p, unless p had too much less than refusedFor ago.
func (m *Manager) bounded(p Process, step func() error) error {
	if s := m.known(p); s != nil && s.refused != nil {
		if err := m.alive(p); err != nil {
			return err
		}
		now, err := m.kernel.Uptime()
		if err != nil {
			return err
		}
		if now < s.until {
			return s.refused
		}
		s.refused = nil
	}
	err := step()
	if refused := (*tooMuchError)(nil); errors.As(err, &refused) {
		return errors.Join(err, m.refuse(p, err))
	}
	return err
}

// refuse remembers why p is not searched, and nothing else of it: that may be much.
func (m *Manager) refuse(p Process, why error) error {
	now, err := m.kernel.Uptime()
	if err != nil {
		return err
	}
	s := &search{files: map[int]*fileSearch{}, born: m.before(p), refused: why, until: now + refusedFor}
	m.mu.Lock()
	delete(m.clients, p)
	m.mu.Unlock()
	m.remember(p, s)
	return nil
}
