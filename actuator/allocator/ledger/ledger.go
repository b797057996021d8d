// Package ledger answers the memory guard: it keeps what every container holds, and asks package
// allocator.
//
// What a container holds has three parts. The first is the usage that the guard saw last; for a
// container that is not guarded, the exporter's snapshot. The second is what was granted since and
// cannot show there yet. The third is its ceiling: what it may take without asking, and so without
// our seeing it.
//
// It imports the standard library, actuator/allocator, actuator/allocator/facts and
// actuator/enforce/memory.
package ledger

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
	"github.com/laxity/laxity/actuator/enforce/memory"
)

// Options of a Ledger.
type Options struct {
	// Lag is how late a snapshot may show memory that the guard does not see; 250 ms by default.
	Lag time.Duration
	// Alive reports whether a thread of this machine exists; by /proc by default.
	Alive func(pid, tid int) bool
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Ledger implements memory.Decider. It is safe for concurrent use.
type Ledger struct {
	o       Options
	changed chan struct{}

	mu        sync.Mutex
	facts     facts.Facts
	byID      map[string]*facts.Container
	serial    uint64
	pending   map[thread]*pending
	granted   []grant // in flight: no reading can show them yet
	seen      map[place]sight
	lastSight time.Time         // when the guard last read the usage
	used      map[string]uint64 // what it saw in use then, by GPU
	promised  map[string]uint64 // what was granted since, by GPU
	ceilings  map[place]ceiling
	coming    map[string]arrival // being swapped in, by container id
	evict     map[string]string
	refused   map[string]time.Time // who was refused memory to end a circle, by container id
	others    map[string][]foreign // by GPU, of the last ownerLag
	events    []facts.Event
	decided   time.Time // when all that waits was last decided about; zero: something changed since
}

// stale is how long an answer counts while nothing changes: the guard asks again and again about
// waiting requests.
const stale = 200 * time.Millisecond

type thread struct{ pid, tid int }

type place struct{ container, gpu string }

type pending struct {
	memory.Request
	id     uint64
	answer allocator.Answer
	asked  bool      // answered at least once
	last   time.Time // when the guard last asked about it
}

type grant struct {
	place
	thread
	bytes uint64
	at    time.Time
	// after is what its container held with it: a device that says as much shows it.
	after uint64
}

// arrival is memory that is kept for a container that is swapped in.
type arrival struct {
	need map[string]uint64 // by GPU
	// done is when the swap ended; zero: it has not. The device shows the memory some time later.
	done time.Time
}

type sight struct {
	bytes uint64
	at    time.Time
}

const (
	// inFlight bounds how long a granted call counts as in flight: its return may go unseen.
	inFlight = 5 * time.Second
	// fresh is how much older than the snapshot the guard's reading may be and still count.
	fresh = 500 * time.Millisecond
	// silence is how long the guard may not ask about a request that waits. It asks every 10 ms, and a
	// reading before that may take 2 s. Later the call is as a rule over: the guard decided it by itself,
	// or somebody else continued its process. If not, the guard asks again, and its place is by Since.
	silence = 3 * time.Second
)

// ceiling is what a container may take without asking.
type ceiling struct {
	bytes uint64
	// until is when it was withdrawn; zero: it counts.
	until time.Time
}

var _ memory.Decider = (*Ledger)(nil)

// New returns a ledger that knows nothing and grants everything until the first Update.
func New(o Options) *Ledger {
	if o.Lag <= 0 {
		o.Lag = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Alive == nil {
		o.Alive = func(pid, tid int) bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid))
			return err == nil
		}
	}
	return &Ledger{
		o: o, changed: make(chan struct{}, 1), byID: map[string]*facts.Container{}, pending: map[thread]*pending{},
		seen: map[place]sight{}, promised: map[string]uint64{}, ceilings: map[place]ceiling{}, coming: map[string]arrival{}, evict: map[string]string{}, refused: map[string]time.Time{}, others: map[string][]foreign{},
	}
}

// Changed gets a value when there is something new to plan with, or when the guard should ask
// again.
func (l *Ledger) Changed() <-chan struct{} { return l.changed }

