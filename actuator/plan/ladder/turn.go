package ladder

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// leastTurn is how long a turn is at least: taking one off the GPU and putting the next
// one on costs some 2 ms of it.
const leastTurn = 50 * time.Millisecond

// ahead is how long before it must be on again the turn of one begins at the latest: calls
// take a while, and who carries plans out puts it on when its time is over.
const ahead = 20 * time.Millisecond

// gaps is how much of a turn may be left unused by all who are on in it: with more,
// others are on as well.
const gaps = 0.15

// turn is who is on the GPU of those that take turns.
type turn struct {
	on           []string
	began, until time.Time
	off          map[string]time.Time // since when the others are off
	own          map[string]time.Time // when the last turn began that each had not only to fill gaps
	// got is what each process had got when the turn began.
	got   map[string]time.Duration
	since time.Time // when turns began
	// tasting is what was seen since the appetites were worked out. appetite is the part of the
	// time that was left to it in its turns that each made use of, 0–1.
	tasting  tasting
	appetite map[string]float64
	// owed is what each was promised and has not had in the turns before.
	owed map[string]time.Duration
	// visits: nobody is on between turns (visit.go).
	visits bool
	// useful is the part of the turn before in which somebody computed, 0–1; 0: not known.
	useful float64
}

// tasting is since when, what each process had got then, and for how long each has been on
// since; alone: with nobody else of those that take turns.
type tasting struct {
	began     time.Time
	got       map[string]time.Duration
	on, alone map[string]time.Duration
}

// tasteFor is for how long that is seen before it says something: the device's utilisation is
// a second old and more, and a turn much shorter.
const tasteFor = 4 * time.Second

// stale is for how long after turns began the utilisation still tells of the time before.
const stale = 2 * time.Second

func (t turn) clone() turn {
	t.got = maps.Clone(t.got)
	t.off, t.own, t.appetite, t.owed = copied(t.off), copied(t.own), copied(t.appetite), copied(t.owed)
	t.tasting.on, t.tasting.alone = maps.Clone(t.tasting.on), maps.Clone(t.tasting.alone)
	return t
}

// takeTurns says who of those that want the GPU is on now. Who must stay on, is; so is
// whose GPU time nobody measures: it may leave gaps that nobody else could use. The
// others take turns, each as long as its part says, and none is off for longer than
// MaxOff. Who leaves gaps in its turn has others beside it, as far as these fill them.
func (p *planner) takeTurns(wanting []member) map[string]bool {
	on := map[string]bool{}
	var moving []member
	for _, m := range wanting {
		if m.KeepOn != "" || !m.Measured || p.in.Limits.NoOff {
			on[m.ID] = true
		} else {
			moving = append(moving, m)
		}
	}
	t := &p.state.turn
	if t.visits { // what was on beside a server without a break says nothing of appetites
		t.visits, t.on = false, nil
	}
	t.keep(moving)
	// Each of them goes off and on once in the longest time that one may be off.
	if calls := 2 * float64(len(moving)) / p.maxOff().Seconds(); len(moving) < 2 || calls > 0.8*p.rate() {
		for _, m := range moving {
			on[m.ID] = true
		}
		t.on, t.off, t.own = nil, map[string]time.Time{}, map[string]time.Time{}
		return on
	}
	if p.over(moving) {
		p.nextTurn(moving)
	}
	t.mark(moving, on, p.in.Now)
	p.wake(t.until)
	return on
}

// keep forgets everybody but those.
func (t *turn) keep(moving []member) {
	gone := func(id string) bool { return !has(moving, id) }
	forget(t.off, gone)
	forget(t.own, gone)
	forget(t.appetite, gone)
	forget(t.owed, gone)
}

// mark adds which of those are on now, and notes since when the others are off.
func (t *turn) mark(moving []member, on map[string]bool, now time.Time) {
	for _, m := range moving {
		if on[m.ID] = slices.Contains(t.on, m.ID); on[m.ID] {
			delete(t.off, m.ID)
		} else if _, waits := t.off[m.ID]; !waits {
			t.off[m.ID] = now
		}
	}
}

// queue puts those first whose last turn of their own is longest ago.
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
		p.state.turn.until = p.in.Now.Add(wait) // too many calls: it lasts longer
		return false
	}
	return true
}

