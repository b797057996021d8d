package account_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/account"
)

// traced is a card whose driver tells whose context was on it. Each program computes so many ms, then does
// something else for so many; the card serves who wants it, first come, first served, in slices of 2 ms.
type traced struct {
	l      account.Ledger
	now    time.Time
	joule  float64
	works  map[string][2]int // ms of computing, ms of something else
	watts  map[string]float64
	secs   map[string]float64
	joules map[string]float64

	left  map[string]int // ms of computing (above 0) or until it wants to compute again (below)
	on    string         // whose context is on the card
	slice int
	draws *rand.Rand
}

func newTraced(works map[string][2]int, watts map[string]float64) *traced {
	return &traced{now: t0, works: works, watts: watts, secs: map[string]float64{}, joules: map[string]float64{},
		left: map[string]int{}, draws: rand.New(rand.NewPCG(1, 1))}
}

// run lets n seconds pass, in steps of 1 ms, while these programs run.
func (c *traced) run(n int, ids ...string) {
	for range n {
		present, samples := map[string]float64{}, map[string]float64{}
		busy, seen := 0, "" // in the fifth of a second that a sample is of
		for ms := range 1000 {
			c.turn(ids)
			if c.on != "" {
				present[c.on] += 1e-3
			}
			c.joule += 0.075
			if c.on != "" && c.left[c.on] > 0 {
				busy++
				if seen == "" || c.draws.IntN(busy) == 0 {
					seen = c.on
				}
				c.secs[c.on] += 1e-3
				c.joules[c.on] += c.watts[c.on] * 1e-3
				c.joule += c.watts[c.on] * 1e-3
				if c.left[c.on]--; c.left[c.on] == 0 {
					c.left[c.on] = -c.works[c.on][1]
				}
			}
			if ms%200 == 199 {
				if busy > 0 {
					samples[seen] += float64(busy) / 1000
				}
				busy, seen = 0, ""
			}
		}
		c.now = c.now.Add(time.Second)
		c.l.Take(account.Fact{At: c.now, Energy: c.joule, HasEnergy: true, Shares: account.Computed(present, samples), Exact: true})
	}
}

// turn decides whose the next millisecond is.
func (c *traced) turn(ids []string) {
	for _, id := range ids {
		switch {
		case c.left[id] < 0:
			c.left[id]++
		case c.left[id] == 0:
			c.left[id] = c.works[id][0]
		}
	}
	if c.slice--; c.on != "" && c.left[c.on] > 0 && c.slice > 0 {
		return
	}
	for i := range ids {
		next := ids[(index(ids, c.on)+1+i)%len(ids)]
		if c.left[next] > 0 {
			c.on, c.slice = next, 2
			return
		}
	}
}

func index(ids []string, id string) int {
	for i := range ids {
		if ids[i] == id {
			return i
		}
	}
	return -1
}

func (c *traced) check(t *testing.T, seconds, energy float64) {
	t.Helper()
	for _, u := range c.l.Totals().Uses {
		off, joules := u.Seconds/c.secs[u.Container]-1, u.Energy/c.joules[u.Container]-1
		t.Logf("%s: %.2f s, truly %.2f (%+.1f %%); %.0f J, truly %.0f (%+.1f %%)", u.Container, u.Seconds, c.secs[u.Container], 100*off,
			u.Energy, c.joules[u.Container], 100*joules)
		if math.Abs(off) > seconds {
			t.Errorf("%s: %.2f GPU-seconds, truly %.2f", u.Container, u.Seconds, c.secs[u.Container])
		}
		if math.Abs(joules) > energy {
			t.Errorf("%s: %.0f J, truly %.0f", u.Container, u.Energy, c.joules[u.Container])
		}
	}
}

// Who always wants the card gets what it has, however the samples fall.
func TestPresenceOfTwoThatAlwaysCompute(t *testing.T) {
	c := newTraced(map[string][2]int{"heavy": {1, 0}, "light": {1, 0}}, map[string]float64{"heavy": 550, "light": 180})
	c.run(10)
	c.run(10, "heavy")
	c.run(10, "light")
	c.run(60, "heavy", "light")
	c.check(t, 0.01, 0.03)
}

// A server's requests beside a trainer: the trainer never leaves the card idle.
func TestPresenceOfAServerBesideATrainer(t *testing.T) {
	c := newTraced(map[string][2]int{"server": {3, 27}, "trainer": {1, 0}}, map[string]float64{"server": 300, "trainer": 500})
	c.run(10)
	c.run(10, "trainer")
	c.run(10, "server")
	c.run(60, "server", "trainer")
	c.check(t, 0.05, 0.06)
}

// Two that leave the card idle for much of the time: whose context stays on it is an accident.
func TestPresenceWhereTheCardIsIdle(t *testing.T) {
	c := newTraced(map[string][2]int{"a": {30, 97}, "b": {10, 83}}, map[string]float64{"a": 400, "b": 400})
	c.run(10)
	c.run(300, "a", "b")
	c.check(t, 0.10, 0.10)
}

// Whatever is present and whatever the samples say: nobody computed longer than it was present, and who is
// absent did not compute.
func TestNobodyComputesWhileAbsent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples, present := map[string]float64{}, map[string]float64{}
		for _, id := range []string{account.Other, "a", "b", "c"} {
			if rapid.Bool().Draw(t, id+" is seen") {
				samples[id] = rapid.Float64Range(-0.1, 1.2).Draw(t, id+" of the samples")
			}
			if rapid.Bool().Draw(t, id+" is present") {
				present[id] = rapid.Float64Range(-0.1, 1).Draw(t, id)
			}
		}
		for id, share := range account.Computed(present, samples) {
			if most := max(0, present[id]); share > most+1e-9 || share < 0 {
				t.Fatalf("%q computed %v of the time, and was there for %v", id, share, most)
			}
		}
	})
}
