package estimate_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

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

// startBoth starts a task in each container.
func (w *world) startBoth() {
	w.start("0")
	w.start("1")
	w.look(0, 0)
}

// beside runs a task of container 0 that waits for so long behind one of container 1, and then computes.
func (w *world) beside(waits, computes float64) {
	w.startBoth()
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
	w.startBoth()
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
	w.startBoth()
	w.uses(2, 0.2, 0.8)
	if l := w.left(t, 0); l.Remaining != 2*time.Second {
		t.Errorf("at its own pace: %+v, want 2 s left", l)
	}
	w.uses(2, 0.1, 0.8)
	if l := w.left(t, 0); l.Remaining != time.Second {
		t.Errorf("after 2 s at half its pace: %+v, want 1 s left", l)
	}
}

// The same of a kind that was never alone: nobody takes a little use for waiting that never was more.
func TestLittleUseThatWasNeverAlone(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for _, takes := range []float64{5, 10, 10, 10} {
		w.startBoth()
		w.uses(takes, 0.1, 0.9)
		w.end(nil)
		w.end(nil)
	}
	if l := w.left(t, -1); l.Remaining != 10*time.Second {
		t.Errorf("%+v, want 10 s", l)
	}
}

// Others that leave most of the GPU idle keep nobody waiting for longer than they compute.
func TestOthersThatAreIdleKeepNobodyWaiting(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(4, 1)
	w.startBoth()
	w.uses(2, 0, 0.25)
	if l := w.left(t, 0); l.Remaining != 2500*time.Millisecond {
		t.Errorf("%+v, want 2.5 s left: it waited half a second", l)
	}
}

// Nobody waits for a GPU before it has come there, nor where nobody knows who computes, nor while it is paused.
func TestWhoHasNotComeDoesNotWait(t *testing.T) {
	for name, change := range map[string]func(*world){
		"holds no memory":  func(w *world) { w.snap.Tasks[0].MemoryUsed = nil },
		"not known":        func(w *world) { w.snap.Containers[0].SMUtilization = nil },
		"several GPUs":     func(w *world) { w.snap.Tasks[0].GPUs = []string{"g", "h"} },
		"nobody looked":    func(w *world) { w.snap.Tasks[0].Start.Time = t0.Add(-time.Hour); w.snap.Time = t0.Add(time.Hour) },
		"paused":           func(w *world) { w.snap.Tasks[0].State, w.snap.Tasks[0].StateSince = task.Paused, w.snap.Time },
		"the other paused": func(w *world) { w.snap.Tasks[1].State, w.snap.Tasks[1].StateSince = task.Paused, w.snap.Time },
	} {
		w := newWorld()
		w.snap.Time = t0
		w.alone(12, 1)
		w.start("0")
		w.start("1")
		w.uses(0, 0, 1)
		w.look(1, 1) // 1 s of waiting
		change(w)
		w.look(3, 1)
		want := 9 * time.Second // 12 − 4 + 1
		switch name {
		case "paused":
			w.snap.Tasks[0].State, w.snap.Tasks[0].PausedSeconds = task.Running, 3
			w.look(0, 1)
			w.look(2, 1) // 2 s more of waiting
			want = 12 * time.Second
		case "nobody looked":
			want = w.snap.Time.Sub(w.snap.Tasks[0].Start.Time)/4 - 6*time.Second/4 // what passed counts as work, but for 1 + 5 s
		}
		if l := w.left(t, 0); (l.Remaining - want).Abs() > time.Microsecond {
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

// Who may have waited is not late for it: the least is no longer than the rest.
func TestWaitingMakesNobodyLate(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for range 19 {
		w.alone(3, 1)
	}
	w.alone(10, 1)
	w.startBoth()
	w.uses(2, 0, 1)
	w.uses(2, 1, 0)
	if l := w.left(t, 0); l.Remaining != time.Second || l.Least > l.Remaining {
		t.Errorf("%+v, want 1 s left, and no more at least", l)
	}
}

// A short one among long ones of its kind stays in time while it waits: it may be the short one still.
func TestWaitingMakesNobodyLong(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for range 3 {
		w.alone(0.5, 1)
		w.alone(4, 1)
	}
	w.startBoth()
	w.uses(1, 0, 1)
	if l := w.left(t, 0); l.Least != 0 {
		t.Errorf("%+v after 1 s of waiting, want nothing at least: it may take 0.5 s", l)
	}
	w.uses(1, 1, 0)
	if l := w.left(t, 0); l.Least != 2*time.Second {
		t.Errorf("%+v after 1 s more of computing, want 2 s at least of the 4: it may not have waited", l)
	}
}

// A run beside others bounds how short a task can be: it was no longer than that without them.
func TestRunsBesideOthersShowThatATaskCanBeShort(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(30, 1) // a cold start
	w.beside(1, 2)
	if l := w.left(t, -1); l.Least != 3*time.Second {
		t.Errorf("%+v, want 3 s at least", l)
	}
}

// What an actuator that starts late has not seen of a task may have been waiting.
func TestWhatNobodySawMayHaveBeenWaiting(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(3, 1)
	w.start("0")
	w.snap.Time = w.snap.Time.Add(10 * time.Second) // the actuator is away
	w.look(0, 1)
	if l := w.left(t, 0); l.Remaining != 3*time.Second {
		t.Errorf("%+v, want the whole 3 s left", l)
	}
	w.look(2, 1)
	w.end(nil)
	if l := w.left(t, -1); l.Remaining != 3*time.Second || l.Total != 3*time.Second {
		t.Errorf("after its end: %+v, want 3 s", l)
	}
}

// Whatever is waited for: no estimate is negative, none is longer for the least than for the rest, and none of the whole
// shorter than the rest.
func TestEstimatesOfWaitersMakeSense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.snap.Time = t0
		part := func(name string) float64 { return rapid.Float64Range(0, 1).Draw(t, name) }
		for range rapid.IntRange(0, 3).Draw(t, "alone") {
			w.alone(10*part("length"), part("use"))
		}
		for range rapid.IntRange(1, 3).Draw(t, "beside others") {
			w.beside(20*part("waits"), 10*part("computes"))
		}
		w.startBoth()
		for range rapid.IntRange(0, 4).Draw(t, "looks") {
			own := part("own")
			w.uses(5*part("passes"), own, (1-own)*part("others"))
		}
		l, ok := w.b.Remaining(w.snap.Tasks[0], kind, w.snap.Time)
		if !ok || l.Least < 0 || l.Least > l.Remaining || l.Remaining > l.Total {
			t.Fatal(l, ok)
		}
	})
}
