// Package account divides what a card did among containers: the time of its multiprocessors and its
// energy. README.md has the method and its errors.
//
// It is pure: the time and the facts come in, totals go out. It imports the standard library
// only.
package account

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Other stands for processes that belong to no known container.
const Other = ""

// longest is the longest time between two readings for which the second one's samples can stand. The
// driver keeps its samples for some seconds.
const longest = 5 * time.Second

// Fact is what was read of a card at one moment.
type Fact struct {
	At time.Time
	// Energy is the card's counter, J. It is valid only with HasEnergy.
	Energy    float64
	HasEnergy bool
	// Shares is how much of the time since the last fact each container computed, 0–1, by
	// its id or Other. It is nil where the card does not report it. Exact: it is what Computed says,
	// else it is as the driver's samples have it.
	Shares map[string]float64
	Exact  bool
}

// Use is what one container, or Other, has had of a card.
type Use struct {
	Container string
	Seconds   float64 // that its work was on the GPU
	Energy    float64 // J, of what the card drew beyond its idle power
	Seen      time.Time
}

// Totals is what one card has done since the ledger began.
type Totals struct {
	Uses []Use // one a container, the one last seen first
	// Idle is J at the idle power, of the time with work too. Unknown is J of time in which nobody
	// knows who computed: between readings too far apart, and what the driver had counted
	// when it was loaded anew. With the energy of Uses they add up to the card's counter.
	Idle, Unknown float64
	// HasSeconds and HasEnergy say that the card reports what the totals are made of.
	HasSeconds, HasEnergy bool
}

// Ledger is the account of one card. The zero value is ready and knows no idle power.
type Ledger struct {
	last *Fact
	// energy is the card's counter when it was last read, which may have been before last.
	energy *float64
	uses   map[string]*Use
	total  Totals
	idle   idle
	mix    mix
	draw   draw
}

// New returns the ledger of a card whose idle power was learned before: watts, or 0 if not.
func New(idleWatts float64) *Ledger { return &Ledger{idle: idle{idleWatts}} }

// IdleWatts returns the idle power, or 0 while it is not known.
func (l *Ledger) IdleWatts() float64 { return l.idle.watts }

// Take takes the next fact.
func (l *Ledger) Take(f Fact) {
	last, energy := l.last, l.energy
	l.last = &f
	if f.HasEnergy {
		l.energy = &f.Energy
	}
	if last == nil {
		return
	}
	passed := f.At.Sub(last.At)
	shares := f.Shares
	if passed < 0 || passed > longest { // a clock was set back, or the exporter stood still
		shares = nil
	}
	times := l.time(shares, passed, f.At)
	if !f.HasEnergy || !last.HasEnergy || shares == nil || f.Energy < last.Energy {
		l.draw.settle(l.mix.before)
		l.mix = mix{}
	}
	if f.HasEnergy && energy != nil {
		// Where the counter could not be read the last time, the shares are of a part of this energy.
		l.divide(*energy, f.Energy, shares != nil && last.HasEnergy, f.Exact, times, passed)
	}
}

// time counts the seconds. Samples of several processes may add up to more than the time that passed,
// because each is rounded and averaged: then all are cut in proportion.
func (l *Ledger) time(shares map[string]float64, passed time.Duration, at time.Time) map[string]float64 {
	if shares == nil {
		return nil
	}
	l.total.HasSeconds = true
	sum := 0.0
	for _, s := range shares {
		sum += max(0, s)
	}
	scale := passed.Seconds() / max(1, sum)
	times := map[string]float64{}
	for id, s := range shares {
		if s*scale > 0 {
			times[id] = s * scale
			u := l.use(id)
			u.Seconds += times[id]
			u.Seen = at
		}
	}
	return times
}

// divide divides the energy between two facts.
func (l *Ledger) divide(before, now float64, known, exact bool, times map[string]float64, passed time.Duration) {
	used := now - before
	switch {
	case now < before: // the driver was loaded anew, and has counted from 0
		l.total.Unknown += now
		return
	case !known:
		l.total.Unknown += used
		return
	}
	l.total.HasEnergy = true
	if passed <= 0 {
		l.total.Idle += used
		return
	}
	idle := min(used, l.idle.watts*passed.Seconds())
	if ended := l.mix.take(reading{times, passed.Seconds(), used - idle, exact}); ended != nil {
		l.draw.settle(*ended)
	}
	shares := l.mix.shares()
	if len(shares) == 0 {
		l.idle.learn(used, passed.Seconds())
		l.total.Idle += used
		return
	}
	l.total.Idle += idle
	for id, joules := range l.draw.divide(used-idle, shares, l.mix.before) {
		l.use(id).Energy += joules
	}
}

func (l *Ledger) use(id string) *Use {
	u := l.uses[id]
	if u == nil {
		if l.uses == nil {
			l.uses = map[string]*Use{}
		}
		u = &Use{Container: id}
		l.uses[id] = u
	}
	return u
}

// Open begins a container's account at 0, unless it has begun.
func (l *Ledger) Open(id string, now time.Time) {
	l.use(id)
	l.Keep(id, now)
}

// Keep notes that a container is there at now, whether it works or not.
func (l *Ledger) Keep(id string, now time.Time) {
	if u := l.uses[id]; u != nil && u.Seen.Before(now) {
		u.Seen = now
	}
}

// Forget drops the containers that were last seen before then.
func (l *Ledger) Forget(then time.Time) {
	for id, u := range l.uses {
		if id != Other && u.Seen.Before(then) {
			delete(l.uses, id)
			l.mix.forget(id)
			l.draw.forget(id)
		}
	}
}

// Totals returns what the card has done by now.
func (l *Ledger) Totals() Totals {
	t := l.total
	for _, u := range slices.Collect(maps.Values(l.uses)) {
		t.Uses = append(t.Uses, *u)
	}
	slices.SortFunc(t.Uses, func(a, b Use) int { return cmp.Or(b.Seen.Compare(a.Seen), cmp.Compare(a.Container, b.Container)) })
	return t
}
