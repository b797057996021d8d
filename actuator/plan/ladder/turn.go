package ladder

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// leastTurn is the shortest turn: taking one process off the GPU and putting the next one on costs
// some 2 ms of it.
const leastTurn = 50 * time.Millisecond

// ahead is how long before a process must be on again its turn begins at the latest: calls take a
// while, and the enforcer switches it on when its time is over.
const ahead = 20 * time.Millisecond

// gaps is the part of a turn that may stay unused; above it, other processes are on as well.
const gaps = 0.15

// turn says which of the processes that take turns are on the GPU.
type turn struct {
	on           []string
	began, until time.Time
	off          map[string]time.Time // since when the others are off
	own          map[string]time.Time // when each last began a turn of its own, not one that fills gaps
	// got is the GPU time of each process when the turn began.
	got   map[string]time.Duration
	since time.Time // when turns began
	// tasting is what was seen since the appetites were computed. appetite is the part of its turns
	// that each process used, of the time left to it, 0–1.
	tasting  tasting
	appetite map[string]float64
	// sated is for how long little was unused while several were on, trust after how long one is alone again.
	sated, trust time.Duration
	// owed is what each process was promised and did not get in earlier turns.
	owed map[string]time.Duration
	// visits: between turns none of them is on (visit.go).
	visits bool
	// past is who was on when, the present last. read is the beginning of the last reading of context switches
	// that was looked at. worth is what each process used of its
	// visits; earns is what each used of its turns, and servers of the time.
	past  []stint
	read  time.Time
	worth map[string]earnings
	earns map[string]earnings
	// useful is the part of the turn before in which any process computed, 0–1; 0: not known.
	useful float64
}

func (t turn) clone() turn {
	t.got = maps.Clone(t.got)
	t.off, t.own, t.appetite, t.owed = copied(t.off), copied(t.own), copied(t.appetite), copied(t.owed)
	t.tasting, t.past, t.worth, t.earns = t.tasting.clone(), slices.Clone(t.past), copied(t.worth), copied(t.earns)
	return t
}

// takeTurns says which of the processes that want the GPU are on now. A process that must stay on
// is on. So is a process whose GPU time is not measured: it may leave gaps that no other could use.
// The others take turns, each as long as its part says, and none is off for longer than MaxOff. A
// process that leaves gaps in its turn has others beside it, as far as these fill the gaps.
func (p *planner) takeTurns(wanting []member) map[string]bool {
	on := map[string]bool{}
	var moving []member
	for _, m := range wanting {
		if m.moves() {
			moving = append(moving, m)
		} else {
			on[m.ID] = true
		}
	}
	t := &p.state.turn
	if t.visits { // processes beside a server without a break show no appetite
		t.visits, t.on = false, nil
		t.anew()
	}
	t.keep(moving, p.tops)
	// Each of them goes off and on once in the longest time that one may be off.
	if calls := 2 * float64(len(moving)) / MaxOff.Seconds(); len(moving) < 2 || calls > 0.8*p.rate() {
		for _, m := range moving {
			on[m.ID] = true
		}
		t.on, t.off, t.own = nil, map[string]time.Time{}, map[string]time.Time{}
		t.anew()
		return on
	}
	p.taste(moving)
	if p.over(moving) {
		p.nextTurn(moving)
	}
	t.mark(moving, on, p.in.Now)
	p.wake(t.until)
	return on
}

// moves reports whether a process can take turns.
func (m member) moves() bool { return m.KeepOn == "" && m.Measured }

// anew forgets what was read of turns before they were interrupted.
func (t *turn) anew() {
	t.since, t.tasting = time.Time{}, tasting{}.clone()
	clear(t.earns)
}

// keep forgets all processes but these.
func (t *turn) keep(moving, tops []member) {
	gone := func(id string) bool { return !has(moving, id) }
	forget(t.off, gone)
	forget(t.own, gone)
	forget(t.appetite, gone)
	forget(t.owed, gone)
	forget(t.worth, gone)
	forget(t.earns, func(id string) bool { return gone(id) && !has(tops, id) })
}

// mark adds those of them that are on now, and notes since when the others are off.
func (t *turn) mark(moving []member, on map[string]bool, now time.Time) {
	for _, m := range moving {
		if on[m.ID] = slices.Contains(t.on, m.ID); on[m.ID] {
			delete(t.off, m.ID)
		} else if _, waits := t.off[m.ID]; !waits {
			t.off[m.ID] = now
		}
	}
}

// queue puts the processes first whose last own turn is longest ago.
func (t *turn) queue(moving []member) []member {
	return slices.SortedStableFunc(slices.Values(moving), t.longestAgo)
}

func (t *turn) longestAgo(a, b member) int { return t.own[a.ID].Compare(t.own[b.ID]) }

func has(all []member, id string) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.ID == id })
}