// nextTurn begins a turn: of the one whose last turn is longest ago, and of those that
// fill its gaps. These keep their place in the queue.
func (p *planner) nextTurn(moving []member) {
	t, now := &p.state.turn, p.in.Now
	p.taste(moving)
	for _, id := range t.on {
		t.off[id] = now
	}
	lengths := p.lengths(moving)
	queue := t.queue(moving)
	// Gaps are for whom most is owed.
	slices.SortStableFunc(queue[1:], func(a, b member) int { return cmp.Compare(t.owed[b.ID], t.owed[a.ID]) })
	most := p.maxOff()
	// So many at once that everybody has a turn of a useful length in time.
	atOnce := (len(moving)*int(leastTurn) + int(most) - 1) / int(most)
	t.on, t.began = nil, now
	var length time.Duration
	idle := 1.0
	for _, m := range queue {
		since, waits := t.off[m.ID]
		overdue := waits && now.Sub(since) > most-leastTurn/2
		if len(t.on) >= max(atOnce, 1) && !overdue && idle <= gaps {
			continue
		}
		if t.on = append(t.on, m.ID); len(t.on) == 1 {
			t.own[m.ID] = now
			length = p.length(m, lengths[m.ID])
			if m.ID == moving[0].ID { // what is left is for the first in the queue
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
	for _, m := range queue { // each of the others is to have its turn in time
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

// lengths of turns: all of them together end before anybody is off for too long.
func (p *planner) lengths(moving []member) map[string]time.Duration {
	all := map[string]time.Duration{}
	for i, d := range apportion(p.beyond(moving), p.maxOff()*9/10, min(leastTurn, p.maxOff()/2)) {
		all[moving[i].ID] = d
	}
	return all
}

// length of the turn of one that has been promised a part and begins it now: as long as
// it takes to get what it is owed, of which requests take some, and what it is owed for
// that time itself. Others have the usual length.
func (p *planner) length(m member, usual time.Duration) time.Duration {
	owed, known := p.state.turn.owed[m.ID]
	if m.part == 0 || !known {
		return usual
	}
	used, _ := p.used(p.tops)
	useful := cmp.Or(p.state.turn.useful, 1)
	return min(time.Duration(float64(owed)/max(useful-used-m.part*useful, 0.1)), p.maxOff()*19/20)
}

// beyond scales the parts up, as parts of what requests leave.
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

func (p *planner) maxOff() time.Duration { return cmp.Or(p.in.Limits.MaxOff, DefaultMaxOff) }

// appetite is 1 where nobody knows.
func (p *planner) appetite(id string) float64 { return cmp.Or(p.state.turn.appetite[id], 1) }

// spent is what switches may take of the time of a turn. What is idle beyond that is gaps.
const spent = 0.25

// taste notes what everybody is owed at the end of a turn, and now and then how much of their
// turns those made use of that had them.
func (p *planner) taste(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.began)
	if len(t.on) == 0 || took <= 0 {
		return
	}
	all, whole := p.gained(t.got)
	useful := all
	if !whole {
		useful = took
	}
	t.useful = min(max(float64(useful)/float64(took), 0.5), 1)
	for _, m := range moving {
		if before, ok := t.got[m.ID]; ok {
			most := time.Duration(3 * m.part * float64(p.maxOff()))
			t.owed[m.ID] = min(max(t.owed[m.ID]+time.Duration(m.part*float64(useful))-m.Got+before, 0), most)
		}
	}
	if t.since.IsZero() {
		t.since = t.began
	}
	if p.in.Now.Sub(t.since) < stale {
		return
	}
	if t.tasting.began.IsZero() {
		t.tasting = tasting{began: t.began, got: t.got, on: map[string]time.Duration{}, alone: map[string]time.Duration{}}
	}
	for _, id := range t.on {
		if t.tasting.on[id] += took; len(t.on) == 1 {
			t.tasting.alone[id] += took
		}
	}
	if p.in.Now.Sub(t.tasting.began) >= tasteFor {
		if whole {
			p.tasted(moving)
		}
		t.tasting = tasting{}
	}
}

// gained is what all processes got since then, and whether that is all of those that compute.
func (p *planner) gained(since map[string]time.Duration) (all time.Duration, whole bool) {
	whole = true
	for _, o := range p.in.Tenants {
		before, ok := since[o.ID]
		if whole = whole && (ok && o.Measured || o.Wants == No); ok {
			all += o.Got - before
		}
	}
	return all, whole
}

// tasted works out the appetites.
func (p *planner) tasted(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.tasting.began)
	all, _ := p.gained(t.tasting.got)
	left := float64(took-all) > spent*float64(took)
	requests := 0.0 // the part of the time that they took
	for _, m := range p.tops {
		if before, ok := t.tasting.got[m.ID]; ok {
			requests += float64(m.Got-before) / float64(took)
		}
	}
	for _, m := range moving {
		before, ok := t.tasting.got[m.ID]
		on, was := t.tasting.on[m.ID], p.appetite(m.ID)
		switch {
		case !ok || on == 0:
		case !left && t.tasting.alone[m.ID] == on:
			t.appetite[m.ID] = 1
		case t.tasting.alone[m.ID] < on*4/5: // nobody can tell whose gaps were filled: see some time what it does alone
			t.appetite[m.ID] = min(1.1*was, 1)
		case left:
			is := float64(m.Got-before) / max(float64(on)*(1-requests), 1)
			t.appetite[m.ID] = min(max(is, 0.05), 1)
		}
	}
}

// back says when the off one expects its next turn.
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
	if latest := t.off[id].Add(p.maxOff()); at.After(latest) {
		at = latest
	}
	return at
}
