package rm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// search is what is known of the clients of a process, by descriptor.
type search map[int]*fileSearch

func (s search) descriptors() []int { return slices.Sorted(maps.Keys(s)) }

// fileSearch is what is known of the clients of one descriptor.
type fileSearch struct {
	todo    []span // the next one first
	upTo    uint32 // where the counter stood when todo last grew
	clients []uint32
	gpus    map[[2]uint32]string // UUID by client and subdevice
}

// span is a range of client handles, as offsets from clientBase: from high down to low.
type span struct{ low, high uint32 } // [low, high)

// spans are the handles from low up to high, which may have wrapped, latest first.
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

// next cuts up to n handles off the front of todo.
func (s *fileSearch) next(n uint32) (span, bool) {
	if len(s.todo) == 0 {
		return span{}, false
	}
	first := &s.todo[0]
	cut := span{max(first.low, first.high-min(n, first.high)), first.high}
	if first.high = cut.low; first.high == first.low {
		s.todo = s.todo[1:]
	}
	return cut, true
}

// begin notes which handles have to be looked at, and returns how many.
func (m *Manager) begin(p Process) (left int, err error) {
	if err := m.alive(p); err != nil {
		return 0, err
	}
	fds, err := m.kernel.Descriptors(p.PID)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	s := m.searches[p]
	m.mu.Unlock()
	if s == nil {
		s = search{}
	}
	for fd := range s {
		if !slices.Contains(fds, fd) {
			delete(s, fd)
		}
	}
	if len(fds) == 0 {
		return 0, nil // as most processes: nothing to remember
	}
	from, known := m.before(p) // before our own client makes a new mark
	here, err := m.mark()
	if err != nil {
		return 0, err
	}
	for _, fd := range fds {
		f := s[fd]
		switch {
		case f == nil && known:
			f = &fileSearch{todo: spans(from.handle, here.handle)}
		case f == nil:
			f = &fileSearch{todo: spans(here.handle, here.handle)}
		case f.upTo != here.handle:
			f.todo = append(spans(f.upTo, here.handle), f.todo...)
		}
		f.upTo = here.handle
		s[fd] = f
		left += size(f.todo)
	}
	m.remember(p, s)
	return left, nil
}

// remember keeps what is known of p, and drops what is known of processes that are gone.
func (m *Manager) remember(p Process, s search) {
	m.mu.Lock()
	m.searches[p] = s
	var all []Process
	if len(m.searches) > maxSearches {
		all = slices.Collect(maps.Keys(m.searches))
	}
	m.mu.Unlock()
	for _, p := range all {
		if errors.Is(m.alive(p), ErrGone) {
			m.mu.Lock()
			delete(m.searches, p)
			m.mu.Unlock()
		}
	}
}

