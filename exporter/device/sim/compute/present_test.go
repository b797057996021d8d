package compute_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// A context stays on the unit while it is idle, until another one comes; in a switch none is there.
func TestContextStaysUntilAnotherComes(t *testing.T) {
	const a, b = compute.Owner(1), compute.Owner(2)
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	u := compute.NewUnit(2*time.Millisecond, 500*time.Microsecond)
	u.Advance(at(0))
	u.Launch(at(10), a, 10*time.Millisecond)
	u.Launch(at(50), b, 10*time.Millisecond)
	u.Advance(at(100))
	if got := u.Present(); got[a] != 40*time.Millisecond || got[b] != 50*time.Millisecond {
		t.Errorf("present %v, want a from 10 to 50 and b from then on", got)
	}
	if got := u.Came(); got[a] != 1 || got[b] != 1 {
		t.Errorf("they came %v, want once each", got)
	}
	u.Launch(at(100), a, 4*time.Millisecond)
	u.Launch(at(100), b, 4*time.Millisecond)
	u.Advance(at(200))
	all := u.Present()[a] + u.Present()[b]
	if away := 190*time.Millisecond - all; away <= 0 || away > 5*time.Millisecond {
		t.Errorf("no context for %v in the switches between two that want the unit", away)
	}
}
