package ladder

import (
	"cmp"
	"slices"
	"time"
)

// bucket bounds the changes per second: each change takes a lock that all processes with a GPU on
// this host share.
type bucket struct {
	tokens float64
	at     time.Time // zero: it is full
}

// fill adds the tokens of the time that has passed.
func (b *bucket) fill(now time.Time, rate float64) {
	if b.at.IsZero() {
		b.tokens = rate
	} else {
		b.tokens = min(b.tokens+rate*max(0, now.Sub(b.at).Seconds()), rate)
	}
	b.at = now
}

// until is how long it takes until there are n tokens.
func (b *bucket) until(n, rate float64) time.Duration {
	n = min(n, rate)
	if b.tokens >= n {
		return 0
	}
	return time.Duration((n-b.tokens)/rate*float64(time.Second)) + time.Microsecond
}

func (p *planner) rate() float64 { return cmp.Or(p.in.Limits.Calls, DefaultCalls) }

// The urgency of a change: the first is the most urgent. The bound does not apply to these.
const (
	putBack = iota // on again
	yielded        // less, where others' part is not ours
	thrash         // out of slices that thrash
	usual
)

// wish is a change that the plan wants, and how urgent it is.
type wish struct {
	Change
	urgency int
}

// step orders equally urgent changes. Slices come first, so that a process that goes on has its own.
// Then off, so that two that take turns do not meet. Then on.
func step(c Change) int {
	switch {
	case c.Set:
		return 0
	case c.Standing.Off:
		return 1
	default:
		return 2
	}
}

// wishes compares the planned standings with those in force, the most urgent first. What cannot be
// changed now is planned as it stands.
func (p *planner) wishes() (all []wish) {
	for _, t := range p.in.Tenants {
		want, ours := p.out[t.ID]
		if !ours {
			continue
		}
		if t.Later {
			want.Slice, want.Off, want.Until = t.Stands.slice(), t.Stands.Off, t.Stands.Until
			p.out[t.ID] = want
			continue
		}
		if t.Bound != "" {
			want.Off, want.Until = t.Stands.Off, t.Stands.Until
			p.out[t.ID] = want
		}
		if want.Off != t.Stands.Off || t.Asked != "" && !want.Until.Equal(t.Stands.Until) {
			urgency := usual
			if !want.Off {
				urgency = putBack
			}
			all = append(all, wish{Change{Tenant: t.ID, Switch: true, Standing: want}, urgency})
		}
		if want.Slice != t.Stands.slice() {
			all = append(all, wish{Change{Tenant: t.ID, Set: true, Standing: want}, p.sliceUrgency(t, want)})
		}
	}
	slices.SortStableFunc(all, func(a, b wish) int {
		return cmp.Or(cmp.Compare(a.urgency, b.urgency), cmp.Compare(step(a.Change), step(b.Change)), cmp.Compare(a.Standing.Rank, b.Standing.Rank))
	})
	return all
}

func (p *planner) sliceUrgency(t Tenant, want Standing) int {
	is := t.Stands.slice()
	switch {
	case len(p.foreign) > 0 && want.Slice < is:
		return yielded
	case is < lesser && want.Slice > is:
		return thrash
	}
	return usual
}

// changes are those that the plan makes now. Changes beyond the bound are put off: what is in force
// stays.
func (p *planner) changes() []Change {
	var made []Change
	for _, w := range p.wishes() {
		if p.state.bucket.tokens < 1 && w.urgency > yielded {
			p.leave(w.Change)
			continue
		}
		p.state.bucket.tokens--
		made = append(made, w.Change)
	}
	slices.SortStableFunc(made, func(a, b Change) int { return cmp.Compare(step(a), step(b)) })
	for i, c := range made {
		made[i].Standing = p.out[c.Tenant] // without what was put off
	}
	return made
}

// leave puts off a change.
func (p *planner) leave(c Change) {
	i := slices.IndexFunc(p.in.Tenants, func(t Tenant) bool { return t.ID == c.Tenant })
	was, s := p.in.Tenants[i].Stands, p.out[c.Tenant]
	if c.Set {
		s.Slice = was.slice()
	} else {
		s.Off, s.Until = was.Off, was.Until
	}
	p.out[c.Tenant] = s
	p.wake(p.in.Now.Add(p.state.bucket.until(1, p.rate())))
}
