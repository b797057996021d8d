package compute

import "time"

// presence is how long the context of each owner was on the unit. It stays there while it is idle, until
// another one comes.
type presence struct {
	of    map[Owner]time.Duration
	on    Owner // whose context is on the unit; valid if there
	there bool
	came  map[Owner]uint64 // how often
}

// pass lets d pass, in which the unit's turn is t.
func (p *presence) pass(t turn, d time.Duration) {
	switch {
	case t.of == nil:
	case t.loading > 0:
		p.there = false
	case !p.there || p.on != t.of.owner:
		p.on, p.there = t.of.owner, true
		p.came[p.on]++
	}
	if p.there {
		p.of[p.on] += d
	}
}

// Present is how long the context of each owner has been on the unit so far, also of owners that are
// forgotten. In switches none is.
func (u *Unit) Present() map[Owner]time.Duration { return u.present.of }

// Came is how often the context of each owner came onto the unit so far.
func (u *Unit) Came() map[Owner]uint64 { return u.present.came }