// over reports whether the present turn is over, and another one may begin.
func (p *planner) over(moving []member) bool {
	t := p.state.turn
	left := len(t.on) == 0 || slices.ContainsFunc(t.on, func(id string) bool { return !has(moving, id) })
	if !left && p.in.Now.Before(t.until) {
		return false
	}
	if wait := p.state.bucket.until(float64(len(t.on)+1), p.rate()); !left && wait > 0 {
		p.state.turn.until = p.in.Now.Add(wait) // too many calls: the turn lasts longer
		return false
	}
	return true
}

// nextTurn begins a turn of the process whose last turn is longest ago, and of those that fill its
// gaps. These keep their place in the queue.
func (p *planner) nextTurn(moving []member) {
	t, now := &p.state.turn, p.in.Now
	if t.since.IsZero() {
		t.since = now
	}
	p.owe(moving)
	for _, id := range t.on {
		t.off[id] = now
	}
	lengths := p.lengths(moving)
	queue := t.queue(moving)
	// Gaps go to the process with the largest debt.
	slices.SortStableFunc(queue[1:], func(a, b member) int { return cmp.Compare(t.owed[b.ID], t.owed[a.ID]) })
	most := MaxOff
	// As many at once as it takes for each to have a turn of a useful length in time.
	atOnce := (len(moving)*int(leastTurn) + int(most) - 1) / int(most)
	t.on, t.began = nil, now
	var length time.Duration
	idle := 1.0
	for _, m := range queue {
		since, waits := t.off[m.ID]
		overdue := waits && now.Sub(since) > most-min(leastTurn+ahead, most/2) // by the end of the shortest turn
		if len(t.on) >= max(atOnce, 1) && !overdue && idle <= gaps {
			continue
		}
		if t.on = append(t.on, m.ID); len(t.on) == 1 {
			t.own[m.ID] = now
			length = p.length(m, lengths[m.ID])
			if m.ID == moving[0].ID || m.beside && m.place == moving[0].place { // the rest is for the first, and its equals
				length = max(length, lengths[m.ID])
			}
		}
		idle *= 1 - p.appetite(m.ID)
	}
	owner := t.on[0]
	for _, id := range t.on {
		delete(t.off, id)
	}
	slices.SortStableFunc(queue, t.longestAgo)
	latest, before := now.Add(length), time.Duration(0)
	for _, m := range queue { // each of the others must have its turn in time
		if m.ID == owner {
			continue
		}
		if since, waits := t.off[m.ID]; waits && since.Add(most-ahead-before).Before(latest) {
			latest = since.Add(most - ahead - before)
		}
		before += lengths[m.ID]
	}
	t.until = now.Add(max(latest.Sub(now), min(leastTurn, most/2)))
	slices.Sort(t.on)
	t.got = map[string]time.Duration{}
	for _, o := range p.in.Tenants {
		if o.Measured {
			t.got[o.ID] = o.Got
		}
	}
}

// lengths returns the length of each turn: all of them together end before any process is off for
// too long.
func (p *planner) lengths(moving []member) map[string]time.Duration {
	all := map[string]time.Duration{}
	least := func(member) time.Duration { return min(leastTurn, MaxOff/2) }
	for i, d := range apportion(p.beyond(moving), inTime, least) {
		all[moving[i].ID] = d
	}
	return all
}

// length is the length of the turn that a process with a promised part begins now: long enough for
// what it is owed, for what requests take meanwhile, and for what it is owed for that time itself.
// A process without a part has the usual length.
func (p *planner) length(m member, usual time.Duration) time.Duration {
	owed, known := p.state.turn.owed[m.ID]
	if m.part == 0 || !known {
		return usual
	}
	used, _ := p.used(p.tops)
	useful := cmp.Or(p.state.turn.useful, 1)
	return min(time.Duration(float64(owed)/max(useful-used-m.part*useful, 0.1)), MaxOff*19/20)
}

// beyond converts parts of the whole GPU into parts of what requests leave.
func (p *planner) beyond(queue []member) []member {
	used, known := p.used(p.tops)
	if len(p.tops) == 0 || !known {
		return slices.Clone(queue)
	}
	used /= cmp.Or(p.state.turn.useful, 1)
	used = min(math.Ceil(10*used)/10, 0.9) // in steps, so that slices do not change all the time
	scaled, sum := slices.Clone(queue), 0.0
	for i := range scaled {
		scaled[i].part /= 1 - used
		sum += scaled[i].part
	}
	for i := range scaled {
		scaled[i].part /= max(1, sum)
	}
	return scaled
}

// inTime is the time in which each process that is off in turns has its own, or its visit.
const inTime = MaxOff * 9 / 10

// back is when a process that is off expects its next turn.
func (p *planner) back(id string, moving map[string]time.Duration) time.Time {
	t := p.state.turn
	ids := slices.SortedFunc(maps.Keys(t.off), func(a, b string) int {
		return cmp.Or(t.own[a].Compare(t.own[b]), strings.Compare(a, b))
	})
	at := t.until
	for _, o := range ids {
		if o == id {
			break
		}
		at = at.Add(moving[o])
	}
	if latest := t.off[id].Add(MaxOff); at.After(latest) {
		at = latest
	}
	return at
}
