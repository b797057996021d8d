package core_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

func TestPlace(t *testing.T) {
	with := func(gpus ...string) container.Container {
		c := newContainer(web, nil)
		c.GPUs = gpus
		return c
	}
	tests := []struct {
		name  string
		uuids []string
		c     container.Container
		want  string
	}{
		{"the only GPU there is", []string{gpuA}, with(), gpuA},
		{"the only one it can see, by UUID", []string{gpuA, gpuB}, with(gpuB), gpuB},
		{"by index", []string{gpuA, gpuB}, with("1"), gpuB},
		{"all of two", []string{gpuA, gpuB}, with("all"), task.UnknownGPU},
		{"not known", []string{gpuA, gpuB}, with(), task.UnknownGPU},
		{"one that is not there", []string{gpuA, gpuB}, with("GPU-z"), task.UnknownGPU},
		{"one, and one that is not there", []string{gpuA, gpuB}, with(gpuA, "GPU-z"), task.UnknownGPU},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.uuids...)
			w.read(0)
			w.m.Containers([]container.Container{tt.c}, at(0))
			w.meet(pid, web)
			w.sense(1, pid, sensor.ContextMade)
			got := w.one()
			if len(got.GPUs) != 1 || got.GPUs[0] != tt.want || (got.GPUReason != "") != (tt.want == task.UnknownGPU) {
				t.Errorf("GPUs %v, reason %q; want %s", got.GPUs, got.GPUReason, tt.want)
			}
			if n := w.count(core.Began, task.UnknownGPU); n != 0 {
				t.Error("told as begun on an unknown GPU while it may still be learned")
			}
			w.list(2, tt.uuids[len(tt.uuids)-1], pid) // the device knows better
			got = w.one()
			if got.GPUs[0] != tt.uuids[len(tt.uuids)-1] || got.GPUReason != "" {
				t.Errorf("after the list: %v, %q", got.GPUs, got.GPUReason)
			}
		})
	}
}

func TestTaskOnTwoGPUs(t *testing.T) {
	w := newWorld(t, gpuA, gpuB)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.read(0.5)
	w.list(1, gpuB, pid)
	w.list(2, gpuA, pid)
	if got := w.one(); len(got.GPUs) != 2 || got.GPUs[0] != gpuA || got.MemoryUsed[gpuA] != 7 || got.MemoryUsed[gpuB] != 7 {
		t.Errorf("task: %+v", got)
	}
	w.list(3, gpuB)
	if got := w.one(); len(got.GPUs) != 1 || got.GPUs[0] != gpuA {
		t.Errorf("it left one GPU: %v", got.GPUs)
	}
	w.exit(4, pid)
	if got := w.last(); len(got.GPUs) != 2 {
		t.Errorf("ended task: %v, want every GPU it used", got.GPUs)
	}
	if a, b, e := w.count(core.Began, gpuA), w.count(core.Began, gpuB), w.count(core.Ended, ""); a != 1 || b != 1 || e != 1 {
		t.Errorf("began on a %d, on b %d times, ended %d times", a, b, e)
	}
}

// What a container sees is in the order of the device, whatever their UUIDs are and however they were given.
func TestVisibleGPUsAreInTheOrderOfTheDevice(t *testing.T) {
	for _, given := range [][]string{{"all"}, {"0", "1"}, {"1", "0"}, {gpuA, gpuB}} {
		w := newWorld(t)
		w.m.Device(device.Reading{GPUs: []device.GPU{{UUID: gpuB, Index: 0}, {UUID: gpuA, Index: 1}}}, at(0))
		c := newContainer(web, nil)
		c.GPUs = given
		w.m.Containers([]container.Container{c}, at(0))
		if got := w.snapshot().Containers[0].VisibleGPUs; !slices.Equal(got, []string{gpuB, gpuA}) {
			t.Errorf("given %v: %v", given, got)
		}
	}
}

func TestMIGInstances(t *testing.T) {
	w := newWorld(t)
	w.m.Device(device.Reading{GPUs: []device.GPU{
		{UUID: gpuA, Index: 0}, {UUID: gpuB, Index: 1},
		{UUID: "MIG-1", Index: 1, Parent: gpuB},
	}}, at(0))
	c := newContainer(web, nil)
	c.GPUs = []string{"1"} // the card, which stands for its instances
	w.m.Containers([]container.Container{c}, at(0))
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	if got := w.one(); len(got.GPUs) != 1 || got.GPUs[0] != "MIG-1" {
		t.Errorf("GPUs %v, want the instance", got.GPUs)
	}
}

func TestContainersOfManyProcesses(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	for _, p := range []int{1, 2, 3} {
		w.meet(p, web)
	}
	w.list(1, gpuA, 1, 2, 3)
	s := w.snapshot()
	if len(s.Tasks) != 3 || s.Containers[0].MemoryUsed[gpuA] != 21 {
		t.Errorf("%d tasks, memory %v; want 3 tasks with 7 bytes each", len(s.Tasks), s.Containers[0].MemoryUsed)
	}
	w.exit(2, 2)
	if s := w.snapshot(); len(s.Tasks) != 2 || len(s.Ended) != 1 {
		t.Errorf("after one exit: %d unfinished, %d ended", len(s.Tasks), len(s.Ended))
	}
}

