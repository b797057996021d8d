package core_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

const born = time.Hour // of the process, since boot

var itIsOff = map[int]time.Duration{pid: born}

// computing is a world with a task since 1 s of a process whose start is known.
func computing(t *testing.T) *world {
	w := newWorld(t)
	w.run(0, web, nil)
	w.m.Meet(core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Container: id(web), Started: born})
	w.sense(1, pid, sensor.ContextMade)
	w.list(1.5, gpuA, pid)
	return w
}

func TestOffTheGPUIsHeld(t *testing.T) {
	w := computing(t)
	w.m.Off(itIsOff, at(2))
	same(t, "since", w.state(task.Held).StateSince, at(2))
	w.m.Off(nil, at(2.3))
	w.m.Off(itIsOff, at(3))
	w.m.Off(nil, at(3.1))
	if o := w.state(task.Running); o.HeldSeconds < 0.3999 || o.HeldSeconds > 0.4001 || !o.StateSince.Equal(at(3.1)) {
		t.Errorf("held for %v s, runs since %v", o.HeldSeconds, o.StateSince)
	}
	w.m.Off(map[int]time.Duration{pid: born + 1}, at(4)) // its PID was another's
	w.state(task.Running)
}

func TestPausedCoversOff(t *testing.T) {
	w := computing(t)
	w.m.Off(itIsOff, at(2))
	w.event(3, container.Paused, web)
	w.state(task.Paused)
	w.m.Off(nil, at(4))
	w.event(5, container.Unpaused, web)
	if o := w.state(task.Running); o.HeldSeconds != 1 || o.PausedSeconds != 2 {
		t.Errorf("held for %v s, paused for %v s", o.HeldSeconds, o.PausedSeconds)
	}
}

// Who is stopped stays held when it is on the GPU again, and the other way round.
func TestOffAndStopped(t *testing.T) {
	w := computing(t)
	w.m.Off(itIsOff, at(2))
	w.m.Stopped(identity(pid), true, at(3))
	w.m.Off(nil, at(4))
	w.state(task.Held)
	w.m.Stopped(identity(pid), false, at(5))
	if o := w.state(task.Running); o.HeldSeconds != 3 {
		t.Errorf("held for %v s", o.HeldSeconds)
	}
}

// After a restart of the exporter who is off is known before its process is met.
func TestMetWhileOff(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.m.Off(itIsOff, at(0.5))
	w.m.Meet(core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Container: id(web), Started: born})
	w.list(1, gpuA, pid)
	w.state(task.Held)
}

// Turns are told to readers and written at once only now and then; the others are in
// the snapshot that comes next.
func TestTurnsAreBounded(t *testing.T) {
	w := computing(t)
	w.m.Snapshot()
	w.m.TakeChanges()
	woken, written, seen := 0, 0, 0
	for i := range 100 { // 25 turns a second for two seconds
		s := 2 + float64(i)*0.02
		if i%2 == 0 {
			w.m.Off(itIsOff, at(s))
		} else {
			w.m.Off(nil, at(s))
		}
		changed, measured := w.m.Changed()
		if changed || measured { // the tracker wakes readers for either
			woken++
		}
		if changed || measured || w.m.Turned() {
			seen++
		}
		if !w.m.TakeChanges().Empty() {
			written++
		}
		w.m.Snapshot()
	}
	if woken != 2 || written != 2 || seen != 100 {
		t.Errorf("of 100 changes %d woke readers, %d were written, %d can be seen", woken, written, seen)
	}
	if o := w.state(task.Running); o.HeldSeconds < 0.999 || o.HeldSeconds > 1.001 {
		t.Errorf("held for %v s", o.HeldSeconds)
	}
}

// The last of many turns is told and stored, too, once the time is over.
func TestTheLastTurnIsTold(t *testing.T) {
	w := computing(t)
	w.m.Off(itIsOff, at(2))
	w.m.Off(nil, at(2.3))
	w.m.Snapshot()
	w.m.TakeChanges()
	for _, tt := range []struct {
		at   float64
		want bool
	}{{2.9, false}, {3.1, true}, {3.2, false}, {9, false}} {
		w.m.Tick(at(tt.at))
		if changed, _ := w.m.Changed(); changed != tt.want {
			t.Errorf("at %v s it wakes readers: %v, want %v", tt.at, changed, tt.want)
		}
		w.m.Snapshot()
		changes := w.m.TakeChanges()
		if changes.Empty() == tt.want {
			t.Errorf("at %v s it is stored: %v, want %v", tt.at, !tt.want, tt.want)
		}
		for _, saved := range changes.Open {
			if saved.Task.State != task.Running {
				t.Errorf("it is stored as %s", saved.Task.State)
			}
		}
	}
}
