package ledger

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator/facts"
)

// Ceiling implements memory.Decider. Where all claims on a GPU fit beside each other there is nothing
// to decide: a container takes up to its limit without asking.
func (l *Ledger) Ceiling(containerID, gpu string, limit uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{containerID, gpu}
	if !l.ample(containerID, gpu, limit) {
		l.withdraw(at, l.o.Now())
		return 0
	}
	l.ceilings[at] = ceiling{bytes: limit}
	return limit
}

// ample reports whether all containers that may use a GPU can hold the most that they may at once.
//
// A container without a limit has no known maximum and does not ask. It counts for what it holds and
// for growthPart of the card, which it may take before the guard's next reading. Where cards are
// divided all containers ask.
func (l *Ledger) ample(containerID, gpu string, limit uint64) bool {
	me := l.byID[containerID]
	if me == nil || me.Barred != "" || l.facts.Share.Divides() {
		return false
	}
	i := slices.IndexFunc(l.facts.GPUs, func(g facts.GPU) bool { return g.UUID == gpu })
	if i < 0 {
		return false
	}
	g := l.facts.GPUs[i]
	room := g.Total - g.Total/reservePart
	var claims, ours uint64
	unasked := false
	for _, c := range l.facts.Containers {
		ours += c.Held[gpu]
		most := c.Limit
		switch {
		case len(c.GPUs) > 0 && !slices.Contains(c.GPUs, gpu) && c.Held[gpu] == 0:
			continue
		case c.ID == containerID:
			most = max(limit, c.Held[gpu])
		case c.Never:
			most = max(c.Limit, c.Held[gpu], c.Peak[gpu])
		case most == 0:
			unasked = true
		}
		claims += max(most, c.Held[gpu])
	}
	rest := g.Used - min(g.Used, ours)
	if unasked {
		rest = max(rest, l.grown(gpu)) + g.Total/growthPart
	}
	return claims+rest <= room
}

// growthPart of a card is left to containers that do not ask. The guard reads the usage every 10 ms while
// others allocate, and every 250 ms otherwise.
const growthPart = 16

// grown is the memory in use on a GPU, by the guard's reading, beyond what is known to be held there:
// containers that do not ask took it since the snapshot.
func (l *Ledger) grown(gpu string) uint64 {
	if !l.lastSight.After(l.facts.Time) {
		return 0
	}
	var known uint64
	for _, c := range l.facts.Containers {
		known += l.there(c, gpu)
	}
	return l.used[gpu] - min(l.used[gpu], known)
}

// reviewCeilings withdraws ceilings on GPUs that are no longer ample, forgets withdrawn ones that a later
// reading covers, and reports whether the guard should ask again.
func (l *Ledger) reviewCeilings(now time.Time) (again bool) {
	for at, c := range l.ceilings {
		switch {
		case l.byID[at.container] == nil:
			delete(l.ceilings, at)
		case !c.until.IsZero() && l.facts.Time.After(c.until.Add(l.o.Lag)):
			delete(l.ceilings, at)
			again = true
		case c.until.IsZero() && !l.ample(at.container, at.gpu, c.bytes):
			l.withdraw(at, now)
			again = true
		}
	}
	return again
}

// withdraw keeps a ceiling until a reading shows what was taken under it.
func (l *Ledger) withdraw(at place, now time.Time) {
	if c, ok := l.ceilings[at]; ok && c.until.IsZero() {
		c.until = now
		l.ceilings[at] = c
	}
}
