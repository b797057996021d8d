package allocator

// job is what ends as one.
func (c *Container) job() string {
	if c.Gang == "" {
		return c.ID
	}
	return "gang " + c.Gang // no id has a space
}

// mates are the containers of its job, itself too, but for those whose requests are never denied.
func (b *bank) mates(c *Container) []*Container { return b.jobs[c.job()] }

// declared: the most that its job will hold on a GPU is known, and its end can be counted on.
func (b *bank) declared(c *Container) bool {
	for _, m := range b.mates(c) {
		if m.Stays || len(m.Limit) == 0 && !b.Share.Divides() {
			return false
		}
	}
	return !c.Never
}

// holds reports whether its job holds memory of any GPU.
func (b *bank) holds(c *Container) bool {
	for _, m := range b.mates(c) {
		for _, n := range m.Held {
			if n > 0 {
				return true
			}
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
	n := b.gpus[gpu].Usable()
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

// need is what the job of a container may still claim on a GPU: up to the limits of its containers, or
// their shares where cards are divided.
func (b *bank) need(c *Container, gpu string) uint64 {
	var most, held uint64
	for _, m := range b.mates(c) {
		if b.Share.Divides() {
			most = add(most, b.share(m, gpu))
		} else {
			most = add(most, m.Limit[gpu])
		}
		held = add(held, m.Held[gpu])
	}
	return sub(min(most, b.capacity(gpu)), held)
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
			again = true
			for _, m := range b.mates(c) {
				done[m.ID] = true
				for g, held := range m.Held {
					work[g] = add(work[g], held)
				}
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
	before, begins := c.Held[r.GPU], !b.holds(c)
	b.set(c, r.GPU, add(before, r.Bytes))
	defer b.set(c, r.GPU, before)
	after := b.finishers(false)
	for _, id := range b.ids {
		if b.sure[id] && !after[id] && b.holds(b.all[id]) && b.all[id].job() != c.job() {
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
