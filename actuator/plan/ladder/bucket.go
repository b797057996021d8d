package ladder

import (
	"cmp"
	"slices"
	"time"
)

// bucket bounds the changes in a second: each takes a lock that all of the host's
// processes with a GPU share.
type bucket struct {
	tokens float64
	at     time.Time // zero: it is full
}

// fill lets time pass.
func (b *bucket) fill(now time.Time, rate float64) {
	if b.at.IsZero() {
		b.tokens = rate
	} else {
		b.tokens = min(b.tokens+rate*max(0, now.Sub(b.at).Seconds()), rate)
	}
	b.at = now
}

// until says how long it takes until there are n tokens.
func (b *bucket) until(n, rate float64) time.Duration {
	n = min(n, rate)
	if b.tokens >= n {
		return 0
	}
	return time.Duration((n-b.tokens)/rate*float64(time.Second)) + time.Microsecond
}

func (p *planner) rate() float64 { return cmp.Or(p.in.Limits.Calls, DefaultCalls) }

// How urgent a change is: the first come first, and are made whatever the bound says.
const (
	putBack = iota // on again
	yielded        // off, because somebody asked; less, where others' part is not ours
	thrash         // out of slices that thrash
	usual
)

// changes compares what is to stand with what stands. What is too much for now is left
// as it stands.
func (p *planner) changes() []Change {
	type todo struct {
		Change
		urgency int
	}
	var all []todo
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
		if want.Off != t.Stands.Off {
			u := usual
			switch {
			case !want.Off:
				u = putBack
			case t.Asked != "":
				u = yielded
			}
			all = append(all, todo{Change{Tenant: t.ID, Switch: true, Standing: want}, u})
		}
		if is := t.Stands.slice(); want.Slice != is {
			u := usual
			switch {
			case p.foreign > 0 && want.Slice < is:
				u = yielded
			case is < lesser && want.Slice > is:
				u = thrash
			}
			all = append(all, todo{Change{Tenant: t.ID, Set: true, Standing: want}, u})
		}
	}
	// Of those that are equally urgent first slices, so that whoever is put on has its
	// own; then off, so that two in turn do not meet; then on.
	step := func(c Change) int {
		switch {
		case c.Set:
			return 0
		case c.Standing.Off:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(all, func(a, b todo) int {
		return cmp.Or(cmp.Compare(a.urgency, b.urgency), cmp.Compare(step(a.Change), step(b.Change)), cmp.Compare(a.Standing.Rank, b.Standing.Rank))
	})
	var made []Change
	for _, c := range all {
		if p.state.bucket.tokens < 1 && c.urgency > yielded {
			p.leave(c.Change)
			continue
		}
		p.state.bucket.tokens--
		made = append(made, c.Change)
	}
	slices.SortStableFunc(made, func(a, b Change) int { return cmp.Compare(step(a), step(b)) })
	for i, c := range made {
		made[i].Standing = p.out[c.Tenant] // without what was left
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
