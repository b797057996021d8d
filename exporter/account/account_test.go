package account_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/account"
)

var t0 = time.Unix(1_800_000_000, 0)

func energyOf(t account.Totals) float64 {
	sum := t.Idle + t.Unknown
	for _, u := range t.Uses {
		sum += u.Energy
	}
	return sum
}

// Whatever a card says: seconds add up to no more than the wall clock, energy to exactly what its counter
// grew by, and nothing ever shrinks.
func TestSumsNeverExceed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l account.Ledger
		now, counter, grew, has := t0, rapid.Float64Range(0, 1e6).Draw(t, "first"), 0.0, false
		counterBefore := 0.0
		began := time.Time{}
		before := map[string]account.Use{}
		for range rapid.IntRange(1, 40).Draw(t, "facts") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(t, "ms")) * time.Millisecond)
			f := account.Fact{At: now, HasEnergy: rapid.IntRange(0, 9).Draw(t, "silent") > 0}
			reset := rapid.IntRange(0, 19).Draw(t, "reset") == 0
			step := rapid.Float64Range(0, 6000).Draw(t, "joules")
			if reset {
				counter = 0
			}
			counter += step
			f.Energy = counter
			if rapid.IntRange(0, 5).Draw(t, "unknown") > 0 {
				f.Shares = map[string]float64{}
				for _, id := range []string{account.Other, "a", "b", "c"} {
					if rapid.Bool().Draw(t, id+" works") {
						f.Shares[id] = rapid.Float64Range(-0.1, 1.2).Draw(t, id)
					}
				}
			}
			if f.HasEnergy {
				if has { // also where it could not be read in between
					grew += expected(f.Energy, counterBefore)
				}
				has, counterBefore = true, f.Energy
			}
			l.Take(f)
			if began.IsZero() {
				began = now
			}
			totals, seconds := l.Totals(), 0.0
			for _, u := range totals.Uses {
				seconds += u.Seconds
				if old := before[u.Container]; u.Seconds < old.Seconds || u.Energy < old.Energy {
					t.Fatalf("%q shrank: %+v after %+v", u.Container, u, old)
				}
				before[u.Container] = u
			}
			if wall := now.Sub(began).Seconds(); seconds > wall*(1+1e-9) {
				t.Fatalf("%v GPU-seconds in %v s", seconds, wall)
			}
			if got := energyOf(totals); math.Abs(got-grew) > 1e-6*(1+grew) {
				t.Fatalf("%v J given out, the counter grew by %v", got, grew)
			}
		}
	})
}

