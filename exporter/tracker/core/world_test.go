package core_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a moment of a test, in seconds.
func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

const (
	gpuA = "GPU-a"
	gpuB = "GPU-b"
	web  = "web"
	pid  = 100
)

// world drives a core and plays device, engine and sensors.
type world struct {
	t     *testing.T
	m     *core.Core
	uuids []string
	on    map[string][]int // GPU → PIDs
	fail  map[string]error // GPU → error of its process list
	down  string           // why the device does not answer; empty: it does
	facts []core.Fact
}

func newWorld(t *testing.T, uuids ...string) *world {
	if len(uuids) == 0 {
		uuids = []string{gpuA}
	}
	w := &world{t: t, m: core.New(core.Options{Node: "n", BusyGap: 50 * time.Millisecond}), uuids: uuids,
		on: map[string][]int{}, fail: map[string]error{}}
	w.m.SensorInUse(task.SourceUprobe, "", true)
	return w
}

func id(name string) string { return strings.Repeat("0", 64-len(name)) + name }

func identity(pid int) string { return "boot/" + string(rune('A'+pid%26)) }

func newContainer(name string, labels map[string]string) container.Container {
	return container.Container{ID: id(name), Name: name, Image: "img", Labels: labels, PID: pid}
}

// run starts a container whose deadline is 9 s unless labels say otherwise.
func (w *world) run(s float64, name string, labels map[string]string) {
	if labels == nil {
		labels = map[string]string{task.LabelDeadline: "9s"}
	}
	c := newContainer(name, labels)
	w.m.Container(container.Event{Kind: container.Started, ID: c.ID, Time: at(s), Container: &c}, at(s))
}

func (w *world) event(s float64, kind container.EventKind, name string) {
	w.m.Container(container.Event{Kind: kind, ID: id(name), Time: at(s)}, at(s))
}

func (w *world) meet(pid int, name string) {
	s := core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}}
	if name != "" {
		s.Container = id(name)
	}
	w.m.Meet(s)
}

func (w *world) sense(s float64, pid int, kind sensor.Kind) {
	of, _ := w.m.Known(pid)
	w.m.Sensor(of.Process, sensor.Event{PID: pid, Kind: kind, Time: at(s), Source: task.SourceUprobe, ErrorBound: time.Millisecond})
}

func (w *world) exit(s float64, pid int) {
	w.m.Exit(sensor.Exit{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Time: at(s), ErrorBound: time.Millisecond})
}

// list sets the processes on a GPU and reads the device.
func (w *world) list(s float64, uuid string, pids ...int) {
	w.on[uuid] = pids
	w.read(s)
}

// vanish takes a process from a GPU's list, because it exits.
func (w *world) vanish(s float64, uuid string, pid int) {
	w.on[uuid] = slices.DeleteFunc(w.on[uuid], func(on int) bool { return on == pid })
	for _, p := range w.m.Vanished(w.reading(s)) {
		if p.PID != pid {
			w.t.Errorf("%d has vanished", p.PID)
		}
		w.m.Vanishing(p, at(s))
	}
	w.read(s)
}

func (w *world) read(s float64) {
	if w.down != "" {
		w.m.DeviceDown(w.down, at(s))
		return
	}
	w.m.Device(w.reading(s), at(s))
}

func (w *world) reading(s float64) device.Reading {
	r := device.Reading{Time: at(s)}
	for i, uuid := range w.uuids {
		g := device.GPU{UUID: uuid, Index: i, MemoryTotal: 100, Utilization: math.NaN(), ProcessesErr: w.fail[uuid]}
		for _, pid := range w.on[uuid] {
			g.Processes = append(g.Processes, device.Process{PID: pid, MemoryUsed: 7, SMUtilization: math.NaN()})
		}
		if g.ProcessesErr != nil {
			g.Processes = nil
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}

func (w *world) snapshot() *task.Snapshot {
	w.facts = append(w.facts, w.m.TakeFacts()...)
	return w.m.Snapshot()
}

// one returns the only unfinished task.
func (w *world) one() task.Task {
	w.t.Helper()
	s := w.snapshot()
	if len(s.Tasks) != 1 {
		w.t.Fatalf("%d unfinished tasks, want 1: %+v", len(s.Tasks), s.Tasks)
	}
	return s.Tasks[0]
}

// last returns the latest ended task; no unfinished one may be left.
func (w *world) last() task.Task {
	w.t.Helper()
	s := w.snapshot()
	if len(s.Tasks) != 0 || len(s.Ended) == 0 {
		w.t.Fatalf("unfinished %+v, ended %+v; want one ended task", s.Tasks, s.Ended)
	}
	return s.Ended[0]
}

func (w *world) none() {
	w.t.Helper()
	if s := w.snapshot(); len(s.Tasks) != 0 {
		w.t.Fatalf("there is a task: %+v", s.Tasks)
	}
}

// count returns how often a fact was told.
func (w *world) count(kind core.FactKind, gpu string) int {
	w.facts = append(w.facts, w.m.TakeFacts()...)
	n := 0
	for _, f := range w.facts {
		if f.Kind == kind && (gpu == "" || f.GPU == gpu) {
			n++
		}
	}
	return n
}

// tick does what is due by time alone.
func (w *world) tick(now time.Time) {
	w.m.Tick(now)
	w.m.CloseBusy(now)
}

var errDriver = errors.New("driver trouble")

func same(t *testing.T, what string, got, want time.Time) {
	t.Helper()
	if !got.Equal(want) {
		t.Errorf("%s = +%v, want +%v", what, got.Sub(t0), want.Sub(t0))
	}
}
