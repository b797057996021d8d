package allocator

// declared: the most that it will hold on a GPU is known, and its end can be
// counted on.
func (b *bank) declared(c *Container) bool {
	return !c.Never && !c.Stays && (len(c.Limit) > 0 || b.Share.Divides())
}

// holds reports whether it holds memory of any GPU.
func (c *Container) holds() bool {
	for _, n := range c.Held {
		if n > 0 {
			return true
		}
	}
	return false
}

// counted is what a container whose requests are never denied counts for on a GPU: the most that it
// may hold, whether it holds that now or not.
func (c *Container) counted(gpu string) uint64 {
	if !c.Never {
		return c.Held[gpu]
	}
	return max(c.Held[gpu], c.Limit[gpu], c.Peak[gpu])
}

// capacity is the most that one container can ever hold on a GPU.
func (b *bank) capacity(gpu string) uint64 {
	if n, ok := b.caps[gpu]; ok {
		return n
	}
	g := b.gpus[gpu]
	n := sub(sub(g.Total, g.Gone), g.Reserve)
	for _, id := range b.ids {
		if c := b.all[id]; c.Never {
			n = sub(n, c.counted(gpu))
		}
	}
	if b.caps == nil {
		b.caps = map[string]uint64{}
	}
	b.caps[gpu] = n
	return n
}

// free is what can be granted on a GPU now.
func (b *bank) free(gpu string) uint64 {
	n := b.capacity(gpu)
	for _, id := range b.ids {
		if c := b.all[id]; !c.Never {
			n = sub(n, c.Held[gpu])
		}
	}
	return n
}

// need is what a container may still claim on a GPU: up to its limit, or its
// share where cards are divided.
func (b *bank) need(c *Container, gpu string) uint64 {
	most := min(c.Limit[gpu], b.capacity(gpu))
	if b.Share.Divides() {
		most = b.share(c, gpu)
	}
	return sub(most, c.Held[gpu])
}

// finishers returns the containers that can get their whole claim and end, one after another; the set
// does not depend on the order in which they are tried. Containers without a claim, and those whose
// end is uncertain, keep what they hold; with all, they end too.
func (b *bank) finishers(all bool) map[string]bool {
	work := map[string]uint64{}
	for g := range b.gpus {
		work[g] = b.free(g)
		for _, id := range b.ids {
			if c := b.all[id]; all && !c.Never && !b.declared(c) {
				work[g] = add(work[g], c.Held[g])
			}
		}
	}
	done := map[string]bool{}
	for again := true; again; {
		again = false
		for _, id := range b.ids {
			c := b.all[id]
			if done[id] || !b.declared(c) || !b.canEnd(c, work) {
				continue
			}
			done[id], again = true, true
			for g, held := range c.Held {
				work[g] = add(work[g], held)
			}
		}
	}
	return done
}

func (b *bank) canEnd(c *Container, work map[string]uint64) bool {
	for g := range work {
		if b.need(c, g) > work[g] {
			return false
		}
	}
	return true
}

// harms names a container that holds memory and could surely end before the grant but not after it;
// empty if there is none. It ignores containers that could not end anyway, because memory went to
// others that need not ask. A container that begins must be able to end once those without a claim
// have ended.
func (b *bank) harms(c *Container, r Request) string {
	before, begins := c.Held[r.GPU], !c.holds()
	b.set(c, r.GPU, add(before, r.Bytes))
	defer b.set(c, r.GPU, before)
	after := b.finishers(false)
	for _, id := range b.ids {
		if b.sure[id] && !after[id] && b.all[id].holds() && id != c.ID {
			return b.all[id].Name
		}
	}
	switch {
	case !b.declared(c) || after[c.ID]:
		return ""
	case begins && b.finishers(true)[c.ID], !begins && !b.sure[c.ID]:
		return ""
	default:
		return c.Name
	}
}
