package rm

import (
	"context"
	"errors"
	"slices"
)

// maxClients bounds the clients of a descriptor. Reading each one costs Options.Gap calls and more.
// libcuda makes one; a program can make as many as there are handles.
const maxClients = 64

// round is the result of trying the next handles of each descriptor once.
type round struct {
	asked int
	found bool // a client
	open  int  // descriptors with handles that must still be tried
	left  int  // the number of those handles
}

// round tries the next handles of each descriptor; with dig also handles that are unlikely to be
// clients.
func (m *Manager) round(ctx context.Context, p Process, dig bool) (r round, err error) {
	s := m.known(p)
	if s == nil {
		return r, nil
	}
	for _, fd := range s.descriptors() {
		f := s.files[fd]
		asked, found, err := m.ask(ctx, p, s, fd, dig)
		r.asked, r.found = r.asked+asked, r.found || found
		if errors.Is(err, ErrChanged) {
			delete(s.files, fd) // it was closed, or refers to another file
			continue
		} else if err != nil {
			return r, err
		}
		if f.next(false) != nil {
			r.open++
			if r.left += size(f.news); len(f.clients) == 0 {
				r.left += size(f.todo)
			}
		}
	}
	return r, nil
}

// ask tries up to chunk handles of one descriptor.
func (m *Manager) ask(ctx context.Context, p Process, s *search, fd int, dig bool) (asked int, found bool, err error) {
	f := s.files[fd]
	list := f.next(dig)
	if list == nil {
		return 0, false, nil
	}
	now, err := m.kernel.Uptime()
	if err != nil {
		return 0, false, err
	}
	first := (*list)[0]
	m.mu.Lock()
	n := m.searching.take(now, int(min(chunk, first.high-first.low)), below(s.here, first.high) >= fresh)
	m.mu.Unlock()
	if n == 0 {
		return 0, false, nil
	}
	part := cut(list, uint32(n))
	err = m.with(p, fd, func(dup *file) error {
		is := func(handle uint32) error {
			_, err := dup.info(handle, handle, indexClass)
			if status := Status(0); err != nil && !errors.As(err, &status) {
				return err
			} else if err != nil || f.has(handle) {
				return nil //nolint:nilerr // a status says that it is none of this file's clients
			}
			if len(f.clients) == maxClients {
				return tooMuch("descriptor %d of %v has more than %d clients", fd, p, maxClients)
			}
			f.clients, found = append(f.clients, &client{handle: handle}), true
			return nil
		}
		for ; len(f.tips) > 0; f.tips = f.tips[1:] {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			dup.ahead(len(f.tips), func(i int) question { return question{f.tips[i], f.tips[i], indexClass} })
			if err := is(f.tips[0]); err != nil {
				return err
			}
		}
		for ; part.high > part.low; part.high-- {
			if part.high%256 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			first := clientBase + part.high - 1
			dup.ahead(int(min(atOnce, part.high-part.low)), func(i int) question {
				handle := first - uint32(i)
				return question{handle, handle, indexClass}
			})
			if err := is(clientBase + part.high - 1); err != nil {
				return err
			}
			asked++
		}
		return nil
	})
	if part.high > part.low {
		*list = append([]span{part}, *list...)
	}
	return asked, found, err
}

// has says whether the client is known.
func (f *fileSearch) has(handle uint32) bool {
	return slices.ContainsFunc(f.clients, func(c *client) bool { return c.handle == handle })
}