// expected is what rate() of Prometheus sees between two values of a counter.
func expected(now, before float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

// card is one that draws idle W, and for each container so many W more while it computes.
type card struct {
	l     account.Ledger
	now   time.Time
	joule float64
	idle  float64
	watts map[string]float64
	truth map[string]float64
	secs  map[string]float64
	draws *rand.Rand
	phase float64 // of the time slices, at the driver's last look
	beat  float64 // how far that moves from look to look
}

func newCard(watts map[string]float64) *card {
	return &card{now: t0, idle: 75, watts: watts, truth: map[string]float64{}, secs: map[string]float64{},
		draws: rand.New(rand.NewPCG(1, 1)), beat: 0.17}
}

// run lets a second pass n times. The driver tells the shares as a real one does: each fifth of a second
// it looks who computes, and counts that process. Its looks beat with the time slices.
func (c *card) run(n int, shares map[string]float64) {
	ids := slices.Sorted(maps.Keys(shares))
	for range n {
		told := map[string]float64{}
		c.joule += c.idle
		for _, id := range ids {
			c.joule += shares[id] * c.watts[id]
			c.truth[id] += shares[id] * c.watts[id]
			c.secs[id] += shares[id]
		}
		for range 5 {
			_, c.phase = math.Modf(c.phase + c.beat + 0.05*c.draws.Float64())
			at := c.phase
			for _, id := range ids {
				if at -= shares[id]; at < 0 {
					told[id] += 0.2
					break
				}
			}
		}
		c.now = c.now.Add(time.Second)
		c.l.Take(account.Fact{At: c.now, Energy: c.joule, HasEnergy: true, Shares: told})
	}
}

func (c *card) check(t *testing.T, most float64) {
	t.Helper()
	for _, u := range c.l.Totals().Uses {
		off := math.Abs(u.Energy-c.truth[u.Container]) / c.truth[u.Container]
		t.Logf("%s: %.0f J, truly %.0f: %.1f %% off; %.1f s, truly %.1f", u.Container, u.Energy, c.truth[u.Container], 100*off, u.Seconds, c.secs[u.Container])
		if off > most {
			t.Errorf("%s: %.0f J, truly %.0f: %.1f %% off, want at most %.0f %%", u.Container, u.Energy, c.truth[u.Container], 100*off, 100*most)
		}
		if off := math.Abs(u.Seconds/c.secs[u.Container] - 1); off > 0.05 {
			t.Errorf("%s: %.1f GPU-seconds, truly %.1f", u.Container, u.Seconds, c.secs[u.Container])
		}
	}
}

// Two programs of unequal power side by side: some seconds in which each is alone tell them apart.
func TestUnequalPower(t *testing.T) {
	c := newCard(map[string]float64{"heavy": 550, "light": 180})
	c.run(10, nil)
	c.run(20, map[string]float64{"heavy": 1})
	c.run(20, map[string]float64{"light": 1})
	c.run(240, map[string]float64{"heavy": 0.5, "light": 0.5})
	c.check(t, 0.10)
}

// Changing shares tell too, with nobody ever alone, but less exactly.
func TestUnequalPowerNeverAlone(t *testing.T) {
	c := newCard(map[string]float64{"heavy": 550, "light": 180, "middling": 300})
	c.run(10, nil)
	for range 10 {
		c.run(30, map[string]float64{"heavy": 0.7, "light": 0.1, "middling": 0.2})
		c.run(30, map[string]float64{"heavy": 0.2, "light": 0.7, "middling": 0.1})
		c.run(30, map[string]float64{"heavy": 0.2, "middling": 0.8})
	}
	c.check(t, 0.20)
}

// A program whose power changes is followed.
func TestPowerDrifts(t *testing.T) {
	c := newCard(map[string]float64{"a": 500, "b": 200})
	c.run(10, nil)
	for range 30 {
		c.run(20, map[string]float64{"a": 0.8, "b": 0.2})
		c.run(20, map[string]float64{"a": 0.2, "b": 0.8})
		c.watts["a"] -= 8
	}
	c.check(t, 0.10)
}

func TestIdlePowerIsToldApart(t *testing.T) {
	c := newCard(map[string]float64{"a": 400})
	c.run(10, nil)
	c.run(10, map[string]float64{"a": 1})
	totals := c.l.Totals()
	if want := 75.0 * 19; math.Abs(totals.Idle-want) > 1 { // the first fact has nothing before it
		t.Errorf("idle %v J, want %v", totals.Idle, want)
	}
	if len(totals.Uses) != 1 || math.Abs(totals.Uses[0].Energy-4000) > 1 {
		t.Errorf("uses %+v, want 4000 J of a", totals.Uses)
	}
	if !totals.HasEnergy || !totals.HasSeconds {
		t.Errorf("%+v", totals)
	}
}

// A card that says nothing of its processes has no seconds and gives nobody energy.
func TestSilentCard(t *testing.T) {
	var l account.Ledger
	for i := range 5 {
		l.Take(account.Fact{At: t0.Add(time.Duration(i) * time.Second), Energy: float64(100 * i), HasEnergy: true})
	}
	if got := l.Totals(); got.HasSeconds || got.HasEnergy || len(got.Uses) > 0 || got.Unknown != 400 {
		t.Errorf("%+v", got)
	}
}

// Energy of the time in which the counter could not be read, or a clock was set back, is nobody's, and not lost.
func TestEnergyAcrossAGapIsUnknown(t *testing.T) {
	c := newCard(map[string]float64{"a": 400})
	c.run(3, nil)
	c.run(5, map[string]float64{"a": 1})
	shares := map[string]float64{"a": 1}
	c.now, c.joule = c.now.Add(time.Second), c.joule+475
	c.l.Take(account.Fact{At: c.now, Shares: shares})
	c.run(1, shares)
	totals := c.l.Totals()
	if totals.Unknown != 950 || math.Abs(energyOf(totals)-(c.joule-75)) > 1e-6 {
		t.Errorf("unknown %v J, %v in all; want 950 and %v", totals.Unknown, energyOf(totals), c.joule-75)
	}
	if got := totals.Uses[0].Seconds; math.Abs(got-7) > 1e-6 {
		t.Errorf("%v GPU-seconds, want 7: the samples are known", got)
	}
	c.now = c.now.Add(-time.Minute)
	c.run(1, shares)
	if got := energyOf(c.l.Totals()); math.Abs(got-(c.joule-75)) > 1e-6 {
		t.Errorf("%v J in all after a clock was set back, want %v", got, c.joule-75)
	}
}

// A container that is gone keeps its totals for a while; what it used stays out of the others'.
func TestForget(t *testing.T) {
	c := newCard(map[string]float64{"a": 400, "b": 100})
	c.run(3, nil)
	c.run(3, map[string]float64{"a": 1})
	c.run(3, map[string]float64{"b": 1})
	c.l.Open("b", c.now)
	c.l.Forget(c.now.Add(-time.Second))
	before := c.l.Totals().Uses
	if len(before) != 1 || before[0].Container != "b" {
		t.Fatalf("kept %+v, want b", before)
	}
	c.run(1, map[string]float64{"b": 1})
	if after := c.l.Totals().Uses[0]; math.Abs(after.Seconds-before[0].Seconds-1) > 0.05 || after.Energy <= before[0].Energy {
		t.Errorf("b after a was forgotten: %+v, before %+v", after, before[0])
	}
}
