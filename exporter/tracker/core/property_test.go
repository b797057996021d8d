package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// chaos plays any order of inputs, also those that cannot happen, and checks
// after each what must hold whatever happened.
type chaos struct {
	m     *core.Core
	now   time.Time
	born  map[string]task.Task // the latest form of every unfinished task, by id
	ended map[string]bool
	began map[string]bool // id and GPU
}

func (c *chaos) input(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "container")
	pid := rapid.IntRange(1, 4).Draw(t, "pid")
	p := sensor.Process{PID: pid, Identity: fmt.Sprintf("boot/%d", pid)}
	switch rapid.IntRange(0, 13).Draw(t, "input") {
	case 0:
		b := newContainer(name, map[string]string{task.LabelDeadline: "2s", task.LabelRelease: rapid.SampledFrom([]string{"process", "busy"}).Draw(t, "release")})
		c.m.Container(container.Event{Kind: container.Started, ID: b.ID, Time: c.now, Container: &b}, c.now)
	case 1:
		kind := rapid.SampledFrom([]container.EventKind{container.Died, container.Removed, container.Paused, container.Unpaused}).Draw(t, "kind")
		c.m.Container(container.Event{Kind: kind, ID: id(name), Time: c.now}, c.now)
	case 2:
		c.m.Meet(core.Subject{Process: p, Container: id(name)})
	case 3:
		kind := rapid.SampledFrom([]sensor.Kind{sensor.LibraryOpened, sensor.Init, sensor.ContextMade, sensor.Launched, sensor.WorkDone,
			sensor.Leaving, sensor.Left, sensor.Exiting}).Draw(t, "kind")
		c.m.Sensor(p, sensor.Event{PID: pid, Kind: kind, Time: c.now, Source: task.SourceUprobe})
	case 4:
		c.m.Exit(sensor.Exit{Process: p, Time: c.now})
	case 5, 6:
		r := c.reading(t)
		for _, p := range c.m.Vanished(r) {
			if rapid.Bool().Draw(t, "exits") {
				c.m.Vanishing(p, c.now)
			}
		}
		c.m.Device(r, c.now)
	case 7:
		c.m.Stopped(p.Identity, rapid.Bool().Draw(t, "stopped"), c.now)
	case 8:
		if rapid.Bool().Draw(t, "of the share") {
			c.m.Change(id(name), share(float64(rapid.IntRange(0, 5).Draw(t, "share"))/5), c.now)
		} else {
			c.m.Change(id(name), due(float64(rapid.IntRange(0, 5).Draw(t, "deadline"))), c.now)
		}
	case 9:
		c.m.Tick(c.now)
		if next := c.m.CloseBusy(c.now); !next.IsZero() && !next.After(c.now) {
			t.Fatalf("a gap that is over at %v waits still at %v", next, c.now)
		}
	case 10: // of a process that had this PID before
		gone := sensor.Process{PID: pid, Identity: fmt.Sprintf("gone/%d", pid)}
		kind := rapid.SampledFrom([]sensor.Kind{sensor.Init, sensor.ContextMade, sensor.Exiting}).Draw(t, "kind")
		c.m.MeetGone(core.Subject{Process: gone, Container: id(name), Started: time.Duration(pid)}, c.now)
		c.m.Sensor(gone, sensor.Event{PID: pid, Kind: kind, Time: c.now.Add(-time.Second), Source: task.SourceUprobe})
	case 11:
		c.m.Followed(p, rapid.Bool().Draw(t, "followed"), c.now)
	case 12:
		busy := rapid.Bool().Draw(t, "busy tracking")
		c.m.SensorInUse(task.SourceUprobe, "", busy)
	case 13:
		off := map[int]time.Duration{}
		if rapid.Bool().Draw(t, "off") {
			off[pid] = 0
		}
		c.m.Off(off, c.now)
	}
}

func (c *chaos) reading(t *rapid.T) device.Reading {
	r := device.Reading{Time: c.now}
	for _, uuid := range []string{gpuA, gpuB} {
		g := device.GPU{UUID: uuid, MemoryTotal: 1}
		for pid := 1; pid <= 4; pid++ {
			if rapid.Bool().Draw(t, "listed") {
				g.Processes = append(g.Processes, device.Process{PID: pid, MemoryUsed: 1})
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
			g.Processes, g.ProcessesErr = nil, errDriver
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}

func (c *chaos) check(t *rapid.T) {
	for _, f := range c.m.TakeFacts() {
		switch f.Kind {
		case core.Began:
			if key := f.Task.ID + f.GPU; c.began[key] {
				t.Fatalf("%s began twice on %s", f.Task.ID, f.GPU)
			} else {
				c.began[key] = true
			}
		case core.Ended:
			if c.ended[f.Task.ID] {
				t.Fatalf("%s ended twice", f.Task.ID)
			}
			c.ended[f.Task.ID] = true
			for _, gpu := range f.Task.GPUs {
				if !c.began[f.Task.ID+gpu] {
					t.Fatalf("%s ended on %s without having begun there", f.Task.ID, gpu)
				}
			}
		}
	}
	s := c.m.Snapshot()
	unfinished := map[string]bool{}
	for i, u := range s.Tasks {
		unfinished[u.ID] = true
		was, known := c.born[u.ID]
		c.born[u.ID] = u
		switch {
		case !u.State.Unfinished() || u.End != nil || c.ended[u.ID]:
			t.Fatalf("listed as unfinished: %+v", u)
		case u.Container == "" || len(u.GPUs) == 0:
			t.Fatalf("without container or GPU: %+v", u)
		case (u.GPUs[0] == task.UnknownGPU) != (u.GPUReason != "") || !slices.IsSorted(u.GPUs):
			t.Fatalf("GPUs %v, reason %q", u.GPUs, u.GPUReason)
		case known && u.Start.Time.After(was.Start.Time):
			t.Fatalf("the start moved later: %v → %v", was.Start, u.Start)
		case known && (u.HeldSeconds < was.HeldSeconds || u.PausedSeconds < was.PausedSeconds):
			t.Fatalf("waiting time shrank: %+v → %+v", was, u)
		case i > 0 && u.Start.Time.Before(s.Tasks[i-1].Start.Time):
			t.Fatal("not oldest first")
		}
	}
	for id := range c.born {
		if !unfinished[id] && !c.ended[id] {
			t.Fatalf("%s vanished without an end", id)
		}
	}
	for i, e := range s.Ended {
		if e.End == nil || e.End.Time.Before(e.Start.Time) || e.State.Unfinished() || float64(e.HeldSeconds+e.PausedSeconds) > e.Duration(c.now).Seconds()+1e-6 {
			t.Fatalf("ended task: %+v", e)
		}
		if i > 0 && e.End.Time.After(s.Ended[i-1].End.Time) {
			t.Fatal("not latest end first")
		}
	}
}

func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{m: core.New(core.Options{MaxEnded: 10}), now: t0,
			born: map[string]task.Task{}, ended: map[string]bool{}, began: map[string]bool{}}
		c.m.SensorInUse(task.SourceUprobe, "", rapid.Bool().Draw(t, "busy"))
		for range rapid.IntRange(1, 60).Draw(t, "inputs") {
			c.input(t)
			c.check(t)
		}
	})
}