func (l *Ledger) notify() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Update replaces the facts. It reports whether the guard should ask again about its held calls.
func (l *Ledger) Update(f facts.Facts) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts, l.byID, l.decided = f, map[string]*facts.Container{}, time.Time{}
	for i := range f.Containers {
		l.byID[f.Containers[i].ID] = &f.Containers[i]
	}
	now := l.o.Now()
	l.keepOthers(now)
	l.granted = slices.DeleteFunc(l.granted, func(g grant) bool { return l.landed(g, now) })
	maps.DeleteFunc(l.seen, func(p place, s sight) bool { return l.byID[p.container] == nil || s.at.Before(f.Time.Add(-fresh)) })
	maps.DeleteFunc(l.pending, func(t thread, p *pending) bool {
		c := l.byID[p.ContainerID]
		asked := c != nil && (c.Limit > 0 || f.Share.Divides()) // else the guard has released it
		return !asked || now.Sub(p.last) > silence || !l.o.Alive(t.pid, t.tid)
	})
	maps.DeleteFunc(l.coming, func(id string, a arrival) bool {
		return l.byID[id] == nil || !a.done.IsZero() && a.done.Before(f.Time.Add(-l.o.Lag))
	})
	again = l.reviewCeilings(now)
	return l.review(now) || again
}

// landed reports whether a grant is no longer in flight, by the snapshot.
func (l *Ledger) landed(g grant, now time.Time) bool {
	c := l.byID[g.container]
	switch {
	case c == nil, now.Sub(g.at) > inFlight:
		return true
	default:
		shown := g.at.Before(l.facts.Time) && c.Held[g.gpu] >= g.after
		return shown || !l.o.Alive(g.pid, g.tid)
	}
}

// Observe implements memory.Decider: the guard's reading includes all earlier grants.
func (l *Ledger) Observe(s memory.Sight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, on := range s.Held {
		for gpu, bytes := range on {
			at := place{id, gpu}
			if before, ok := l.seen[at]; !ok || before.bytes != bytes {
				l.decided = time.Time{}
			}
			l.seen[at] = sight{bytes, s.At}
			if c, ok := l.ceilings[at]; ok && !c.until.IsZero() && c.until.Before(s.At) {
				delete(l.ceilings, at)
				l.decided = time.Time{}
			}
		}
	}
	l.granted = slices.DeleteFunc(l.granted, func(g grant) bool {
		_, guarded := s.Held[g.container]
		return guarded && g.at.Before(s.At)
	})
	if !maps.Equal(l.used, s.Used) {
		l.decided = time.Time{}
	}
	l.lastSight, l.used = s.At, s.Used
	clear(l.promised)
}

// review decides all waiting requests again and reports whether an answer changed.
func (l *Ledger) review(now time.Time) (other bool) {
	if len(l.pending) == 0 {
		clear(l.evict)
		return false
	}
	for _, a := range l.decide(now) {
		other = other || a.Verdict != allocator.Wait
	}
	return other
}

// decide answers all pending requests. The guard gets each answer when it asks.
func (l *Ledger) decide(now time.Time) []allocator.Answer {
	s := l.state(now)
	byID := map[uint64]*pending{}
	for _, p := range l.pending {
		s.Requests = append(s.Requests, allocator.Request{ID: p.id, Container: p.ContainerID, GPU: p.GPU, Bytes: p.Bytes, Since: p.Since})
		byID[p.id] = p
	}
	answers := allocator.Decide(s)
	l.decided = now
	clear(l.evict)
	for _, a := range answers {
		byID[a.Request.ID].answer = a
		for _, v := range a.Victims {
			l.evict[v] = fmt.Sprintf("%s waits for its memory: %s", l.name(a.Request.Container), a.Reason)
		}
		l.evictRefused(a, now)
	}
	return answers
}

// unreasonable is how long a container that was denied memory to end a circle may keep the others
// waiting: it may keep what it holds, and ask again and again.
const unreasonable = 30 * time.Second

// evictRefused names the containers to swap out for a waiting request: those that were denied memory
// to end a circle and went on. They could not be swapped while they were stopped at their
// allocation.
func (l *Ledger) evictRefused(a allocator.Answer, now time.Time) {
	maps.DeleteFunc(l.refused, func(id string, at time.Time) bool { return l.byID[id] == nil || now.Sub(at) > unreasonable })
	if a.Verdict != allocator.Wait || len(a.Victims) > 0 || (a.Why != allocator.Room && a.Why != allocator.Unsafe) {
		return
	}
	for id := range l.refused {
		c := l.byID[id]
		if at := (place{id, a.Request.GPU}); id != a.Request.Container && c.Swappable && !l.asks(at) && l.held(*c, at.gpu) > 0 {
			l.evict[id] = fmt.Sprintf("%s waits for its memory, and it was refused more to end a circle", l.name(a.Request.Container))
		}
	}
}

