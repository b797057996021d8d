package rm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// gapAgain is how many absent handles in a row end a later search for new objects of a known
	// client. libcuda's handles count up.
	gapAgain = 64
	// maxHoles is how many absent handles below the last object are tried again: threads do not make
	// objects in the order of their handles.
	maxHoles = 64
	// readEvery is how old the knowledge of a client's objects may be before all of them are read
	// again.
	readEvery = 10 * time.Second
)

// client is what is known of a client of a process.
type client struct {
	handle  uint32
	objects []object // of the classes that lead to a compute group
	seen    int      // how many objects of all classes
	left    budget   // how many there may be
	top     uint32   // above all objects seen; 0: not searched yet
	whole   bool     // it was searched up to the last one
	holes   []uint32 // the last absent handles below
	read    time.Duration
	gpus    map[uint32]string // UUID by subdevice
}

// object is one object of a client.
type object struct{ handle, class, parent uint32 }

// findGroups reads the groups of all known clients. lost: a descriptor has lost its client, so it
// may refer to another file now.
func (m *Manager) findGroups(ctx context.Context, p Process) (groups []Group, lost bool, err error) {
	s := m.known(p)
	if s == nil {
		return nil, false, nil
	}
	now, err := m.kernel.Uptime()
	if err != nil {
		return nil, false, err
	}
	var handles []uint32
	left := budget{maxObjects, maxHandles}
	for _, fd := range s.descriptors() {
		f := s.files[fd]
		if len(f.clients) == 0 {
			continue
		}
		err := m.with(p, fd, func(dup *file) error {
			return m.groupsOver(ctx, dup, f, now, &left, func(g Group) {
				g.Process, g.FD = p, fd
				groups = append(groups, g)
			})
		})
		if errors.Is(err, ErrChanged) || err == nil && len(f.clients) == 0 {
			// The file that it refers to now may be as old as the process.
			delete(s.files, fd)
			s.seen, lost = nil, true
			continue
		} else if err != nil {
			return nil, false, err
		}
		for _, c := range f.clients {
			handles = append(handles, c.handle)
		}
	}
	m.mu.Lock()
	if m.clients[p] = handles; len(handles) == 0 {
		delete(m.clients, p)
	}
	m.mu.Unlock()
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Handle, b.Handle), cmp.Compare(a.FD, b.FD))
	})
	// Two descriptors may refer to one open file.
	return slices.CompactFunc(groups, func(a, b Group) bool { return a.Client == b.Client && a.Handle == b.Handle }), lost, nil
}

// groupsOver passes the groups of a descriptor's clients to tell, and drops clients that are gone. It takes what it
// has read from left.
func (m *Manager) groupsOver(ctx context.Context, dup *file, f *fileSearch, now time.Duration, left *budget, tell func(Group)) error {
	f.clients = slices.DeleteFunc(f.clients, func(c *client) bool {
		_, err := dup.info(c.handle, c.handle, indexClass)
		status := Status(0)
		return errors.As(err, &status)
	})
	for _, c := range f.clients {
		c.left = *left
		if err := m.look(ctx, dup, c, now); err != nil {
			return err
		}
		left.objects -= c.seen
		left.handles -= int(c.top-objectBase) + m.opt.Gap
		for _, g := range groupsOf(c.objects) {
			g.Client = c.handle
			var err error
			if g.GPU, err = c.gpu(dup, g); err != nil {
				return fmt.Errorf("ask for the GPU of %v: %w", g, err)
			}
			tell(g)
		}
	}
	return nil
}

// look updates what is known of a client's objects.
func (m *Manager) look(ctx context.Context, dup *file, c *client, now time.Duration) error {
	fresh := c.top != 0 && now-c.read < readEvery
	if fresh && c.whole {
		same, err := c.same(ctx, dup)
		if err != nil {
			return err
		}
		if same {
			if err := c.readHoles(dup); err != nil {
				return err
			}
			return c.readOn(ctx, dup, gapAgain)
		}
	}
	if !fresh || c.whole { // else the step that began it had no time for all: go on
		c.objects, c.seen, c.top, c.holes, c.gpus = nil, 0, objectBase, nil, nil
	}
	c.read, c.whole = now, false
	if err := c.readOn(ctx, dup, m.opt.Gap); err != nil {
		if ctx.Err() == nil {
			c.top = 0
		}
		return err
	}
	c.whole = true
	return nil
}

