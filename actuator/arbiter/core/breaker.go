package core

import (
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
)

// breaker keeps a fault of ours, or a storm of alerts, from becoming a storm of pauses: beyond its
// bounds everything is released, and nothing is held for a while.
type breaker struct {
	acts  []time.Time // pauses and unpauses of the last minute, oldest first
	calls uint64      // calls of the engine counted so far
	until time.Time   // zero: closed
	full  time.Time   // since when too large a share is stopped; zero: it is not
	why   string
}

const (
	breakerRest = time.Minute
	// fewContainers are no storm, however large their share.
	fewContainers = 5
	// fullFor is how long too large a share may be stopped: when one container hands over to the
	// next, both are stopped for a moment.
	fullFor = 2 * time.Second
)

// count records new calls of the engine; calls is their total so far.
func (b *breaker) count(now time.Time, calls uint64) {
	for len(b.acts) > 0 && now.Sub(b.acts[0]) > time.Minute {
		b.acts = b.acts[1:]
	}
	for ; b.calls < calls; b.calls++ {
		b.acts = append(b.acts, now)
	}
}

// open says why nothing may be held now; empty while the breaker is closed.
func (b *breaker) open(now time.Time) string {
	if now.Before(b.until) {
		return b.why
	}
	return ""
}

// judge opens the breaker if a bound is exceeded: held of managed containers are stopped by us.
func (b *breaker) judge(now time.Time, c config.Config, held, managed int) (opened bool) {
	switch {
	case managed < fewContainers || float64(held) < c.BreakerShare*float64(managed):
		b.full = time.Time{}
	case b.full.IsZero():
		b.full = now
	}
	switch {
	case now.Before(b.until):
		return false
	case len(b.acts) > c.BreakerActions && now.Sub(b.acts[len(b.acts)-1-c.BreakerActions]) <= time.Minute:
		b.why = fmt.Sprintf("more than %d pauses and unpauses within a minute (--breaker.actions)", c.BreakerActions)
	case !b.full.IsZero() && now.Sub(b.full) >= fullFor:
		b.why = fmt.Sprintf("%d of %d managed containers are stopped (--breaker.share)", held, managed)
	default:
		return false
	}
	b.until, b.acts = now.Add(breakerRest), nil
	b.why = "hands off: " + b.why
	return true
}

// heldByUs counts the containers that we hold of our own accord or for an alert. A person who pauses all of them knows
// what for: released, they would be paused again a minute later, and so on.
func (k *Core) heldByUs() (n int) {
	if len(k.holds.byID) == 0 {
		return 0
	}
	asked := map[string]bool{} // by a person
	for _, l := range k.leases.Leases() {
		if l.Wish == lease.Pause && l.By != "" && l.By != byLimit {
			asked[l.Target] = true
		}
	}
	for id := range k.holds.byID {
		if !asked[id] {
			n++
		}
	}
	return n
}

// guardBounds opens and closes the breaker.
func (k *Core) guardBounds() {
	b := &k.breaker
	if !b.until.IsZero() && !k.now.Before(b.until) {
		b.until = time.Time{}
		k.decide(decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "the breaker closes; containers are held again"})
	}
	managed := 0
	for _, c := range k.facts.snap.Containers {
		if k.managed(c) {
			managed++
		}
	}
	b.count(k.now, k.around.EngineCalls)
	if b.judge(k.now, k.config, k.heldByUs(), managed) {
		k.count(BreakerTrips, 1)
		k.decide(decision.Decision{Kind: decision.Service, Result: decision.Failed,
			Reason: fmt.Sprintf("%s; everything is released, and nothing is held for %v", b.why, breakerRest)})
	}
}
