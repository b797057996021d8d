package core_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

var busy = map[string]string{task.LabelDeadline: "1s", task.LabelRelease: "busy"}

func server(t *testing.T) *world {
	w := newWorld(t)
	w.run(0, web, busy)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.sense(1, pid, sensor.ContextMade)
	w.list(2, gpuA, pid)
	return w
}

func TestBusyIntervals(t *testing.T) {
	w := server(t)
	w.none() // it holds a context and does nothing
	w.sense(10, pid, sensor.Launched)
	got := w.one()
	same(t, "start", got.Start.Time, at(10))
	same(t, "deadline", got.Deadline, at(11))
	if got.GPUs[0] != gpuA {
		t.Errorf("GPUs %v", got.GPUs)
	}
	w.sense(10.1, pid, sensor.WorkDone)
	w.sense(10.12, pid, sensor.Launched) // within the gap: the same interval
	w.tick(at(10.2))
	w.one()
	w.sense(10.3, pid, sensor.WorkDone)
	w.tick(at(10.34))
	w.one()
	w.tick(at(10.36))
	got = w.last()
	same(t, "end", got.End.Time, at(10.3))
	if got.Outcome() != task.Hit {
		t.Errorf("outcome %s", got.Outcome())
	}
	w.read(11) // still listed, and idle
	w.none()
	w.sense(12, pid, sensor.Launched)
	w.sense(14, pid, sensor.WorkDone)
	w.sense(14.5, pid, sensor.Launched) // the gap is over, though no tick came
	if s := w.snapshot(); len(s.Tasks) != 1 || len(s.Ended) != 2 || s.Ended[0].Outcome() != task.Miss {
		t.Errorf("unfinished %+v, ended %+v", s.Tasks, s.Ended)
	}
	w.exit(15, pid)
	same(t, "end by exit", w.last().End.Time, at(15))
}

// Who acts on a GPU needs a server's process also when it has no request.
func TestProcessesThatUseCUDA(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, busy)
	w.meet(pid, web)
	check := func(want ...task.Process) {
		t.Helper()
		c, _ := w.snapshot().FindContainer(web)
		if !reflect.DeepEqual(c.Processes, want) {
			t.Errorf("processes %+v, want %+v", c.Processes, want)
		}
	}
	check()
	w.sense(1, pid, sensor.Init)
	w.sense(1, pid, sensor.ContextMade)
	check(task.Process{PID: pid})
	w.list(2, gpuA, pid)
	idle := task.Process{PID: pid, GPUs: []string{gpuA}}
	check(idle)
	w.sense(10, pid, sensor.Launched)
	w.sense(10.1, pid, sensor.WorkDone)
	w.tick(at(10.3))
	check(idle)
	w.exit(11, pid)
	check()
}

// An interval whose process ends within the gap ended when its work was done, too.
func TestBusyIntervalOfAProcessThatEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"it begins to exit":              func(w *world) { w.sense(10.14, pid, sensor.Exiting) },
		"it exits":                       func(w *world) { w.exit(10.14, pid) },
		"its container has ended before": func(w *world) { w.event(10.13, container.Died, web); w.exit(10.14, pid) },
		"it destroys its context":        func(w *world) { w.list(10.14, gpuA) },
	} {
		t.Run(name, func(t *testing.T) {
			w := server(t)
			w.sense(10, pid, sensor.Launched)
			w.sense(10.1, pid, sensor.WorkDone)
			end(w)
			same(t, "end", w.last().End.Time, at(10.1))
		})
	}
}

// The wall clock is set back an hour just after an interval's work was done.
func TestBusyIntervalWhenTheClockIsSetBack(t *testing.T) {
	w := server(t)
	w.sense(3610, pid, sensor.Launched)
	w.sense(3610.1, pid, sensor.WorkDone)
	w.tick(at(3610.12))
	w.one()
	w.tick(at(10.15))
	same(t, "end", w.last().End.Time, at(3610.1))
	w.sense(11, pid, sensor.Launched)
	w.sense(11.5, pid, sensor.WorkDone)
	w.tick(at(11.6))
	if ended := w.snapshot().Ended; len(ended) != 2 {
		t.Errorf("ended %+v, want two", ended)
	} else {
		same(t, "end of the next", ended[1].End.Time, at(11.5)) // by the clock it came first
	}
}