// same reports whether the known groups still exist unchanged, with everything that they consist
// of.
func (c *client) same(ctx context.Context, dup *file) (bool, error) {
	byHandle := index(c.objects)
	for _, g := range groupsOf(c.objects) {
		var parts []object
		for _, h := range slices.Sorted(slices.Values(append([]uint32{g.Handle, g.Subdevice}, g.Channels...))) {
			if o, is := byHandle[h]; is {
				parts = append(parts, o)
			}
		}
		for at, want := range parts {
			if at%256 == 0 && ctx.Err() != nil {
				return false, ctx.Err()
			}
			dup.ahead(len(parts)-at, func(i int) question { return question{c.handle, parts[at+i].handle, indexClass} })
			class, err := dup.info(c.handle, want.handle, indexClass)
			if status := Status(0); errors.As(err, &status) || err == nil && class != want.class {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// readOn reads the objects from c.top on, until gap handles in a row have none.
func (c *client) readOn(ctx context.Context, dup *file, gap int) error {
	for h, absent := c.top, 0; absent < gap && h >= objectBase; h++ {
		if h%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if int(h-objectBase) > c.left.handles {
			return tooMuch("its clients have objects among more than %d handles", maxHandles)
		}
		dup.aheadThen(min(atOnce, gap-absent), func(i int) question { return question{c.handle, h + uint32(i), indexClass} }, matters)
		there, err := c.readObject(dup, h)
		if err != nil {
			return err
		}
		if !there {
			absent++
			continue
		}
		for hole := max(c.top, h-maxHoles); hole < h; hole++ {
			c.holes = append(c.holes, hole)
		}
		c.holes = c.holes[max(0, len(c.holes)-maxHoles):]
		c.top, absent = h+1, 0
	}
	return nil
}

// readHoles reads objects that were made since at handles that had none.
func (c *client) readHoles(dup *file) error {
	var left []uint32
	for at, h := range c.holes {
		dup.aheadThen(len(c.holes)-at, func(i int) question { return question{c.handle, c.holes[at+i], indexClass} }, matters)
		there, err := c.readObject(dup, h)
		if err != nil {
			return err
		}
		if !there {
			left = append(left, h)
		}
	}
	c.holes = left
	slices.SortFunc(c.objects, func(a, b object) int { return cmp.Compare(a.handle, b.handle) })
	return nil
}

// matters reports whether objects of this class lead to a compute group.
func matters(class uint32) bool {
	return class == classSubdevice || class == classGroup || isCompute(class) || isChannel(class)
}

// readObject counts the object with this handle, if it exists, and adds it if its class matters.
func (c *client) readObject(dup *file, h uint32) (there bool, err error) {
	class, err := dup.info(c.handle, h, indexClass)
	if status := Status(0); errors.As(err, &status) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if class == classMPS {
		return true, fmt.Errorf("%w: client %#x is of MPS, whose channels are other processes' too", ErrUnsupported, c.handle)
	}
	if c.seen++; c.seen > c.left.objects {
		return true, tooMuch("its clients have more than %d objects", maxObjects)
	}
	if !matters(class) {
		return true, nil
	}
	parent, err := dup.info(c.handle, h, indexParent)
	if status := Status(0); errors.As(err, &status) {
		return true, nil // freed between the two
	} else if err != nil {
		return true, err
	}
	c.objects = append(c.objects, object{h, class, parent})
	return true, nil
}

// gpu is the UUID of the GPU of a group.
func (c *client) gpu(dup *file, g Group) (string, error) {
	if g.Subdevice == 0 || c.gpus[g.Subdevice] != "" {
		return c.gpus[g.Subdevice], nil
	}
	var id gid
	if err := dup.control(c.handle, g.Subdevice, cmdGID, &id); err != nil {
		return "", err
	}
	uuid, _, _ := strings.Cut(string(id.Data[:min(int(id.Length), len(id.Data))]), "\x00")
	if !strings.HasPrefix(uuid, "GPU-") {
		return "", fmt.Errorf("%w: the UUID of its GPU is %.64q", ErrUnsupported, uuid)
	}
	if c.gpus == nil {
		c.gpus = map[uint32]string{}
	}
	c.gpus[g.Subdevice] = uuid
	return uuid, nil
}

// index returns objects by handle.
func index(objects []object) map[uint32]object {
	byHandle := make(map[uint32]object, len(objects))
	for _, o := range objects {
		byHandle[o.handle] = o
	}
	return byHandle
}

// groupsOf finds the channel groups of which a channel has a compute object, with all
// of their channels and the subdevice of their device. There may be thousands of groups.
func groupsOf(objects []object) (groups []Group) {
	byHandle := index(objects)
	computes := map[uint32]bool{} // by handle of the group
	for _, o := range objects {
		if isCompute(o.class) {
			if channel := byHandle[o.parent]; isChannel(channel.class) {
				computes[channel.parent] = true
			}
		}
	}
	channels, subdevices := map[uint32][]uint32{}, map[uint32]uint32{} // by handle of the group, of the device
	for _, o := range objects {
		switch {
		case isChannel(o.class):
			channels[o.parent] = append(channels[o.parent], o.handle)
		case o.class == classSubdevice && subdevices[o.parent] == 0:
			subdevices[o.parent] = o.handle
		}
	}
	for _, group := range objects {
		if group.class == classGroup && computes[group.handle] {
			groups = append(groups, Group{
				Handle: group.handle, Class: group.class, Subdevice: subdevices[group.parent], Channels: channels[group.handle],
			})
		}
	}
	return groups
}
