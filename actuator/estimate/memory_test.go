package estimate_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/exporter/task"
)

func TestMemory(t *testing.T) {
	w := newWorld()
	if _, ok := w.b.Memory(kind); ok {
		t.Error("known without a run")
	}
	for _, peak := range []uint64{9, 3, 4, 5, 4, 3, 3, 3, 3} { // the first one is forgotten
		w.start("0")
		for _, n := range []uint64{1, peak, 2} {
			w.snap.Tasks[0].MemoryUsed = map[string]uint64{"g0": n, "g1": 1}
			w.look(1, 1)
		}
		w.end(nil)
	}
	if n, ok := w.b.Memory(kind); !ok || n != 5 {
		t.Errorf("%d %v", n, ok)
	}
	raw, err := w.b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := estimate.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := again.Memory(kind); !ok || n != 5 {
		t.Errorf("after a restart: %d %v", n, ok)
	}
	w.start("0") // gone before the device listed it
	w.look(0, 0)
	w.end(func(t *task.Task) { t.MemoryUsed = nil }) // nothing to see
	if n, _ := w.b.Memory(kind); n != 5 {
		t.Errorf("one without memory changed it to %d", n)
	}
}

func TestSwapCost(t *testing.T) {
	var s estimate.Swaps
	first := s.Cost(13e9)
	if first < 5*time.Second || first > 8*time.Second {
		t.Errorf("%v at first", first)
	}
	for range 20 {
		s.Out(10e9, 10*time.Second)
		s.In(10e9, 5*time.Second)
		s.Out(1, time.Hour) // says nothing
	}
	if c := s.Cost(1e9); c < 1800*time.Millisecond || c > 2*time.Second {
		t.Errorf("%v, want 1 s and 0.5 s and the setup", c)
	}
	if s.Cost(0) <= 0 {
		t.Error("a swap costs something")
	}
}