// Decide implements memory.Decider.
func (l *Ledger) Decide(r memory.Request) memory.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	t := thread{r.PID, r.TID}
	p := l.pending[t]
	if p == nil || !p.Since.Equal(r.Since) {
		l.serial++
		p = &pending{Request: r, id: l.serial}
		l.pending[t] = p
	}
	p.last = now
	if p.asked && p.answer.Verdict == allocator.Wait && p.Held == r.Held && !l.decided.IsZero() && now.Sub(l.decided) < stale {
		return memory.Answer{Verdict: memory.Wait, Reason: p.answer.Reason}
	}
	if c, ok := l.ceilings[place{r.ContainerID, r.GPU}]; ok && !c.until.Before(l.lastSight) && !l.lastSight.IsZero() {
		return memory.Answer{Verdict: memory.Wait, Reason: "it is being read what it took before it had to ask"}
	}
	p.Request = r
	l.saw(r, now)
	evicted := len(l.evict)
	other := false
	for _, a := range l.decide(now) {
		other = other || (a.Request.ID != p.id && a.Verdict != allocator.Wait)
	}
	l.holdBack(p, now)
	l.settle(t, p, now)
	if other || len(l.evict) != evicted {
		l.notify()
	}
	return memory.Answer{Verdict: verdicts[p.answer.Verdict], Reason: p.answer.Reason}
}

// saw keeps what a request says about its container's memory. Earlier grants are included.
func (l *Ledger) saw(r memory.Request, now time.Time) {
	at := place{r.ContainerID, r.GPU}
	l.seen[at] = sight{r.Held, now}
	l.granted = slices.DeleteFunc(l.granted, func(g grant) bool { return g.place == at })
}

// holdBack makes a request wait that could be granted while the card itself has no room for it: the
// driver frees the memory of a process some time after the process ended.
func (l *Ledger) holdBack(p *pending, now time.Time) {
	used, known := l.used[p.GPU]
	i := slices.IndexFunc(l.facts.GPUs, func(g facts.GPU) bool { return g.UUID == p.GPU })
	if !known || i < 0 || p.answer.Verdict != allocator.Grant || p.answer.Why == allocator.Never ||
		(l.facts.MaxWait > 0 && now.Sub(p.Since) >= l.facts.MaxWait) {
		return
	}
	total := l.facts.GPUs[i].Total
	if free := total - min(total, used+l.promised[p.GPU]); p.Bytes > free {
		p.answer.Verdict, p.answer.Why = allocator.Wait, allocator.Room
		p.answer.Reason = fmt.Sprintf("it asks for %d MiB, and the card has %d MiB free until what others have left is given back", p.Bytes>>20, free>>20)
	}
}

var verdicts = map[allocator.Verdict]memory.Verdict{allocator.Grant: memory.Grant, allocator.Wait: memory.Wait, allocator.Deny: memory.Deny}

// settle keeps the answers that the guard got.
func (l *Ledger) settle(t thread, p *pending, now time.Time) {
	first := !p.asked
	p.asked = true
	switch p.answer.Verdict {
	case allocator.Grant:
		l.granted = append(l.granted, grant{place{p.ContainerID, p.GPU}, t, p.Bytes, now, p.Held + p.Bytes})
		l.promised[p.GPU] += p.Bytes
		l.arrives(p)
		delete(l.pending, t)
		l.decided = time.Time{}
		if first {
			return // nothing visible happened
		}
	case allocator.Deny:
		if p.answer.Why == allocator.Deadlock {
			l.refused[p.ContainerID] = now
		}
		delete(l.pending, t)
		l.decided = time.Time{}
	default:
		if !first {
			return
		}
	}
	l.events = append(l.events, facts.Event{Answer: p.answer, Function: p.Function, Waited: max(0, now.Sub(p.Since))})
	l.events = l.events[max(0, len(l.events)-maxEvents):]
	l.notify()
}

// maxEvents bounds what is kept for Events.
const maxEvents = 256

// state is what the allocator decides on, without the requests.
func (l *Ledger) state(now time.Time) allocator.State {
	s := allocator.State{Now: now, Share: l.facts.Share, MaxWait: l.facts.MaxWait, Patience: l.facts.Patience}
	for _, g := range l.facts.GPUs {
		s.GPUs = append(s.GPUs, l.card(g))
	}
	for _, c := range l.facts.Containers {
		a := allocator.Container{
			ID: c.ID, Name: c.Name, Gang: c.Gang, Never: c.Never, Bounded: c.Bounded, Because: c.Because, Peak: c.Peak, Stays: c.Stays, Barred: c.Barred,
			Rank: c.Rank, Swappable: c.Swappable, Swapped: c.Swapped, Held: map[string]uint64{},
		}
		for _, g := range l.facts.GPUs {
			if held := l.held(c, g.UUID); held > 0 {
				a.Held[g.UUID] = held
			}
			if c.Limit > 0 && (len(c.GPUs) == 0 || slices.Contains(c.GPUs, g.UUID)) {
				if a.Limit == nil {
					a.Limit = map[string]uint64{}
				}
				a.Limit[g.UUID] = c.Limit
			}
		}
		s.Containers = append(s.Containers, a)
	}
	return s
}

