package estimate_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/exporter/task"
)

// request lets the server of container 0 have one of 20 ms, and rest.
func (w *world) request(rest float64) {
	w.start("0")
	w.look(0, 0)
	w.look(0.02, 1)
	w.end(nil)
	w.look(rest, 0)
}

func TestRequests(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.snap.Containers[0].Spec = task.Spec{Managed: true, Release: task.ReleaseBusy}
	for range 3 {
		w.request(0.08)
	}
	if _, _, _, ok := w.b.Requests(kind); ok {
		t.Error("an estimate of two times between requests")
	}
	// The exporter begins anew, by another clock: what lies between is no time between requests.
	w.snap.Time, w.snap.Ended = at(9), nil
	for range 20 {
		w.request(0.18)
	}
	w.request(0.03)
	w.request(0)
	need, every, usual, ok := w.b.Requests(kind)
	if !ok || need.Round(time.Millisecond) != 20*time.Millisecond || every.Round(time.Millisecond) != 100*time.Millisecond {
		t.Errorf("%v each %v, %v; want 20ms and the shorter ones of 0.05 to 0.2 s", need, every, ok)
	}
	if usual.Round(time.Millisecond) != 185*time.Millisecond {
		t.Errorf("%v apart, want the mean of 2 × 0.1, 20 × 0.2 and 0.05 s", usual)
	}
	raw, err := w.b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := estimate.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if n, e, u, ok := again.Requests(kind); !ok || n != need || e != every || u != usual {
		t.Errorf("after a restart: %v each %v, %v", n, e, ok)
	}
	if _, _, _, ok := w.b.Requests(estimate.Kind{Image: "other"}); ok {
		t.Error("another image's history was used")
	}
}

func TestLatestOfAnImage(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	if k := w.b.Latest("train"); k != (estimate.Kind{Image: "train"}) {
		t.Errorf("%v without history", k)
	}
	if whole, known := w.b.Whole(w.b.Latest("train")); known {
		t.Errorf("%v without history", whole)
	}
	w.alone(3, 1)
	w.snap.Containers[0].CommandID = "python b.py"
	w.alone(9, 1)
	k := w.b.Latest("train")
	whole, known := w.b.Whole(k)
	if k.CommandID != "python b.py" || !known || whole != 9*time.Second {
		t.Errorf("%v of %v, %v", whole, k, known)
	}
}