func TestBusyEventsOutOfOrder(t *testing.T) {
	w := server(t)
	w.sense(10, pid, sensor.Launched)
	w.sense(10.3, pid, sensor.WorkDone)
	w.sense(10.1, pid, sensor.Launched) // another thread's, late
	w.sense(10.2, pid, sensor.WorkDone)
	w.tick(at(11))
	same(t, "end", w.last().End.Time, at(10.3))
}

func TestBusyWithoutItsSensorIsTheProcess(t *testing.T) {
	w := newWorld(t)
	w.m.SensorInUse(task.SourceDevice, "no uprobes", false)
	w.run(0, web, busy)
	w.meet(pid, web)
	w.list(2, gpuA, pid)
	w.one()
	if pids := w.m.BusyProcesses(); len(pids) != 0 {
		t.Errorf("launches of %v are to be followed", pids)
	}
}

func TestBusyProcesses(t *testing.T) {
	w := server(t)
	w.run(0, "other", nil)
	w.meet(pid+1, "other")
	w.sense(1, pid+1, sensor.ContextMade)
	if pids := w.m.BusyProcesses(); len(pids) != 1 || pids[0].PID != pid {
		t.Errorf("launches of %v are to be followed, want only %d", pids, pid)
	}
}

// An idle server is no task while the exporter begins, before it knows its sensor.
func TestIdleServerBeforeTheSensorIsKnown(t *testing.T) {
	for _, tt := range []struct {
		source task.Source
		busy   bool
		want   int
	}{{task.SourceUprobe, true, 0}, {task.SourceDevice, false, 1}} {
		m := core.New(core.Options{})
		w := &world{t: t, m: m, uuids: []string{gpuA}, on: map[string][]int{}, fail: map[string]error{}}
		w.run(0, web, busy)
		w.meet(pid, web)
		w.list(1, gpuA, pid)
		w.none()
		m.SensorInUse(tt.source, "", tt.busy)
		w.read(2)
		if n := len(w.snapshot().Tasks); n != tt.want {
			t.Errorf("%d tasks with the sensor %s, want %d", n, tt.source, tt.want)
		}
	}
}

// The probes are lost in the middle of a busy interval, and had again later: what was
// launched before that is not known to them.
func TestProbesAreLostInABusyInterval(t *testing.T) {
	began := func() *world {
		w := server(t)
		w.sense(10, pid, sensor.Launched)
		w.m.SensorInUse(task.SourceDevice, "trouble", false)
		w.tick(at(11))
		w.tick(at(40))
		w.one()
		w.m.SensorInUse(task.SourceUprobe, "", true)
		return w
	}
	t.Run("it ended meanwhile", func(t *testing.T) {
		w := began()
		w.tick(at(41))
		w.one()
		w.tick(at(44))
		x := w.last()
		if x.State != task.Lost || !x.End.Time.Equal(at(41)) || x.End.ErrorBound < 30 {
			t.Errorf("task %+v, end %+v", x, x.End)
		}
		w.sense(50, pid, sensor.Launched)
		same(t, "start of the next", w.one().Start.Time, at(50))
	})
	t.Run("it goes on", func(t *testing.T) {
		w := began()
		w.sense(40.5, pid, sensor.Launched)
		w.tick(at(41))
		w.tick(at(50))
		same(t, "start", w.one().Start.Time, at(10))
		w.sense(51, pid, sensor.WorkDone)
		w.tick(at(52))
		same(t, "end", w.last().End.Time, at(51))
	})
}

