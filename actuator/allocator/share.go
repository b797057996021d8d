package allocator

import (
	"cmp"
	"fmt"
	"slices"
)

// present lists the containers (ids) that hold memory of a GPU or ask for some, in the order of the
// policy. It leaves out containers whose requests are never denied: their memory is not divided.
func (b *bank) present(gpu string) []string {
	var on []string
	for _, id := range b.ids {
		c := b.all[id]
		asks := slices.ContainsFunc(b.Requests, func(r Request) bool { return r.GPU == gpu && r.Container == id })
		if !c.Never && (c.Held[gpu] > 0 || asks) {
			on = append(on, id)
		}
	}
	slices.SortStableFunc(on, func(x, y string) int { return cmp.Compare(b.all[x].Rank, b.all[y].Rank) })
	return on
}

// active lists those of them among whom the GPU is divided: not those who may not begin yet.
func (b *bank) active(gpu string) []string {
	return slices.DeleteFunc(b.present(gpu), func(id string) bool {
		c := b.all[id]
		return c.Held[gpu] == 0 && !slices.ContainsFunc(b.Requests, func(r Request) bool {
			return r.GPU == gpu && r.Container == id && !b.barred(c, r)
		})
	})
}

// share is what a container is entitled to of a GPU.
func (b *bank) share(c *Container, gpu string) uint64 {
	key := c.ID + " " + gpu
	if n, ok := b.shares[key]; ok {
		return n
	}
	if b.shares == nil {
		b.shares = map[string]uint64{}
	}
	n := b.divide(c, gpu)
	b.shares[key] = n
	return n
}

func (b *bank) divide(c *Container, gpu string) uint64 {
	on := b.active(gpu)
	n := uint64(max(1, len(on)))
	all := b.capacity(gpu)
	limit := func(id string) uint64 {
		if l, ok := b.all[id].Limit[gpu]; ok {
			return l
		}
		return all
	}
	if b.Share != Adaptive {
		return min(limit(c.ID), all/n)
	}
	// A container whose limit is below an equal part gets its limit; the others divide the rest (max-min
	// fairness).
	slices.SortStableFunc(on, func(x, y string) int { return cmp.Compare(limit(x), limit(y)) })
	left := all
	for i, id := range on {
		part := min(limit(id), left/uint64(len(on)-i))
		if id == c.ID {
			return part
		}
		left -= part
	}
	return min(limit(c.ID), left)
}

// allowed is the most that a container may hold of a GPU now by its share, and at least what it
// holds.
func (b *bank) allowed(c *Container, gpu string) uint64 {
	held := c.Held[gpu]
	switch b.Share {
	case Fair:
		return max(held, b.share(c, gpu))
	case Adaptive:
		return max(held, b.share(c, gpu), add(held, sub(b.free(gpu), b.calledBack(c, gpu))))
	default:
		return max(held, b.capacity(gpu))
	}
}

// calledBack is what others ask for within their own shares.
func (b *bank) calledBack(c *Container, gpu string) uint64 {
	asked := map[string]uint64{}
	for _, r := range b.Requests {
		if o := b.all[r.Container]; r.GPU == gpu && r.Container != c.ID && (o == nil || !b.barred(o, r)) {
			asked[r.Container] = add(asked[r.Container], r.Bytes)
		}
	}
	var sum uint64
	for id, n := range asked {
		if o := b.all[id]; o != nil && !o.Never {
			sum = add(sum, min(n, sub(b.share(o, gpu), o.Held[gpu])))
		}
	}
	return sum
}

// callBack names the containers to swap out when another one waits within its share and they hold more
// than theirs: the largest excess first, until there is room.
func (b *bank) callBack(answers []Answer) {
	if !b.Share.Divides() {
		return
	}
	leaving := map[string]bool{}
	for i := range answers {
		a := &answers[i]
		if a.Verdict != Wait || a.Why != Room || len(a.Victims) > 0 {
			continue
		}
		r := a.Request
		c := b.all[r.Container]
		if add(c.Held[r.GPU], r.Bytes) > b.share(c, r.GPU) {
			continue
		}
		free := b.free(r.GPU)
		for id := range leaving {
			free = add(free, b.all[id].Held[r.GPU])
		}
		var victims []string
		for _, id := range b.borrowers(c, r.GPU) {
			if free >= r.Bytes {
				break
			}
			if !leaving[id] {
				victims, free = append(victims, id), add(free, b.all[id].Held[r.GPU])
			}
		}
		if free < r.Bytes || len(victims) == 0 {
			continue
		}
		for _, id := range victims {
			leaving[id] = true
		}
		a.Victims = victims
		a.Reason += fmt.Sprintf("; that is within its share, and %s holds more than its own", b.names(victims))
	}
}

// borrowers returns the containers that can be swapped out and hold more than their share, the largest
// excess first.
func (b *bank) borrowers(c *Container, gpu string) []string {
	excess := func(id string) uint64 { return sub(b.all[id].Held[gpu], b.share(b.all[id], gpu)) }
	var out []string
	for _, id := range b.ids {
		if o := b.all[id]; o != c && o.mayLeave() && excess(id) > 0 {
			out = append(out, id)
		}
	}
	slices.SortStableFunc(out, func(x, y string) int { return cmp.Compare(excess(y), excess(x)) })
	return out
}

// Part is the share of one container, as metrics and tables show it.
type Part struct {
	Container, GPU string
	// Held, Share (what it is entitled to) and Lent (what it holds above that) are
	// bytes.
	Held, Share, Lent uint64
}

// Parts says what each container that holds memory or asks for some holds of each GPU, and what it is
// entitled to, by GPU and container. Who may not begin yet is entitled to nothing where cards are divided.
func Parts(s State) []Part {
	b := newBank(s)
	var out []Part
	for _, g := range s.GPUs {
		active := b.active(g.UUID)
		for _, id := range b.present(g.UUID) {
			c := b.all[id]
			p := Part{Container: id, GPU: g.UUID, Held: c.Held[g.UUID]}
			switch l, limited := c.Limit[g.UUID]; {
			case b.Share.Divides() && !slices.Contains(active, id):
			case b.Share.Divides():
				p.Share = b.share(c, g.UUID)
				p.Lent = sub(p.Held, p.Share)
			case limited:
				p.Share = l
			default:
				p.Share = b.capacity(g.UUID)
			}
			out = append(out, p)
		}
	}
	return out
}
