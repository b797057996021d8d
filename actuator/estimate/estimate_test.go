package estimate_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/exporter/task"
)

var (
	t0   = time.Unix(1_700_000_000, 0)
	kind = estimate.Kind{Image: "train", CommandID: "python a.py"}
)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

// world is an exporter whose tasks last as they are told to.
type world struct {
	b    *estimate.Book
	snap task.Snapshot
	n    int
}

func newWorld() *world {
	w := &world{b: estimate.New()}
	w.snap = task.Snapshot{Health: task.Health{DeviceUp: true}, GPUs: []task.GPU{{UUID: "g"}}}
	for i, k := range []estimate.Kind{kind, {Image: "other"}} {
		w.snap.Containers = append(w.snap.Containers, task.Container{ID: fmt.Sprint(i), Image: k.Image, CommandID: k.CommandID})
	}
	return w
}

func (w *world) start(container string) string {
	w.n++
	id := fmt.Sprint("t", w.n)
	w.snap.Tasks = append(w.snap.Tasks, task.Task{ID: id, ContainerID: container, GPUs: []string{"g"}, State: task.Running, Start: task.Mark{Time: w.snap.Time}})
	return id
}

// look shows the book the world s seconds later.
func (w *world) look(s, use float64) {
	w.snap.Time = w.snap.Time.Add(time.Duration(s * float64(time.Second)))
	w.snap.GPUs[0].Utilization = task.Ratio(use)
	shot := w.snap
	w.b.Observe(&shot)
	w.b.Observe(&shot) // again: it teaches nothing
}

func (w *world) end(change func(*task.Task)) {
	t := w.snap.Tasks[0]
	w.snap.Tasks = w.snap.Tasks[1:]
	t.State, t.End = task.Ended, &task.Mark{Time: w.snap.Time}
	if change != nil {
		change(&t)
	}
	w.snap.Ended = append([]task.Task{t}, w.snap.Ended...)
	w.look(0, 0)
}

// alone runs one task of s seconds.
func (w *world) alone(s, use float64) {
	w.start("0")
	w.look(0, 0)
	w.look(s, use)
	w.end(nil)
}

func TestRemaining(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	if _, ok := w.b.Remaining(task.Task{}, kind, t0); ok {
		t.Error("an estimate without history")
	}
	for i := range 10 {
		w.alone(float64(i+1), 1)
	}
	fresh := task.Task{State: task.Running, Start: task.Mark{Time: t0}}
	near := func(d time.Duration, s float64) bool { return math.Abs(d.Seconds()-s) < 1e-6 }
	for _, tt := range []struct{ ran, left, least, total float64 }{{0, 9, 1, 9}, {5, 5, 1, 9}, {9.5, 0.5, 0.5, 9.5}, {20, 5, 0, 20}} {
		l, ok := w.b.Remaining(fresh, kind, at(tt.ran))
		if !ok || !near(l.Remaining, tt.left) || !near(l.Least, tt.least) || !near(l.Total, tt.total) {
			t.Errorf("after %v s: %+v, want %+v", tt.ran, l, tt)
		}
	}
	if _, ok := w.b.Remaining(fresh, estimate.Kind{Image: "other"}, t0); ok {
		t.Error("another image's history was used")
	}
}

func TestTimeStandingStillDoesNotCount(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.start("0")
	w.look(0, 0)
	w.look(9, 1)
	w.end(func(t *task.Task) { t.PausedSeconds, t.HeldSeconds = 4, 2 })
	if l, _ := w.b.Remaining(task.Task{Start: task.Mark{Time: t0}}, kind, t0); l.Remaining != 3*time.Second {
		t.Errorf("%+v, want 3s left", l)
	}
	paused := task.Task{Start: task.Mark{Time: t0}, State: task.Paused, StateSince: at(1)}
	if l, _ := w.b.Remaining(paused, kind, at(60)); l.Remaining != 2*time.Second {
		t.Errorf("of one that is paused: %+v, want 2s left", l)
	}
}

func TestLostAndStrangeTasksTeachNothing(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.start("0")
	w.look(5, 1)
	w.end(func(t *task.Task) { t.State = task.Lost })
	w.start("no such container")
	w.look(5, 1)
	w.end(nil)
	if _, ok := w.b.Remaining(task.Task{}, kind, t0); ok || w.b.Changed() {
		t.Error("something was learned")
	}
}

// One that had the GPU to itself while it started up, and not while it computed, is
// not taken for one that does not use it.
func TestDemandOfAPart(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	part := func(alone float64) {
		w.start("0")
		w.look(0, 0)
		w.look(2, alone)
		w.start("1")
		w.look(0, alone)
		w.look(3, 1)
		w.end(nil)
		w.end(nil)
	}
	part(0)
	if d, ok := w.b.Demand(kind); ok {
		t.Errorf("%v, of which nobody can know", d)
	}
	part(1)
	if d, ok := w.b.Demand(kind); !ok || d != 1 {
		t.Errorf("%v %v, want 1: it was seen to use all", d, ok)
	}
}