// A restart in the middle of a busy interval.
func TestRestartOfABusyInterval(t *testing.T) {
	began := func() *world {
		w := server(t)
		w.sense(10, pid, sensor.Launched)
		w = w.restart(12, pid)
		w.run(12, web, busy)
		w.read(12.1)
		w.tick(at(12.2))
		same(t, "start", w.one().Start.Time, at(10))
		return w
	}
	t.Run("it goes on", func(t *testing.T) {
		w := began()
		w.sense(12.5, pid, sensor.Launched)
		w.tick(at(15))
		w.one()
		w.sense(15.5, pid, sensor.WorkDone)
		w.tick(at(16))
		x := w.last()
		same(t, "start", x.Start.Time, at(10))
		same(t, "end", x.End.Time, at(15.5))
		if x.State != task.Ended || x.Outcome() != task.Miss {
			t.Errorf("task %+v", x)
		}
	})
	t.Run("it ended meanwhile", func(t *testing.T) {
		w := began()
		w.tick(at(14.1))
		x := w.last()
		if bound := x.End.ErrorBound.Duration(); x.State != task.Lost || !x.End.Time.Equal(at(12)) || bound != time.Second {
			t.Errorf("task %+v, want it lost between the last sign of the exporter and its return", x)
		}
		w.read(15)
		w.none() // the server is idle
		w.sense(20, pid, sensor.Launched)
		same(t, "start of the next", w.one().Start.Time, at(20))
	})
	t.Run("its intervals are shorter than the exporter was away", func(t *testing.T) {
		for _, sees := range []bool{true, false} { // the process is seen before its next launch, or not
			w := server(t)
			w.sense(5, pid, sensor.Launched)
			w.sense(5.015, pid, sensor.WorkDone)
			w.tick(at(6))
			w.sense(11.99, pid, sensor.Launched)
			w = w.restart(13, pid)
			w.run(13, web, busy)
			if sees {
				w.read(13.1)
				w.tick(at(13.15))
				w.none() // so nothing is late
			}
			w.sense(13.2, pid, sensor.Launched)
			w.sense(13.21, pid, sensor.WorkDone)
			w.tick(at(14))
			ended := w.snapshot().Ended
			if x := ended[0]; x.Outcome() != task.Hit || !x.Start.Time.Equal(at(13.2)) {
				t.Errorf("the next request: %+v", x)
			}
			if x := ended[1]; x.State != task.Lost || !x.End.Time.Equal(at(13)) || x.End.ErrorBound.Duration() != time.Second {
				t.Errorf("task %+v, want it lost while the exporter was away", x)
			}
		}
	})
	t.Run("it lasted longer than the others before", func(t *testing.T) {
		w := server(t)
		w.sense(5, pid, sensor.Launched)
		w.sense(5.015, pid, sensor.WorkDone)
		w.tick(at(6))
		w.sense(10, pid, sensor.Launched)
		w = w.restart(43, pid)
		w.run(43, web, busy)
		w.read(43.1)
		w.tick(at(43.15))
		w.sense(43.2, pid, sensor.Launched)
		same(t, "start", w.one().Start.Time, at(10))
	})
	t.Run("its container's tasks are processes", func(t *testing.T) {
		w := newWorld(t)
		w.run(0, web, nil)
		w.meet(pid, web)
		w.sense(1, pid, sensor.ContextMade) // for a moment, as a probe of the device does
		w.list(1.1, gpuA, pid)
		w.sense(1.2, pid, sensor.Leaving)
		w.sense(1.3, pid, sensor.Left)
		w.sense(7.5, pid, sensor.ContextMade)
		w.list(7.6, gpuA)
		w.list(7.7, gpuA, pid)
		same(t, "the task before it was short", w.snapshot().Ended[0].End.Time, at(1.3))
		w = w.restart(9, pid)
		w.run(9, web, nil)
		w.read(9.1)
		w.tick(at(9.2))
		same(t, "start", w.one().Start.Time, at(7.5))
	})
	t.Run("its launches cannot be followed any more", func(t *testing.T) {
		w := began()
		of, _ := w.m.Known(pid)
		w.m.Followed(of.Process, false, at(12.3))
		w.tick(at(20))
		same(t, "start", w.one().Start.Time, at(10))
		w.exit(21, pid)
		same(t, "end", w.last().End.Time, at(21))
	})
	t.Run("launches are not followed any more", func(t *testing.T) {
		w := began()
		w.m.SensorInUse(task.SourceDevice, "no BPF", false)
		w.tick(at(20))
		same(t, "start", w.one().Start.Time, at(10))
	})
}
