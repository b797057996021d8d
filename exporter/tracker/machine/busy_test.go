package machine_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
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
	w.m.Tick(at(10.2))
	w.one()
	w.sense(10.3, pid, sensor.WorkDone)
	if next := w.m.NextTick(); next.Before(at(10.35)) || next.After(at(10.36)) {
		t.Errorf("next tick at +%v, want just past the gap", next.Sub(t0))
	}
	w.m.Tick(at(10.34))
	w.one()
	w.m.Tick(at(10.36))
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

func TestBusyEventsOutOfOrder(t *testing.T) {
	w := server(t)
	w.sense(10, pid, sensor.Launched)
	w.sense(10.3, pid, sensor.WorkDone)
	w.sense(10.1, pid, sensor.Launched) // another thread's, late
	w.sense(10.2, pid, sensor.WorkDone)
	w.m.Tick(at(11))
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
	if pids := w.m.BusyProcesses(); len(pids) != 1 || pids[0] != pid {
		t.Errorf("launches of %v are to be followed, want only %d", pids, pid)
	}
}
