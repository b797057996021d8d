package core_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/clocktest"
)

// A pause is as long as it was, though the wall clock, by which the engine tells the time, is set meanwhile.
func TestPauseWhileTheClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, 0, time.Hour} {
		began := time.Now()
		now := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
		w := newWorld(t)
		engine := func(kind container.EventKind, now time.Time) {
			c := newContainer(web, map[string]string{task.LabelDeadline: "9s"})
			ev := container.Event{Kind: kind, ID: c.ID, Time: now.Round(0), Container: &c} // the wall clock alone
			w.m.Container(ev, now.Add(10*time.Millisecond))
		}
		engine(container.Started, now(0))
		w.meet(pid, web)
		of, _ := w.m.Known(pid)
		w.m.Sensor(of.Process, sensor.Event{PID: pid, Kind: sensor.ContextMade, Time: now(1), Source: task.SourceUprobe})
		engine(container.Paused, now(2))
		engine(container.Unpaused, clocktest.Set(t, now(5), set))
		if got := w.one(); got.State != task.Running || got.PausedSeconds != 3 {
			t.Errorf("set by %v: %s after %v s of pause, want 3", set, got.State, got.PausedSeconds)
		}
		engine(container.Paused, clocktest.Set(t, now(6), set))
		w.m.Exit(sensor.Exit{Process: of.Process, Time: clocktest.Set(t, now(8), set)})
		if got := w.last(); got.PausedSeconds != 5 || got.End.Time.Sub(got.Start.Time) != 7*time.Second {
			t.Errorf("set by %v: %v s of pause of %v, want 5 of 7s", set, got.PausedSeconds, got.End.Time.Sub(got.Start.Time))
		}
	}
}
