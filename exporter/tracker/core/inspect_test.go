package core_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
)

// A process is looked at again and again while it is likely to be stopped or let
// go, and now and then afterwards.
func TestInspect(t *testing.T) {
	const calm = 500 * time.Millisecond
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	looks := func(s float64) int { return len(w.m.ToInspect(at(s), calm)) }
	if n := looks(0.5); n != 0 || w.m.Restless(at(0.5)) {
		t.Errorf("without a task %d processes are looked at, restless %v", n, w.m.Restless(at(0.5)))
	}
	w.sense(1, pid, sensor.ContextMade)
	for _, step := range []struct {
		name     string
		at       float64
		stop     bool // its state before the look
		due      int
		restless bool
	}{
		{"young", 1.1, false, 1, true},
		{"young, again", 1.2, false, 1, true},
		{"no longer young, looked at long ago", 11.1, false, 1, false},
		{"a moment later", 11.2, false, 0, false},
		{"when calm is over", 11.6, false, 1, false},
		{"stopped", 12.2, true, 1, true},
		{"still stopped, much later", 99, true, 1, true},
		{"still stopped, a moment later", 99.1, true, 1, true},
		{"just let go", 99.2, false, 1, true},
		{"let go long ago", 110, false, 1, false},
		{"and seen then", 110.1, false, 0, false},
	} {
		if known, ok := w.m.Known(pid); ok {
			w.m.Stopped(known.Identity, step.stop, at(step.at))
		}
		if got := looks(step.at); got != step.due {
			t.Errorf("%s: %d processes are due, want %d", step.name, got, step.due)
		}
		if got := w.m.Restless(at(step.at)); got != step.restless {
			t.Errorf("%s: restless is %v", step.name, got)
		}
	}
}
