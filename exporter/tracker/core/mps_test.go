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
	if n := s.Health.Unattributed[task.MPSServer]; n != 1 || len(s.Health.Unattributed) != 1 {
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
			w.served(1, true, true)
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

// served reads a GPU on which a process with the name of an MPS server has a context, beside web's process.
func (w *world) served(s float64, tells, client bool) {
	const server = pid + 1
	w.m.Meet(core.Subject{Process: sensor.Process{PID: server, Identity: identity(server)}, Container: id(web), MPSServer: true})
	w.m.Device(device.Reading{Time: at(s), GPUs: []device.GPU{{UUID: gpuA, MemoryTotal: 100, TellsMPS: tells, Processes: []device.Process{
		{PID: server, MemoryUsed: 5}, {PID: pid, MemoryUsed: 7, MPS: client}}}}}, at(s))
}

// A program that only takes the server's name changes nothing for others on the card. What a client did until its end
// counts as under MPS. Where the device does not tell clients the name has to do.
func TestTheNameOfAnMPSServerAloneIsNoMPS(t *testing.T) {
	const samples, trace = 0.9, 0.25
	for name, tt := range map[string]struct {
		tells, client, ends bool
		want                float64
	}{
		"a client":                     {tells: true, client: true, want: samples},
		"a client that has just ended": {tells: true, client: true, ends: true, want: samples},
		"the name alone":               {tells: true, want: trace},
		"nobody knows who is a client": {want: samples},
	} {
		w := running(t)
		w.served(1, tt.tells, tt.client)
		w.switched(2, map[int]float64{}, map[int]float64{})
		if tt.ends {
			w.served(2.5, tt.tells, false)
		}
		w.switched(3, map[int]float64{pid: samples, 4711: 0.1}, map[int]float64{pid: trace, 4711: 0.75})
		near(t, name+": seconds", w.card().Uses[0].GPUSeconds, tt.want)
	}
}
