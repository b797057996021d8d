package core_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

var onNotice = map[int]string{pid: id(web)}

// running is a world with a task on a GPU since 1 s, with a deadline of 9 s.
func running(t *testing.T) *world {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.sense(1, pid, sensor.ContextMade)
	w.list(1.5, gpuA, pid)
	return w
}

func (w *world) state(want task.State) task.Task {
	w.t.Helper()
	o := w.one()
	if o.State != want {
		w.t.Fatalf("state %s, want %s", o.State, want)
	}
	return o
}

// A task that is swapped off the GPU has not ended, keeps its start and its deadline, and
// goes on where it comes back.
func TestSwapped(t *testing.T) {
	w := running(t)
	before := w.one()
	w.m.Swaps(onNotice, at(2))
	w.read(2)
	w.state(task.Running) // on notice, and still there
	w.m.Swaps(onNotice, at(3))
	w.list(3, gpuA)
	w.event(3.1, container.Paused, web)
	same(t, "since", w.state(task.Swapped).StateSince, at(3))
	w.m.Swaps(onNotice, at(10))
	w.read(10)
	w.state(task.Swapped)
	w.event(12.9, container.Unpaused, web)
	w.m.Swaps(onNotice, at(13))
	w.list(13, gpuA, pid)
	o := w.state(task.Running)
	w.m.Swaps(nil, at(14))
	w.read(14)
	w.state(task.Running)
	if o.ID != before.ID || !o.Start.Time.Equal(before.Start.Time) || !o.Deadline.Equal(before.Deadline) {
		t.Errorf("after the swap %+v, before %+v", o, before)
	}
	if o.SwappedSeconds != 10 || o.PausedSeconds != 0 {
		t.Errorf("swapped for %v s, paused for %v s", o.SwappedSeconds, o.PausedSeconds)
	}
	w.exit(15, pid)
	if last := w.last(); last.State != task.Ended || w.count(core.Ended, "") != 1 {
		t.Errorf("%+v", last)
	}
}

// After the notice is gone the device may take a moment to list the process again; for
// ever it is not waited for.
func TestSwappedAndNotListedAgain(t *testing.T) {
	w := running(t)
	w.m.Swaps(onNotice, at(2))
	w.list(2, gpuA)
	w.m.Swaps(nil, at(3))
	w.read(3)
	w.state(task.Swapped)
	w.m.Swaps(nil, at(6))
	w.read(6)
	if last := w.last(); last.State != task.Ended {
		t.Errorf("%+v", last)
	}
}

// A notice is believed for a process of its own container alone, and not for one that
// has left the device without any.
func TestNoticeOfAnotherContainer(t *testing.T) {
	w := running(t)
	w.m.Swaps(map[int]string{pid: id("other"), pid + 1: id(web)}, at(2))
	w.list(2, gpuA)
	if last := w.last(); last.State != task.Ended {
		t.Errorf("%+v", last)
	}
}

func TestExitWhileSwapped(t *testing.T) {
	w := running(t)
	w.m.Swaps(onNotice, at(2))
	w.list(2, gpuA)
	w.exit(4, pid)
	last := w.last()
	same(t, "end", last.End.Time, at(4))
	if last.State != task.Ended || last.SwappedSeconds != 2 {
		t.Errorf("%+v", last)
	}
}

// The exporter comes back while a task is swapped out.
func TestRestartWhileSwapped(t *testing.T) {
	w := running(t)
	w.m.Swaps(onNotice, at(2))
	w.list(2, gpuA)
	saved := w.m.TakeChanges()
	var s core.State
	for _, o := range saved.Open {
		s.Open = append(s.Open, o)
	}
	again := newWorld(t)
	again.m.Restore(s, func(int, string) (core.Subject, bool) {
		return core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Container: id(web)}, true
	}, at(5))
	again.run(5, web, nil)
	again.m.Swaps(onNotice, at(6))
	again.list(6, gpuA)
	again.state(task.Swapped)
	again.m.Swaps(onNotice, at(7))
	again.list(7, gpuA, pid)
	o := again.state(task.Running)
	same(t, "deadline", o.Deadline, at(10))
	if o.SwappedSeconds != 5 {
		t.Errorf("swapped for %v s", o.SwappedSeconds)
	}
}
