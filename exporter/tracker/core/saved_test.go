package core_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// restart returns a world whose core was restored from what w's core
// would have stored; alive says which PIDs still live.
func (w *world) restart(s float64, alive ...int) *world {
	c := w.m.TakeChanges()
	state := core.State{Alive: at(s - 1), Overrides: map[string]core.Override{}}
	for _, o := range c.Open {
		state.Open = append(state.Open, o)
	}
	for _, t := range c.Ended {
		state.Ended = append(state.Ended, t)
	}
	for id, o := range c.Overrides {
		if o != nil {
			state.Overrides[id] = *o
		}
	}
	n := newWorld(w.t, w.uuids...)
	n.on = w.on
	n.m.Restore(state, func(pid int, want string) (core.Subject, bool) {
		for _, p := range alive {
			if p == pid {
				return core.Subject{Process: sensor.Process{PID: pid, Identity: want}, Container: id(web)}, true
			}
		}
		return core.Subject{}, false
	}, at(s))
	return n
}

func begun(t *testing.T) *world {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.list(2, gpuA, pid)
	return w
}

func TestRestartGoesOn(t *testing.T) {
	w := begun(t)
	before := w.one()
	w = w.restart(20, pid)
	after := w.one()
	if after.ID != before.ID || !after.Start.Time.Equal(before.Start.Time) || !after.Deadline.Equal(before.Deadline) {
		t.Errorf("restart changed the task:\n%+v\n%+v", before, after)
	}
	w.run(21, web, nil)
	w.read(22)
	if got := w.one(); got.ID != before.ID || got.GPUs[0] != gpuA {
		t.Errorf("after the first reading: %+v", got)
	}
	w.exit(25, pid)
	if got := w.last(); got.State != task.Ended || got.Outcome() != task.Miss {
		t.Errorf("end: %+v", got)
	}
	if n := w.count(core.Began, ""); n != 0 {
		t.Error("the task was counted as begun a second time")
	}
}

func TestRestartBeforeItWasListed(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w = w.restart(2, pid)
	w.read(3)
	w.one()
	w.list(4, gpuA, pid)
	w.one()
}

func TestLost(t *testing.T) {
	tests := []struct {
		name string
		play func(w *world) *world
		end  float64
	}{
		{"the process is gone", func(w *world) *world { return w.restart(20) }, 20},
		{"it left the list while nobody looked", func(w *world) *world {
			w = w.restart(20, pid)
			w.list(21, gpuA)
			return w
		}, 21},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := tt.play(begun(t))
			got := w.last()
			if got.State != task.Lost || got.Outcome() != task.LostOutcome || got.End.Source != task.SourceRestart {
				t.Errorf("task: %+v", got)
			}
			same(t, "end", got.End.Time, at(tt.end))
			if b := float64(got.End.ErrorBound); b != tt.end-19 {
				t.Errorf("error bound %v, want the time since the exporter was last alive", b)
			}
			if n := w.count(core.Ended, ""); n != 1 {
				t.Errorf("the loss was told %d times", n)
			}
		})
	}
}

// A task is not lost because the list of its GPU cannot be read, or its GPU answers
// nothing at all, when the exporter comes back.
func TestRestartWhileItsGPUDoesNotAnswer(t *testing.T) {
	for name, silence := range map[string]func(w *world){
		"its list cannot be read":      func(w *world) { w.fail[gpuA] = errDriver },
		"it is not in the reading yet": func(w *world) { w.uuids = []string{gpuB} },
	} {
		t.Run(name, func(t *testing.T) {
			w := begun(t)
			before := w.one()
			w = w.restart(20, pid)
			w.run(20, web, nil)
			silence(w)
			for s := 21.0; s < 60; s++ {
				w.read(s)
			}
			w.one()
			w.uuids, w.fail = []string{gpuA, gpuB}, nil
			w.read(61)
			if got := w.one(); got.ID != before.ID || !got.Deadline.Equal(before.Deadline) {
				t.Errorf("after the restart %+v, before it %+v", got, before)
			}
			w.list(62, gpuA)
			if got := w.last(); got.State != task.Ended {
				t.Errorf("end: %+v", got)
			}
		})
	}
}

func TestRestartWhilePaused(t *testing.T) {
	w := begun(t)
	w.event(3, container.Paused, web)
	w = w.restart(20, pid)
	w.m.Stopped(identity(pid), true, at(20.5)) // the engine has not answered yet
	w.m.Stopped(identity(pid), false, at(20.6))
	if got := w.one(); got.State != task.Paused {
		t.Errorf("state %s", got.State)
	}
	c := newContainer(web, map[string]string{task.LabelDeadline: "9s"})
	w.m.Containers([]container.Container{c}, at(23)) // unpaused meanwhile
	if got := w.one(); got.State != task.Running || got.PausedSeconds != 20 {
		t.Errorf("state %s after %v s of pause, want running after 20", got.State, got.PausedSeconds)
	}
}

// One that exits while the exporter comes back is not lost: its end is about to be told.
func TestExitAtARestart(t *testing.T) {
	w := begun(t).restart(20, pid)
	w.vanish(21, gpuA, pid)
	w.one()
	w.sense(20.9, pid, sensor.Exiting)
	if got := w.last(); got.State != task.Ended || !got.End.Time.Equal(at(20.9)) {
		t.Errorf("it ended so: %+v, %+v", got, *got.End)
	}
}

