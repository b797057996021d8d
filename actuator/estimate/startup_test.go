package estimate_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
)

// started runs one task that gets to its first launch after some seconds and then
// takes rest more; beside another one if so told.
func (w *world) started(startup, rest float64, beside bool) {
	id := w.start("0")
	if beside {
		w.start("1")
	}
	w.look(0, 0)
	w.b.Starting(id)
	w.look(startup, 0)
	w.b.Launched(w.snap.Tasks[0], w.snap.Time)
	w.b.Launched(w.snap.Tasks[0], w.snap.Time.Add(time.Hour)) // later launches teach nothing
	w.look(rest, 1)
	w.end(nil)
	if beside {
		w.end(nil)
	}
}

// However long a start-up takes, what comes after it is still to come. Without
// knowing of the launch a slow start-up would pass for progress.
func TestASlowStartIsNoProgress(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for range 4 {
		w.started(2, 3, false)
	}
	id := w.start("0")
	w.look(0, 0)
	got := func() estimate.Length {
		l, ok := w.b.Remaining(w.snap.Tasks[0], kind, w.snap.Time)
		if !ok {
			t.Fatal("no estimate")
		}
		return l
	}
	if l := got(); l.Startup != 0 || l.Remaining != 5*time.Second {
		t.Errorf("before anything was seen of it: %+v", l)
	}
	w.b.Starting(id)
	if l := got(); l.Startup != 2*time.Second || l.Remaining != 5*time.Second || l.Least != 5*time.Second {
		t.Errorf("at its start: %+v", l)
	}
	w.look(4, 0)
	if l := got(); l.Startup != time.Second || l.Remaining != 3*time.Second || l.Least != 3*time.Second || l.Total != 5*time.Second {
		t.Errorf("after 4 s of a start-up of 2 s: %+v", l)
	}
	w.b.Launched(w.snap.Tasks[0], w.snap.Time)
	w.look(1, 1)
	if l := got(); l.Startup != 0 || l.Remaining != 2*time.Second || l.Least != 2*time.Second {
		t.Errorf("a second after its launch: %+v", l)
	}
	w.look(9, 1)
	if l := got(); l.Remaining != 2500*time.Millisecond || l.Least != 0 {
		t.Errorf("longer than ever: %+v", l)
	}
}

// How much longer a start-up takes beside others is learned, and survives a restart.
func TestCrowded(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for range 3 {
		w.started(1, 3, false)
		w.started(2.5, 3, true)
	}
	raw, err := w.b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if w.b, err = estimate.Decode(raw); err != nil {
		t.Fatal(err)
	}
	id := w.start("0")
	w.look(0, 0)
	w.b.Starting(id)
	if l, ok := w.b.Remaining(w.snap.Tasks[0], kind, w.snap.Time); !ok || l.Startup != time.Second || l.Crowded != 1500*time.Millisecond {
		t.Errorf("%+v", l)
	}
}