func TestDemand(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	if _, ok := w.b.Demand(kind); ok {
		t.Error("a demand out of nothing")
	}
	w.alone(0.3, 1) // too short for a sample that shows it
	if _, ok := w.b.Demand(kind); ok {
		t.Error("learned from a sample that was too early")
	}
	w.alone(2, 0.3)
	if d, ok := w.b.Demand(kind); !ok || d != 0.3 {
		t.Errorf("%v %v, want 0.3", d, ok)
	}
	if m, ok := w.b.Mean(kind); !ok || m < 0.29 || m > 0.31 {
		t.Errorf("mean %v %v, want 0.3", m, ok)
	}
	// Beside others the same work takes longer: it does not share well.
	for range 2 {
		w.alone(2, 0.3)
	}
	for range 2 {
		w.start("0")
		w.start("1")
		w.look(0, 0)
		w.look(4, 0.6)
		w.end(nil)
		w.end(nil)
	}
	if d, ok := w.b.Demand(kind); !ok || d != 1 {
		t.Errorf("%v %v, want 1: it was measured to be slower beside others", d, ok)
	}
	if l, _ := w.b.Remaining(task.Task{Start: task.Mark{Time: t0}}, kind, t0); l.Remaining != 2*time.Second {
		t.Errorf("%+v: what ran beside others must not count where others ran alone", l)
	}
}

func TestKeptAcrossARestart(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.alone(3, 0.4)
	if !w.b.Changed() {
		t.Error("nothing to keep")
	}
	raw, err := w.b.Encode()
	if err != nil || !w.b.Changed() {
		t.Fatal(err, "or what is not yet on disk counts as written")
	}
	if w.b.Written(); w.b.Changed() {
		t.Error("what is on disk is written again")
	}
	again, err := estimate.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := again.Remaining(task.Task{Start: task.Mark{Time: t0}}, kind, t0)
	if d, ok2 := again.Demand(kind); !ok || !ok2 || l.Remaining != 3*time.Second || d != 0.4 {
		t.Error(l, d)
	}
	for _, bad := range []string{"", "{", `{"a":1}`} {
		if b, err := estimate.Decode([]byte(bad)); err == nil || b == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBounded(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	for i := range 700 {
		w.snap.Containers[0].CommandID = fmt.Sprint(i)
		w.snap.Ended = nil
		w.alone(1, 1)
	}
	raw, _ := w.b.Encode()
	if len(raw) > 100_000 {
		t.Errorf("%d bytes", len(raw))
	}
	for i, want := range map[int]bool{0: false, 699: true} {
		if _, ok := w.b.Remaining(task.Task{}, estimate.Kind{Image: "train", CommandID: fmt.Sprint(i)}, t0); ok != want {
			t.Errorf("kind %d is known: %v", i, ok)
		}
	}
}

// Whatever ended: an estimate is never negative, and never shorter for the whole
// than for the rest.
func TestEstimatesMakeSense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.snap.Time = t0
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			w.alone(rapid.Float64Range(0, 100).Draw(t, "length"), rapid.Float64Range(0, 1).Draw(t, "use"))
		}
		state := rapid.SampledFrom(task.UnfinishedStates).Draw(t, "state")
		one := task.Task{State: state, Start: task.Mark{Time: t0}, StateSince: at(rapid.Float64Range(0, 50).Draw(t, "since")),
			PausedSeconds: task.Seconds(rapid.Float64Range(0, 50).Draw(t, "paused"))}
		l, ok := w.b.Remaining(one, kind, at(rapid.Float64Range(0, 200).Draw(t, "now")))
		if d, known := w.b.Demand(kind); !ok || l.Least < 0 || l.Remaining < l.Least || l.Total < l.Remaining || (known && (d < 0 || d > 1)) {
			t.Fatal(l, ok, d)
		}
	})
}

// Runs beside others say how long a task may take, not how short it can be.
func TestRunsBesideOthersGiveNobodyUp(t *testing.T) {
	w := newWorld()
	w.snap.Time = t0
	w.start("0")
	w.start("0")
	w.look(0, 0)
	w.look(7, 1)
	w.end(nil)
	w.end(nil)
	l, ok := w.b.Remaining(task.Task{State: task.Running, Start: task.Mark{Time: t0}}, kind, t0)
	if !ok || l.Remaining != 7*time.Second || l.Least != 0 {
		t.Errorf("%+v %v, want 7 s at most and nothing at least", l, ok)
	}
	w.alone(3, 1)
	if l, _ = w.b.Remaining(task.Task{State: task.Running, Start: task.Mark{Time: w.snap.Time}}, kind, w.snap.Time); l.Least != 3*time.Second {
		t.Errorf("after a run alone: %+v, want 3 s at least", l)
	}
}