// card is what is known of a GPU, as the allocator wants it.
func (l *Ledger) card(g facts.GPU) allocator.GPU {
	return allocator.GPU{UUID: g.UUID, Total: g.Total, Gone: l.gone(g), Reserve: g.Total / reservePart}
}

// ownerLag is how long the owner of memory may be unknown: a driver lists a process some 0.2 s after
// the process holds memory.
const ownerLag = 2 * time.Second

// foreign is memory that belonged to no container of the ledger, at a moment.
type foreign struct {
	bytes uint64
	at    time.Time
}

// unowned is the memory in use on a GPU that belongs to no container of the ledger.
func (l *Ledger) unowned(g facts.GPU) uint64 {
	var ours uint64
	for _, c := range l.facts.Containers {
		ours += c.Held[g.UUID]
	}
	return g.Used - min(g.Used, ours)
}

// gone is the least unowned memory within ownerLag: memory that is unowned only for a moment has an
// owner that was not known yet.
func (l *Ledger) gone(g facts.GPU) uint64 {
	least := l.unowned(g)
	for _, f := range l.others[g.UUID] {
		least = min(least, f.bytes)
	}
	return least
}

// keepOthers keeps the readings for gone.
func (l *Ledger) keepOthers(now time.Time) {
	for _, g := range l.facts.GPUs {
		l.others[g.UUID] = append(slices.DeleteFunc(l.others[g.UUID], func(f foreign) bool { return now.Sub(f.at) > ownerLag }), foreign{l.unowned(g), now})
	}
}

// reservePart of a card is kept free: a driver cannot give out its last pages.
const reservePart = 512

// held is what a container holds of a GPU, rather too much than too little: what it takes up to its
// ceiling is not seen.
func (l *Ledger) held(c facts.Container, gpu string) uint64 {
	n := l.there(c, gpu)
	at := place{c.ID, gpu}
	if top, ok := l.ceilings[at]; ok && n > 0 && !l.asks(at) {
		n = max(n, top.bytes)
	}
	return n
}

// there is what a container holds of a GPU by what is known, and at least what is kept for it there.
func (l *Ledger) there(c facts.Container, gpu string) uint64 {
	return max(l.known(c, gpu), l.arriving(c, gpu))
}

// arriving is what is kept on a GPU for a container that is swapped in. With what it asks for now that is no more than its
// limit, and than the card has: what is kept may be all of that, and then has what it asks for in it.
func (l *Ledger) arriving(c facts.Container, gpu string) uint64 {
	need := l.coming[c.ID].need[gpu]
	if need == 0 {
		return 0
	}
	var asked uint64
	for _, p := range l.pending {
		if p.ContainerID == c.ID && p.GPU == gpu {
			asked += min(p.Bytes, math.MaxUint64-asked)
		}
	}
	if asked == 0 {
		return need
	}
	most := l.most(c, gpu)
	return min(need, most-min(most, asked))
}

// most is what a container may hold of a GPU: its limit, and what can be had there.
func (l *Ledger) most(c facts.Container, gpu string) uint64 {
	var most uint64 = math.MaxUint64
	if c.Limit > 0 {
		most = c.Limit
	}
	for _, g := range l.facts.GPUs {
		if g.UUID == gpu {
			most = min(most, l.card(g).Usable())
		}
	}
	return most
}

// arrives adds what was granted to what is kept for a container that is swapped in: no reading shows the two
// together before it is back.
func (l *Ledger) arrives(p *pending) {
	need, ok := l.coming[p.ContainerID].need[p.GPU]
	c := l.byID[p.ContainerID]
	if !ok || c == nil {
		return
	}
	most := l.most(*c, p.GPU)
	l.coming[p.ContainerID].need[p.GPU] = max(need, min(need+min(p.Bytes, most), most))
}

// known is what a container was seen to hold of a GPU, and what was granted to it since.
func (l *Ledger) known(c facts.Container, gpu string) uint64 {
	at := place{c.ID, gpu}
	n := c.Held[gpu]
	if s, ok := l.seen[at]; ok && s.at.After(l.facts.Time) {
		n = s.bytes
	} else if ok { // it may have the calls that are under way, which a snapshot has not
		n = max(n, s.bytes)
	}
	for _, g := range l.granted {
		if g.place == at {
			n += g.bytes
		}
	}
	return n
}

// asks reports whether an allocation of the container is held. Then it counts for what it holds, and
// not for its ceiling.
func (l *Ledger) asks(at place) bool {
	for _, p := range l.pending {
		if p.ContainerID == at.container && p.GPU == at.gpu {
			return true
		}
	}
	return false
}

func (l *Ledger) name(id string) string {
	if c := l.byID[id]; c != nil {
		return c.Name
	}
	return id
}
