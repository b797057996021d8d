package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
)

// Waiting lists the requests that wait, the oldest first.
func (l *Ledger) Waiting() []facts.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	var out []facts.Event
	for _, p := range l.pending {
		if p.asked {
			out = append(out, facts.Event{Answer: p.answer, Function: p.Function, Waited: max(0, now.Sub(p.Since))})
		}
	}
	slices.SortFunc(out, func(a, b facts.Event) int {
		return cmp.Or(a.Request.Since.Compare(b.Request.Since), cmp.Compare(a.Request.ID, b.Request.ID))
	})
	return out
}

// Evict says which containers (ids) should be swapped out, and why.
func (l *Ledger) Evict() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.evict)
}

// Events returns what has happened since the last call.
func (l *Ledger) Events() []facts.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events
	l.events = nil
	return e
}

// Parts returns what each container holds and what it is entitled to.
func (l *Ledger) Parts() []allocator.Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(l.o.Now())
	for i, c := range l.facts.Containers {
		for _, g := range s.GPUs {
			if s.Containers[i].Held[g.UUID] > 0 { // its ceiling is not held
				s.Containers[i].Held[g.UUID] = l.there(c, g.UUID)
			}
		}
	}
	for _, p := range l.pending {
		s.Requests = append(s.Requests, allocator.Request{ID: p.id, Container: p.ContainerID, GPU: p.GPU, Bytes: p.Bytes, Since: p.Since})
	}
	return allocator.Parts(s)
}

// Reserve keeps memory for a container that is about to be swapped in. It returns an error if there is
// no room now. Call Release after the swap, whatever its outcome.
func (l *Ledger) Reserve(containerID string, need map[string]uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state(l.o.Now())
	for _, g := range s.GPUs {
		free := g.Usable()
		for _, c := range s.Containers {
			if c.ID != containerID {
				free -= min(free, c.Held[g.UUID])
			}
		}
		if n := need[g.UUID]; n > free {
			return fmt.Errorf("%d MiB are needed on %s, and %d MiB are free", n>>20, g.UUID, free>>20)
		}
	}
	l.coming[containerID] = arrival{need: maps.Clone(need)}
	return nil
}

// Release ends a Reserve: its memory is kept until a snapshot shows it.
func (l *Ledger) Release(containerID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.coming[containerID]; ok {
		a.done = l.o.Now()
		l.coming[containerID] = a
	}
}
