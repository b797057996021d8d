package core_test

import (
	"testing"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// A client of MPS is a task of its container, and marked; the server is nobody's task, though a sensor saw it and it runs in a container.
func TestMPS(t *testing.T) {
	const server = pid + 1
	w := newWorld(t)
	w.run(0, web, nil)
	w.run(0, "mps", map[string]string{task.LabelPause: "allow"})
	w.meet(pid, web)
	w.m.Meet(core.Subject{Process: sensor.Process{PID: server, Identity: identity(server)}, Container: id("mps"), MPSServer: true})
	w.sense(1, server, sensor.ContextMade)
	w.sense(2, pid, sensor.ContextMade)
	w.m.Device(device.Reading{Time: at(3), GPUs: []device.GPU{{UUID: gpuA, MemoryTotal: 100, Processes: []device.Process{
		{PID: server, MemoryUsed: 5}, {PID: pid, MemoryUsed: 7, MPS: true}}}}}, at(3))

	one := w.one()
	if one.ContainerID != id(web) || len(one.GPUs) != 1 || one.MemoryUsed[gpuA] != 7 {
		t.Errorf("the task: %+v", one)
	}
	s := w.snapshot()
	if n := s.Health.Unattributed[core.MPSServer]; n != 1 || len(s.Health.Unattributed) != 1 {
		t.Errorf("not attributed: %v", s.Health.Unattributed)
	}
	for _, c := range s.Containers {
		switch {
		case c.Name == web && (len(c.Processes) != 1 || !c.Processes[0].MPS):
			t.Errorf("the client's container: %+v", c)
		case c.Name == "mps" && len(c.Processes)+len(c.MemoryUsed) > 0:
			t.Errorf("the server's container: %+v", c)
		}
	}

	w.read(4) // the same processes, and the client has left MPS
	w.on[gpuA] = []int{server, pid}
	w.read(5)
	for _, c := range w.snapshot().Containers {
		if c.Name == web && (len(c.Processes) != 1 || c.Processes[0].MPS) {
			t.Errorf("without MPS: %+v", c)
		}
	}
}

// Under MPS the context that is on a card is the server's, whoever of its clients computes: the driver's samples count then.
func TestPresenceIsNotWhoComputesUnderMPS(t *testing.T) {
	for _, mps := range []bool{false, true} {
		w := running(t)
		if mps {
			const server = pid + 1
			w.m.Meet(core.Subject{Process: sensor.Process{PID: server, Identity: identity(server)}, Container: id(web), MPSServer: true})
			w.m.Device(device.Reading{Time: at(1), GPUs: []device.GPU{{UUID: gpuA, MemoryTotal: 100, Processes: []device.Process{
				{PID: server, MemoryUsed: 5}, {PID: pid, MemoryUsed: 7, MPS: true}}}}}, at(1))
		}
		for s := 2.0; s < 4; s++ {
			w.switched(s, map[int]float64{pid: 0.9, 4711: 0.1}, map[int]float64{pid: 0.25, 4711: 0.75})
		}
		c := w.card()
		want := 0.25
		if mps {
			want = 0.9
		}
		near(t, "seconds", c.Uses[0].GPUSeconds, want)
		if c.Switches.Rate != 3 {
			t.Errorf("%v switches a second, want 3", c.Switches.Rate)
		}
		near(t, "use", w.sample(4, 0.9, mps), want)
	}
}
