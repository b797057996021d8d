package ladder_test

import (
	"math"
	"testing"
	"time"
)

// Programs that wait for each step leave the rest of their slices, those with long ones the
// most. Each gets its share all the same, if its steps are longer than its slices.
func TestSharesOfProgramsThatWaitForTheirSteps(t *testing.T) {
	shares := map[string]float64{"a": 0.1, "b": 0.3, "c": 0.6}
	for _, step := range []time.Duration{6 * ms, 10 * ms, 16 * ms, 26 * ms, 100 * ms} {
		var all []*actor
		for _, id := range []string{"a", "b", "c"} {
			a := trainer(id, step, 500*time.Microsecond)
			a.tenant.Share = shares[id]
			all = append(all, a)
		}
		w := newWorld(true, all...)
		w.lags = true
		f := w.during(20*time.Second, 40*time.Second)
		if w.err != "" {
			t.Error(w.err)
		}
		for id, share := range shares {
			part := f.got[id].Seconds() / f.useful.Seconds()
			if math.Abs(part-share) > 0.03 {
				t.Errorf("steps of %v: %s has %.1f %% of what all had, its share is %.0f %%", step, id, 100*part, 100*share)
			}
		}
	}
}

// Who leaves its share gets no longer slices for that.
func TestWhoLeavesItsShareIsNotGivenMore(t *testing.T) {
	story(t).
		At("0s", Task("a", Share(0.6), Got("0s")), Task("b", Share(0.3), Got("0s"))).
		At("1s", Change("a", Got("100ms")), Change("b", Got("800ms"))).
		At("2s", Change("a", Got("200ms")), Change("b", Got("1600ms"))).
		Expect(SliceWithin("a", "10ms", "25ms"))
}

// The driver's samples beat with the slices, so that they say little about who got what of a second.
func TestSharesAreNotCorrectedBySamples(t *testing.T) {
	story(t).
		At("0s", Task("a", Share(0.2), Sampled("0s")), Task("b", Share(0.8), Sampled("0s"))).
		Expect(Slice("a", "4ms"), Slice("b", "16ms")).
		At("1s", Change("a", Sampled("800ms")), Change("b", Sampled("200ms"))).
		At("2s", Change("a", Sampled("1600ms")), Change("b", Sampled("400ms"))).
		Expect(Slice("a", "4ms"), Slice("b", "16ms"))
}
