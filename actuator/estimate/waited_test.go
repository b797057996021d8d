package estimate_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/exporter/task"
)

// uses shows the book s seconds in which containers 0 and 1 use so much of the GPU.
func (w *world) uses(s float64, zero, one float64) {
	for i, use := range []float64{zero, one} {
		w.snap.Containers[i].SMUtilization = map[string]float64{"g": use}
	}
	for i := range w.snap.Tasks {
		w.snap.Tasks[i].MemoryUsed = map[string]uint64{"g": 1 << 30}
	}
	for ; s > 1; s-- {
		w.look(1, min(1, zero+one))
	}
	w.look(s, min(1, zero+one))
}

func (w *world) left(t *testing.T, i int) estimate.Length {
	t.Helper()
	one := task.Task{State: task.Running, Start: task.Mark{Time: w.snap.Time}}
	if i >= 0 {
		one = w.snap.Tasks[i]
	}
	l, ok := w.b.Remaining(one, kind, w.snap.Time)
	if !ok {
		t.Fatal("no estimate")
	}
	return l
}

// beside runs a task of container 0 that waits for so long behind one of container 1, and then computes.
func (w *world) beside(waits, computes float64) {
	w.start("0")
	w.start("1")
	w.look(0, 0)
	w.uses(waits, 0, 1)
	w.uses(computes, 1, 0)
	w.end(nil)
	w.end(nil)
}

// What waits behind others gets no longer by it: neither the next run's estimate nor its own rest.
func TestWaitingForTheGPUDoesNotCount(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(3, 1)
	for _, waits := range []float64{2, 5, 9} {
		w.beside(waits, 3)
		if l := w.left(t, -1); l.Remaining != 3*time.Second || l.Total != 3*time.Second {
			t.Errorf("after one that waited %v s: %+v, want 3 s", waits, l)
		}
	}
	w.start("0")
	w.start("1")
	w.look(0, 0)
	w.uses(1, 1, 0)
	w.uses(8, 0, 1)
	if l := w.left(t, 0); l.Remaining != 2*time.Second || l.Total != 3*time.Second || l.Least != 0 {
		t.Errorf("after 1 s of computing and 8 s of waiting: %+v, want 2 s of 3", l)
	}
}

// Of a kind that never had the GPU to itself the shortest run counts, and what the others took without waiting.
func TestNeverAlone(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.beside(1, 3)
	w.beside(6, 3)
	if l := w.left(t, -1); l.Remaining != 4*time.Second {
		t.Errorf("%+v, want the shortest, 4 s", l)
	}
	w.beside(1, 7)
	if l := w.left(t, -1); l.Remaining != 7*time.Second {
		t.Errorf("%+v, want the 7 s of the one that computes for longer", l)
	}
}

// A task that uses little of the GPU when it is alone does not wait while it gets that much.
func TestLittleUseIsNoWaiting(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(4, 0.2)
	w.start("0")
	w.start("1")
	w.look(0, 0)
	w.uses(2, 0.2, 0.8)
	if l := w.left(t, 0); l.Remaining != 2*time.Second {
		t.Errorf("at its own pace: %+v, want 2 s left", l)
	}
	w.uses(2, 0.1, 0.8)
	if l := w.left(t, 0); l.Remaining != time.Second {
		t.Errorf("after 2 s at half its pace: %+v, want 1 s left", l)
	}
}

// Nobody waits for a GPU before it has come there, nor where nobody knows who computes.
func TestWhoHasNotComeDoesNotWait(t *testing.T) {
	for name, change := range map[string]func(*world){
		"holds no memory": func(w *world) { w.snap.Tasks[0].MemoryUsed = nil },
		"not known":       func(w *world) { w.snap.Containers[0].SMUtilization = nil },
		"paused":          func(w *world) { w.snap.Tasks[0].State, w.snap.Tasks[0].StateSince = task.Paused, w.snap.Time },
	} {
		w := newWorld()
		w.snap.Time = t0
		w.alone(4, 1)
		w.start("0")
		w.start("1")
		w.uses(0, 0, 1)
		change(w)
		w.look(3, 1)
		want := time.Second
		if name == "paused" {
			want = 4 * time.Second
		}
		if l := w.left(t, 0); l.Remaining != want {
			t.Errorf("%s: %+v, want %v left", name, l, want)
		}
	}
}

// A request is too short for anybody to see how long it waits: all that it took counts.
func TestRequestsCountWithTheirWaiting(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.snap.Containers[0].Spec.Release = task.ReleaseBusy
	for i := range 5 {
		w.beside(float64(i+1), 1)
	}
	if need, _, _, ok := w.b.Requests(kind); !ok || need != 6*time.Second {
		t.Errorf("%v %v, want 6 s", need, ok)
	}
}