// findClients looks at the next handles over each descriptor, and returns how many are left.
func (m *Manager) findClients(ctx context.Context, p Process) (left int, err error) {
	s := m.known(p)
	for _, fd := range s.descriptors() {
		f := s[fd]
		part, ok := f.next(chunk)
		if !ok {
			continue
		}
		err := m.with(p, fd, func(dup *file) error {
			for h := part.high; h > part.low; h-- {
				if h%256 == 0 && ctx.Err() != nil {
					f.todo = append([]span{{part.low, h}}, f.todo...)
					return ctx.Err()
				}
				client := clientBase + h - 1
				_, err := dup.info(client, client, indexClass)
				if status := Status(0); err != nil && !errors.As(err, &status) {
					return err
				} else if err == nil && !slices.Contains(f.clients, client) {
					f.clients = append(f.clients, client)
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, ErrChanged):
			delete(s, fd) // closed since, or another file
		case err != nil:
			return 0, err
		default:
			left += size(f.todo)
		}
	}
	return left, nil
}

// known is what is known of p. Only steps of its search may use it.
func (m *Manager) known(p Process) search {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.searches[p]
}

// findGroups reads the objects of all known clients.
func (m *Manager) findGroups(ctx context.Context, p Process) (groups []Group, err error) {
	s := m.known(p)
	for _, fd := range s.descriptors() {
		f := s[fd]
		if len(f.clients) == 0 {
			continue
		}
		err := m.with(p, fd, func(dup *file) error {
			f.clients = slices.DeleteFunc(f.clients, func(client uint32) bool {
				_, err := dup.info(client, client, indexClass)
				status := Status(0)
				return errors.As(err, &status)
			})
			for _, client := range f.clients {
				objects, err := m.objects(ctx, dup, client)
				if err != nil {
					return err
				}
				for _, g := range groupsOf(objects) {
					g.Process, g.FD, g.Client = p, fd, client
					if g.GPU, err = f.gpu(dup, g); err != nil {
						return fmt.Errorf("ask for the GPU of %v: %w", g, err)
					}
					groups = append(groups, g)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrChanged) {
			return nil, err
		}
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Handle, b.Handle), cmp.Compare(a.FD, b.FD))
	})
	// Two descriptors may stand for one open file.
	return slices.CompactFunc(groups, func(a, b Group) bool { return a.Client == b.Client && a.Handle == b.Handle }), nil
}

// gpu is the UUID of the GPU of a group.
func (s *fileSearch) gpu(dup *file, g Group) (string, error) {
	key := [2]uint32{g.Client, g.Subdevice}
	if g.Subdevice == 0 || s.gpus[key] != "" {
		return s.gpus[key], nil
	}
	var id gid
	if err := dup.control(g.Client, g.Subdevice, cmdGID, &id); err != nil {
		return "", err
	}
	uuid, _, _ := strings.Cut(string(id.Data[:min(int(id.Length), len(id.Data))]), "\x00")
	if s.gpus == nil {
		s.gpus = map[[2]uint32]string{}
	}
	s.gpus[key] = uuid
	return uuid, nil
}

// object is one object of a client, of the classes that lead to a compute group.
type object struct{ handle, class, parent uint32 }

// objects reads a client's objects, until m.opt.Gap handles in a row have none.
func (m *Manager) objects(ctx context.Context, dup *file, client uint32) (found []object, err error) {
	for h, absent := uint32(objectBase), 0; absent < m.opt.Gap && h >= objectBase; h++ {
		if h%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		class, err := dup.info(client, h, indexClass)
		if status := Status(0); errors.As(err, &status) {
			absent++
			continue
		} else if err != nil {
			return nil, err
		}
		absent = 0
		if class == classMPS {
			return nil, fmt.Errorf("%w: client %#x is of MPS, whose channels are other processes' too", ErrUnsupported, client)
		}
		if class != classSubdevice && class != classGroup && !isCompute(class) && !isChannel(class) {
			continue
		}
		parent, err := dup.info(client, h, indexParent)
		if status := Status(0); errors.As(err, &status) {
			continue // freed between the two
		} else if err != nil {
			return nil, err
		}
		found = append(found, object{h, class, parent})
	}
	return found, nil
}

// groupsOf finds the channel groups of which a channel has a compute object, with all
// of their channels and the subdevice of their device.
func groupsOf(objects []object) (groups []Group) {
	byHandle := map[uint32]object{}
	for _, o := range objects {
		byHandle[o.handle] = o
	}
	computes := map[uint32]bool{} // by handle of the group
	for _, o := range objects {
		if isCompute(o.class) {
			if channel := byHandle[o.parent]; isChannel(channel.class) {
				computes[channel.parent] = true
			}
		}
	}
	for _, group := range objects {
		if group.class != classGroup || !computes[group.handle] {
			continue
		}
		g := Group{Handle: group.handle, Class: group.class}
		for _, o := range objects {
			switch {
			case isChannel(o.class) && o.parent == group.handle:
				g.Channels = append(g.Channels, o.handle)
			case o.class == classSubdevice && o.parent == group.parent && g.Subdevice == 0:
				g.Subdevice = o.handle
			}
		}
		groups = append(groups, g)
	}
	return groups
}
