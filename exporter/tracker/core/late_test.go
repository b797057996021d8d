package core_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// short is a process that has ended before its first event is read.
type short struct {
	core.Subject
	kinds []sensor.Kind // what is yet to be read of it
	works bool
}

// Whatever comes first of what the kernel, the engine and the device tell, and
// whatever the clock does meanwhile: each process that made a context is one task.
func TestEachProcessThatEndedIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := core.New(core.Options{})
		m.SensorInUse(task.SourceUprobe, "", true)
		labels := map[string]string{task.LabelDeadline: "9s"}
		if rapid.Bool().Draw(t, "busy") {
			labels[task.LabelRelease] = "busy"
		}
		c := newContainer(web, labels)
		engine := []container.Event{{Kind: container.Started, ID: c.ID, Container: &c}, {Kind: container.Died, ID: c.ID}, {Kind: container.Removed, ID: c.ID}}
		var left []*short
		want := 0
		for i := range rapid.IntRange(1, 8).Draw(t, "processes") {
			// Some share a PID.
			s := &short{works: rapid.IntRange(0, 3).Draw(t, "works") > 0, Subject: core.Subject{
				Process:   sensor.Process{PID: i % 3, Identity: fmt.Sprintf("boot/%d", i)},
				Container: c.ID, Started: time.Duration(i+1) * time.Second,
			}}
			if !s.works || rapid.Bool().Draw(t, "init") {
				s.kinds = append(s.kinds, sensor.Init)
			}
			if s.works {
				s.kinds = append(s.kinds, sensor.ContextMade)
				want++
			}
			if rapid.Bool().Draw(t, "end") {
				s.kinds = append(s.kinds, sensor.Exiting)
			}
			left = append(left, s)
		}
		now, count := at(100), 0
		take := func() {
			for _, f := range m.TakeFacts() {
				if f.Kind != core.Ended {
					continue
				}
				count++
				if x := f.Task; x.ContainerID != c.ID || x.End.Time.Before(x.Start.Time) || x.State != task.Ended {
					t.Fatalf("task %+v", x)
				}
			}
			if s := m.Snapshot(); len(s.Tasks) > 0 {
				t.Fatalf("shown as unfinished: %+v", s.Tasks)
			}
		}
		for len(left) > 0 || len(engine) > 0 {
			if now.Before(at(109)) { // what is late for longer than the limits is forgotten
				now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			}
			switch n := rapid.IntRange(-3, max(0, len(left)-1)).Draw(t, "next"); {
			case n == -1 && len(engine) > 0:
				ev := engine[0]
				engine, ev.Time = engine[1:], now
				m.Container(ev, now)
			case n == -2:
				m.Tick(now)
			case n == -3:
				m.Device(device.Reading{Time: now, GPUs: []device.GPU{{UUID: gpuA}}}, now)
			case n >= 0 && len(left) > 0:
				s := left[n]
				m.MeetGone(s.Subject, now)
				m.Sensor(s.Process, sensor.Event{PID: s.PID, Kind: s.kinds[0], Time: at(float64(3 - len(s.kinds))), Source: task.SourceUprobe})
				if s.kinds = s.kinds[1:]; len(s.kinds) == 0 {
					left = append(left[:n], left[n+1:]...)
				}
			}
			take()
		}
		m.Tick(now.Add(2 * time.Second))
		take()
		if count != want {
			t.Fatalf("%d tasks of %d processes that made a context", count, want)
		}
		m.Tick(now.Add(time.Minute))
		m.Tick(now.Add(2 * time.Minute))
		take()
		if a := m.Activity(); count != want || a.UnknownContainers+a.Candidates+a.Unfinished > 0 {
			t.Fatalf("%d tasks, and %+v minutes later", count, a)
		}
	})
}
