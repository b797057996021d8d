package tracker

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// While events wait to be read, one of them may be the launch that continues a busy interval.
func TestAGapWaitsForEventsThatAreThere(t *testing.T) {
	m := core.New(core.Options{})
	m.SensorInUse(task.SourceUprobe, "", true)
	now := time.Now()
	c := container.Container{ID: "c", Name: "c", Labels: map[string]string{task.LabelRelease: "busy"}}
	m.Container(container.Event{Kind: container.Started, ID: c.ID, Time: now, Container: &c}, now)
	p := sensor.Process{PID: 1, Identity: "p"}
	m.Meet(core.Subject{Process: p, Container: c.ID})
	for i, kind := range []sensor.Kind{sensor.ContextMade, sensor.Launched, sensor.WorkDone} {
		m.Sensor(p, sensor.Event{PID: 1, Kind: kind, Time: now.Add(time.Duration(i-2) * time.Millisecond)})
	}
	l := &loop{m: m, starts: make(chan sensor.Event, 1), gap: time.NewTimer(time.Hour)}
	l.starts <- sensor.Event{}
	for _, after := range []time.Duration{15 * time.Millisecond, 109 * time.Millisecond} {
		if l.onGap(now.Add(after)); m.Unfinished() != 1 || !l.gapSet {
			t.Errorf("after %v: %d unfinished, want 1 that waits", after, m.Unfinished())
		}
	}
	if l.onGap(now.Add(110 * time.Millisecond)); m.Unfinished() != 0 || l.gapSet {
		t.Error("it waits for longer than an event takes")
	}
}