// A context call of a restored task that is read after the process's end makes no second task.
func TestLateContextOfARestoredTask(t *testing.T) {
	w := begun(t)
	var state core.State
	for _, o := range w.m.TakeChanges().Open {
		state.Open = append(state.Open, o)
	}
	subject := core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Container: id(web), Started: time.Second}
	w = newWorld(t)
	w.m.Restore(state, func(int, string) (core.Subject, bool) { return subject, true }, at(20))
	w.run(21, web, nil)
	w.list(22, gpuA, pid)
	w.exit(25, pid)
	w.m.MeetGone(subject, at(25.1))
	w.m.Sensor(subject.Process, sensor.Event{PID: pid, Kind: sensor.ContextMade, Time: at(24.9), Source: task.SourceUprobe})
	w.tick(at(27))
	if n := w.count(core.Ended, ""); n != 1 {
		t.Errorf("%d tasks have ended, want 1", n)
	}
}

func TestHistoryAndDeadlinesSurvive(t *testing.T) {
	w := begun(t)
	w.m.Change(id(web), due(5), at(2))
	w.exit(3, pid)
	want := w.last()
	w = w.restart(20)
	s := w.snapshot()
	if len(s.Ended) != 1 || s.Ended[0].ID != want.ID {
		t.Errorf("history: %+v", s.Ended)
	}
	w.run(21, web, nil)
	if d := w.snapshot().Containers[0].Spec.Deadline; d != 5 {
		t.Errorf("deadline %v, want 5", d)
	}
	if n := w.count(core.Ended, ""); n != 0 {
		t.Error("an old end was told again")
	}
}

func TestMergeKeepsTheLatest(t *testing.T) {
	w := begun(t)
	c := w.m.TakeChanges()
	w.exit(3, pid)
	c.Merge(w.m.TakeChanges())
	if len(c.Open) != 0 || len(c.Ended) != 1 {
		t.Errorf("merged: %d open, %d ended; want the end alone", len(c.Open), len(c.Ended))
	}
}

// Changes that wait for a disk that is full do not grow with each task that comes and goes.
func TestMergedChangesAreBounded(t *testing.T) {
	w := begun(t)
	stored := w.one().ID // begun before the disk was full
	w.m.TakeChanges()
	var waiting core.Changes
	w.exit(3, pid)
	for i := range 1000 {
		s := 4 + float64(i)
		w.meet(pid, web)
		w.sense(s, pid, sensor.ContextMade)
		waiting.Merge(w.m.TakeChanges())
		w.exit(s+0.5, pid)
		waiting.Merge(w.m.TakeChanges())
	}
	if len(waiting.Open) != 0 || len(waiting.Ended) != 100 || len(waiting.Dropped) != 1 || waiting.Dropped[0] != stored {
		t.Errorf("%d open, %d ended, %d dropped; want the history, and that the one that was stored left it",
			len(waiting.Open), len(waiting.Ended), len(waiting.Dropped))
	}
}

// A task that begins in one batch, and ends and leaves the history in the next, leaves nothing.
func TestMergedChangesForgetWhatWasNeverStored(t *testing.T) {
	w := newWorld(t)
	w.m = core.New(core.Options{MaxEnded: 1})
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	waiting := w.m.TakeChanges()
	first := w.one().ID
	w.exit(2, pid)
	w.meet(pid, web)
	w.sense(3, pid, sensor.ContextMade)
	w.exit(4, pid)
	waiting.Merge(w.m.TakeChanges())
	if _, open := waiting.Open[first]; open || len(waiting.Ended) != 1 || len(waiting.Dropped) != 0 {
		t.Errorf("%+v, want the last task alone", waiting)
	}
}

// disk has what a store has of the tasks: the ids of the unfinished and the ended ones.
type disk struct{ open, ended map[string]bool }

func (d *disk) write(c core.Changes) {
	for id := range c.Open {
		d.open[id] = true
	}
	for id := range c.Ended {
		delete(d.open, id)
		d.ended[id] = true
	}
	for _, id := range c.Dropped {
		delete(d.open, id)
		delete(d.ended, id)
	}
}

// Whatever writes fail, after one that succeeds the store has the tasks of the snapshot, and no others.
func TestStoreEqualsTheStateWhateverWritesFail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{m: core.New(core.Options{MaxEnded: 2}), now: t0}
		c.m.SensorInUse(task.SourceUprobe, "", true)
		d := disk{map[string]bool{}, map[string]bool{}}
		for range rapid.IntRange(1, 8).Draw(t, "writes") {
			var changes core.Changes
			for fails := true; fails; { // as the journal does
				inputs(t, c, &changes)
				var later core.Changes
				inputs(t, c, &later) // while it writes
				if fails = rapid.Bool().Draw(t, "fails"); !fails {
					d.write(changes)
					changes = core.Changes{}
				}
				changes.Merge(later)
			}
			changes.Merge(c.m.TakeChanges())
			d.write(changes)
			s := c.m.Snapshot()
			open, ended := map[string]bool{}, map[string]bool{}
			for _, u := range s.Tasks {
				open[u.ID] = true
			}
			for _, e := range s.Ended {
				ended[e.ID] = true
			}
			if !maps.Equal(open, d.open) || !maps.Equal(ended, d.ended) {
				t.Fatalf("stored: unfinished %v, ended %v; want %v and %v", slices.Sorted(maps.Keys(d.open)), slices.Sorted(maps.Keys(d.ended)),
					slices.Sorted(maps.Keys(open)), slices.Sorted(maps.Keys(ended)))
			}
		}
	})
}

// inputs plays some inputs and adds to changes what each makes to be written.
func inputs(t *rapid.T, c *chaos, changes *core.Changes) {
	for range rapid.IntRange(0, 12).Draw(t, "inputs") {
		c.input(t)
		changes.Merge(c.m.TakeChanges())
	}
}
