package ledger

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator/facts"
)

// Ceiling implements memory.Decider: where all claims on a GPU fit beside each
// other there is nothing to decide, and a container takes up to its limit without
// asking.
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

// ample reports whether everybody who may come to a GPU can hold its most there
// at once.
//
// Of one without a limit nobody knows its most, and it has not to ask: asking others
// keeps no room for anybody. So it counts for what it holds, and a part of the card
// that it may take before the guard looks again. Where cards are divided all ask.
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

// growthPart of a card is left to those that are not asked. The guard looks every
// 10 ms while others allocate, and every 250 ms else.
const growthPart = 16

// grown is what the guard saw in use of a GPU beyond what is known to be held there:
// what those took that are not asked about, since the snapshot.
func (l *Ledger) grown(gpu string) uint64 {
	if !l.lastSight.After(l.facts.Time) {
		return 0
	}
	var known uint64
	for _, c := range l.facts.Containers {
		known += l.known(c, gpu)
	}
	return l.used[gpu] - min(l.used[gpu], known)
}

// reviewCeilings withdraws those that are not ample any more, forgets those of
// which a reading was made since, and reports whether the guard should ask again.
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

// withdraw leaves a ceiling in the book until a reading shows what was taken
// under it.
func (l *Ledger) withdraw(at place, now time.Time) {
	if c, ok := l.ceilings[at]; ok && c.until.IsZero() {
		c.until = now
		l.ceilings[at] = c
	}
}
