package rm

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

const (
	// maxSearches is the number of known processes above which those that are gone are dropped.
	maxSearches = 256
	// maxTips bounds how many known clients a new descriptor is tried with.
	maxTips = 256
)

// search is what is known of a process.
type search struct {
	files map[int]*fileSearch // by descriptor
	// born is the counter before the process began, if that is known.
	born *mark
	// seen is the counter before its descriptors were last listed: clients of later descriptors are
	// above.
	seen *mark
	here uint32 // the counter now
	// refused is why it is not searched until then; nil if it is.
	refused error
	until   time.Duration // since boot
}

func (s *search) descriptors() []int { return slices.Sorted(maps.Keys(s.files)) }

// fileSearch is what is known of one descriptor. libcuda makes one client per file.
type fileSearch struct {
	upTo    uint32   // handles from here on are new
	news    []span   // handles to try in any case, the next ones first
	todo    []span   // handles to try while there is no client
	rest    []span   // and those where a client is unlikely
	tips    []uint32 // clients of other files: a fork has its parent's
	clients []*client
}

// next is the list to take the next handles from; nil when there are none.
func (f *fileSearch) next(dig bool) *[]span {
	switch {
	case len(f.news) > 0:
		return &f.news
	case len(f.todo) > 0 && (dig || len(f.clients) == 0):
		return &f.todo
	case len(f.rest) > 0 && dig:
		return &f.rest
	}
	return nil
}

// span is a range of client handles, as offsets from clientBase.
type span struct{ low, high uint32 } // [low, high)

// spans are the handles from low up to high, which may have wrapped, latest first. If low equals
// high, that is all handles.
func spans(low, high uint32) []span {
	if low < high {
		return []span{{low, high}}
	}
	s := []span{{low, clientMax}}
	if high > 0 {
		s = append([]span{{0, high}}, s...)
	}
	return s
}

func size(s []span) (n int) {
	for _, x := range s {
		n += int(x.high - x.low)
	}
	return n
}

// cut removes up to n handles from the front.
func cut(list *[]span, n uint32) span {
	first := &(*list)[0]
	part := span{max(first.low, first.high-min(n, first.high)), first.high}
	if first.high = part.low; first.high == first.low {
		*list = (*list)[1:]
	}
	return part
}

// begin notes which handles must be tried.
func (m *Manager) begin(ctx context.Context, p Process) error {
	if err := m.alive(p); err != nil {
		return err
	}
	before := m.latest()
	fds, err := m.kernel.Descriptors(ctx, p.PID)
	if err != nil {
		return err
	}
	if len(fds) > maxFiles {
		return tooMuch("%v has more than %d descriptors of NVIDIA's control device", p, maxFiles)
	}
	s := m.known(p)
	if s == nil {
		if len(fds) == 0 && before == nil {
			return nil
		}
		s = &search{files: map[int]*fileSearch{}, born: m.before(p)}
	}
	for fd := range s.files {
		if !slices.Contains(fds, fd) {
			delete(s.files, fd)
		}
	}
	here := before
	if stale, err := m.stale(s, fds, here); err != nil {
		return err
	} else if stale {
		if here, err = m.mark(); err != nil {
			return err
		}
	}
	if here != nil {
		s.here = here.handle
	}
	for _, fd := range fds {
		f := s.files[fd]
		if f == nil {
			f = s.newFile(m.tips())
			s.files[fd] = f
		} else if f.upTo != s.here {
			f.later(spans(f.upTo, s.here))
		}
		f.upTo = s.here
	}
	s.seen = before
	m.remember(p, s)
	return nil
}

// stale reports whether a new mark is needed. A new descriptor always needs one. One that still has
// no client needs one unless the last mark is very recent, since many searches may run at once.
func (m *Manager) stale(s *search, fds []int, last *mark) (bool, error) {
	needed := false
	for _, fd := range fds {
		f := s.files[fd]
		if f == nil || last == nil {
			return true, nil
		}
		needed = needed || len(f.clients) == 0
	}
	if !needed {
		return false, nil
	}
	now, err := m.kernel.Uptime()
	return now-last.at >= markAgain, err
}

// newFile starts the search for the clients of a descriptor.
func (s *search) newFile(tips []uint32) *fileSearch {
	from := s.seen
	if from == nil {
		from = s.born
	}
	f := &fileSearch{tips: tips}
	if from == nil {
		f.later(spans(s.here, s.here))
	} else {
		f.later(spans(from.handle, s.here))
		// After a wrap the client gets, if a handle is taken, one that is 0x400 higher, or more.
		f.rest = slices.Concat([]span{{s.here, min(s.here+4*0x400, clientMax)}}, spans(s.here, from.handle))
	}
	return f
}

// later adds handles that are newer than all known ones. The newest of them are tried even if there
// is a client: a second client is rare.
func (f *fileSearch) later(handles []span) {
	older := &f.todo
	if len(f.clients) > 0 {
		older = &f.rest
	}
	*older = slices.Concat(handles, f.news, *older)
	f.news = []span{cut(older, chunk)}
}

// tips are the known clients of all processes.
func (m *Manager) tips() (all []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, handles := range m.clients {
		all = append(all, handles...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[max(0, len(all)-maxTips):]
}

// remember stores what is known of p, and drops processes that are gone.
func (m *Manager) remember(p Process, s *search) {
	m.mu.Lock()
	m.searches[p] = s
	var all []Process
	if len(m.searches) > maxSearches {
		all = slices.Collect(maps.Keys(m.searches))
	}
	m.mu.Unlock()
	for _, p := range all {
		if errors.Is(m.alive(p), ErrGone) {
			m.forget(p)
		}
	}
}

func (m *Manager) forget(p Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.searches, p)
	delete(m.clients, p)
}

// known returns what is known of p; nil if nothing is. Only steps of its search may use it.
func (m *Manager) known(p Process) *search {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.searches[p]
}