// One GPU of several that does not answer is told, once.
func TestGPUThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, gpuA, gpuB)
	w.read(1)
	w.snapshot()
	told := func(s float64, want string) {
		t.Helper()
		w.read(s)
		if changed, _ := w.m.Changed(); !changed {
			t.Error("it is no change")
		}
		got := w.snapshot()
		if got.GPUs[0].Error != "" || got.GPUs[1].Error != want || !got.Health.DeviceUp || strings.Contains(got.Health.DeviceError, gpuB) != (want != "") {
			t.Errorf("GPUs %+v, health %+v", got.GPUs, got.Health)
		}
		w.read(s)
		if changed, _ := w.m.Changed(); changed {
			t.Error("the same again is a change")
		}
	}
	w.fail[gpuB] = errDriver
	told(2, errDriver.Error())
	delete(w.fail, gpuB)
	told(3, "")
}

func TestNotYetListedIsNoEnd(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	for s := 1.0; s < 3; s += 0.02 {
		w.read(s)
	}
	w.one()
}

// A context call that failed, in a process that goes on: nothing lists it.
func TestNeverListedEndsAfterTheLimit(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.read(1)
	w.event(2, container.Paused, web) // frozen time does not count
	for s := 2.0; s < 30; s++ {
		w.read(s)
	}
	w.one()
	w.event(30, container.Unpaused, web)
	for s := 30.0; s < 45; s++ {
		w.read(s)
	}
	got := w.last()
	if got.End.Source != task.SourceDevice || got.End.Time.Before(at(35)) {
		t.Errorf("ended task: %+v", got)
	}
	if want := got.End.Time.Sub(got.Start.Time).Seconds(); math.Abs(float64(got.End.ErrorBound)-want) > 1e-9 {
		t.Errorf("error bound %v, want all of its life", got.End.ErrorBound)
	}
}

// A list that cannot be read says nothing of who is not on it, nor of who came meanwhile.
func TestListThatCannotBeRead(t *testing.T) {
	w := newWorld(t, gpuA, gpuB)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.read(0.5)
	w.sense(1, pid, sensor.ContextMade)
	w.fail[gpuA] = errDriver
	for s := 1.0; s < 30; s++ {
		w.read(s)
	}
	w.one()
	w.meet(pid+1, web)
	delete(w.fail, gpuA)
	w.list(30.5, gpuA, pid, pid+1)
	tasks := w.snapshot().Tasks
	if len(tasks) != 2 || tasks[1].Start.Source != task.SourceDevice {
		t.Fatalf("tasks %+v", tasks)
	}
	if b := float64(tasks[1].Start.ErrorBound); math.Abs(b-30.25) > 1e-9 {
		t.Errorf("error bound %v, want the 30 s for which nobody could see the process, and the list's lag", b)
	}
}

// Memory and utilisation on a GPU that goes on failing are absent after some seconds. A reading
// or two that fail change nothing, and the task stays in any case.
func TestMeasurementsOfALostGPU(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"its list cannot be read":  func(w *world) { w.fail[gpuA] = errDriver },
		"it is not in the reading": func(w *world) { w.uuids = []string{gpuB} },
		"no GPU answers":           func(w *world) { w.down = "lost" },
	} {
		for _, tt := range []struct {
			name   string
			failed []float64 // readings after the last good one, at 1 s
			absent bool
		}{
			{"one", []float64{2}, false},
			{"two", []float64{2, 3}, false},
			{"one that took long", []float64{12}, false},
			{"many within a second", []float64{1.2, 1.4, 1.6, 1.8}, false},
			{"three", []float64{2, 3, 4}, true},
			{"for ever", []float64{2, 3, 1e5}, true},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				w := newWorld(t, gpuA, gpuB)
				w.run(0, web, nil)
				w.meet(pid, web)
				w.sample(1, 0.5, false)
				w.uuids = []string{gpuA, gpuB}
				lose(w)
				measured := false
				for _, s := range tt.failed {
					w.m.Snapshot()
					w.read(s)
					_, measured = w.m.Changed()
				}
				s := w.snapshot()
				c, of := s.Containers[0], s.Tasks[0]
				_, memory := c.MemoryUsed[gpuA]
				_, sm := c.SMUtilization[gpuA]
				_, own := of.MemoryUsed[gpuA]
				if memory == tt.absent || sm == tt.absent || own == tt.absent {
					t.Errorf("memory %v, utilisation %v, memory of the task %v; want them absent: %v", c.MemoryUsed, c.SMUtilization, of.MemoryUsed, tt.absent)
				}
				if len(of.GPUs) != 1 || of.GPUs[0] != gpuA {
					t.Errorf("the task is on %v", of.GPUs)
				}
				if tt.failed[len(tt.failed)-1] == 4 && !measured {
					t.Error("no snapshot tells that they are absent")
				}
				w.uuids, w.fail, w.down = []string{gpuA, gpuB}, nil, ""
				w.sample(2e5, 0.5, false)
				if c := w.snapshot().Containers[0]; c.MemoryUsed[gpuA] != 7 || c.SMUtilization[gpuA] != 0.5 {
					t.Errorf("when it answers again: memory %v, utilisation %v", c.MemoryUsed, c.SMUtilization)
				}
			})
		}
	}
}
