package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Decide answers every request of the state, in the order of the policy. Grants
// are consistent with each other: all of them can be carried out.
func Decide(s State) []Answer {
	b := newBank(s)
	requests := slices.SortedStableFunc(slices.Values(s.Requests), func(x, y Request) int {
		return cmp.Or(cmp.Compare(b.rank(x), b.rank(y)), x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
	})
	answers := make([]Answer, 0, len(requests))
	for _, r := range requests {
		answers = append(answers, b.decide(r, answers))
	}
	b.callBack(answers)
	b.unlock(answers)
	return answers
}

// bank is the state with an index; grants change it.
type bank struct {
	State
	gpus map[string]GPU
	all  map[string]*Container
	ids  []string                // of all, sorted
	jobs map[string][]*Container // see mates
	sure map[string]bool         // containers that can end for sure, see finishers
	// What follows from Held, until that changes.
	shares, caps map[string]uint64
}

func newBank(s State) *bank {
	b := &bank{State: s, gpus: map[string]GPU{}, all: map[string]*Container{}, jobs: map[string][]*Container{}}
	for _, g := range s.GPUs {
		b.gpus[g.UUID] = g
	}
	for _, c := range s.Containers {
		c.Held = maps.Clone(c.Held)
		if c.Held == nil {
			c.Held = map[string]uint64{}
		}
		b.all[c.ID] = &c
	}
	b.ids = slices.Sorted(maps.Keys(b.all))
	for _, id := range b.ids {
		if c := b.all[id]; !c.Never {
			b.jobs[c.job()] = append(b.jobs[c.job()], c)
		}
	}
	b.sure = b.finishers(false)
	return b
}

func (b *bank) rank(r Request) int {
	if c := b.all[r.Container]; c != nil {
		return c.Rank
	}
	return 0
}

// decide answers one request, after those before it in order.
func (b *bank) decide(r Request, before []Answer) Answer {
	c, known := b.all[r.Container]
	_, there := b.gpus[r.GPU]
	say := func(v Verdict, w Why, format string, args ...any) Answer {
		return Answer{Request: r, Verdict: v, Why: w, Reason: fmt.Sprintf(format, args...)}
	}
	if !known || !there {
		return say(Grant, Unknown, "nothing is known of its container or GPU")
	}
	after := add(c.Held[r.GPU], r.Bytes)
	most := b.capacity(r.GPU)
	limit, limited := c.ownLimit(r.GPU)
	switch {
	case limited && after > limit:
		return say(Deny, Limit, "it would hold %s, and its limit is %s", size(after), size(limit))
	case c.Never:
		b.take(c, r)
		return say(Grant, Never, "it never waits for memory: %s", c.Because)
	case after > most:
		return say(Deny, TooLarge, "it would hold %s, and no more than %s can be had on %s", size(after), size(most), r.GPU)
	}
	a := b.room(c, r, before)
	if a.Verdict == Wait && b.tooLong(r) {
		return say(Deny, TooLong, "it has waited for %v, as long as is allowed: %s", b.MaxWait, a.Reason)
	}
	if a.Verdict == Grant {
		b.take(c, r)
		b.sure = b.finishers(false)
	}
	return a
}

// ownLimit is the most that a container may be granted on a GPU by its own limit.
func (c *Container) ownLimit(gpu string) (limit uint64, limited bool) {
	if c.Never && !c.Bounded {
		return 0, false
	}
	if limit, limited = c.Limit[gpu]; !limited && c.Limit != nil {
		return largest(c.Limit), true // we did not know that it sees this GPU
	}
	return limit, limited
}

// barred reports whether a container may not begin yet. Once its request has waited for too long it begins, if
// what was expected has not come. Where a card is divided, and somebody can be swapped out to give a share back, half
// of that time is too long.
func (b *bank) barred(c *Container, r Request) bool {
	if c.Barred == "" || b.holds(c) || b.tooLong(r) {
		return false
	}
	return !b.waited(r, b.MaxWait/2) || !b.Share.Divides() || !b.anySwappable(c, r.GPU)
}

// anySwappable reports whether another container holds memory of a GPU and can be swapped out.
func (b *bank) anySwappable(c *Container, gpu string) bool {
	for _, id := range b.ids {
		if o := b.all[id]; o != c && o.mayLeave() && o.Held[gpu] > 0 {
			return true
		}
	}
	return false
}

// mayLeave reports whether the container may be swapped out for the sake of others' shares.
func (c *Container) mayLeave() bool { return c.Swappable && !c.Never && !c.Stays }

// tooLong reports whether a request has waited for as long as is allowed.
func (b *bank) tooLong(r Request) bool { return b.waited(r, b.MaxWait) }

// waited reports whether a request has waited for that long; never for 0.
func (b *bank) waited(r Request, long time.Duration) bool {
	return long > 0 && b.Now.Sub(r.Since) >= long
}

// room grants a request that its limit and share allow, if there is room now and the grant harms no
// container.
func (b *bank) room(c *Container, r Request, before []Answer) Answer {
	say := func(v Verdict, w Why, format string, args ...any) Answer {
		return Answer{Request: r, Verdict: v, Why: w, Reason: fmt.Sprintf(format, args...)}
	}
	free := b.free(r.GPU)
	after := add(c.Held[r.GPU], r.Bytes)
	allowed := b.allowed(c, r.GPU)
	switch {
	case b.barred(c, r):
		return say(Wait, Barred, "%s", c.Barred)
	case after > allowed:
		return say(Wait, Shared, "it would hold %s, and its share of the card is %s now", size(after), size(allowed))
	case r.Bytes > free:
		return say(Wait, Room, "it asks for %s, %s are free; %s", size(r.Bytes), size(free), b.holders(c, r.GPU))
	}
	if first := b.passed(c, r, before); first != "" {
		return say(Wait, Behind, "%s has waited for longer than %v", first, b.Patience)
	}
	if lost := b.harms(c, r); lost != "" {
		return say(Wait, Unsafe, "%s could not get what it may still claim, and they could wait for each other for ever", lost)
	}
	return say(Grant, Free, "%s of %s are free", size(free), size(b.gpus[r.GPU].Total))
}

// passed names a container that has waited on the same GPU for longer than Patience, if c holds
// nothing yet: then c may not pass it.
func (b *bank) passed(c *Container, r Request, before []Answer) string {
	if b.holds(c) { // it must go on, so that others get what it holds
		return ""
	}
	for _, a := range before {
		if a.Verdict == Wait && a.Request.GPU == r.GPU && a.Request.Container != c.ID && a.Why != Barred &&
			b.Now.Sub(a.Request.Since) >= b.Patience {
			return b.all[a.Request.Container].Name
		}
	}
	return ""
}

func (b *bank) take(c *Container, r Request) { b.set(c, r.GPU, add(c.Held[r.GPU], r.Bytes)) }

// set changes what a container holds.
func (b *bank) set(c *Container, gpu string, held uint64) {
	c.Held[gpu] = held
	b.shares, b.caps = nil, nil
}

// holders says who holds most of a card besides c, for people.
func (b *bank) holders(c *Container, gpu string) string {
	var most *Container
	for _, id := range b.ids {
		if o := b.all[id]; o != c && o.Held[gpu] > 0 && (most == nil || o.Held[gpu] > most.Held[gpu]) {
			most = o
		}
	}
	if most == nil {
		return "nobody who could give some back holds any"
	}
	return fmt.Sprintf("%s holds %s", most.Name, size(most.Held[gpu]))
}

func largest(m map[string]uint64) uint64 {
	var most uint64
	for _, v := range m {
		most = max(most, v)
	}
	return most
}

// add does not wrap: a program may ask for any number.
func add(x, y uint64) uint64 {
	if x+y < x {
		return ^uint64(0)
	}
	return x + y
}

func sub(x, y uint64) uint64 {
	if y > x {
		return 0
	}
	return x - y
}

// size writes bytes for people.
func size(n uint64) string {
	switch {
	case n >= 1<<40:
		return "more than 1 TiB"
	case n >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n == 1:
		return "1 byte"
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// names lists containers for people.
func (b *bank) names(ids []string) string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, b.all[id].Name)
	}
	return strings.Join(out, ", ")
}
