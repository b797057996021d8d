package tracker_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

func TestExactStartByTheSensor(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.pass(time.Second)
		if h := b.Snapshot().Health; h.Sensor != task.SourceUprobe || !strings.Contains(h.SensorReason, "no BPF here") {
			t.Errorf("sensor %s, because %q", h.Sensor, h.SensorReason)
		}
		if len(probe.explored) == 0 || probe.explored[0] != pid {
			t.Errorf("libcuda was looked for in %v, want the new container's process", probe.explored)
		}
		began := time.Now()
		probe.sense(pid, sensor.Init)
		b.pass(50 * time.Millisecond)
		b.tasks(0)
		probe.sense(pid, sensor.ContextMade)
		synctest.Wait()
		if got := b.tasks(1)[0]; !got.Start.Time.Equal(began) || got.Start.Source != task.SourceUprobe {
			t.Errorf("start %+v, want cuInit's", got.Start)
		}
		probe.err <- errTrouble // the sensor dies: the list is polled, and it is tried again
		b.pass(time.Second)
		if h := b.Snapshot().Health; h.Sensor != task.SourceDevice || !strings.Contains(h.SensorReason, "trouble") {
			t.Errorf("sensor %s, because %q", h.Sensor, h.SensorReason)
		}
		b.tasks(1)
		b.pass(31 * time.Second)
		if h := b.Snapshot().Health; h.Sensor != task.SourceUprobe {
			t.Errorf("sensor %s half a minute later, want uprobe again", h.Sensor)
		}
	})
}

// A sensor that failed for a while takes over again from the next best one.
func TestBetterSensorComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		best, second := newProbe(), newProbe()
		var tries atomic.Int64
		var broken atomic.Bool
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: func() (sensor.Starts, error) {
			tries.Add(1)
			if broken.Load() {
				return nil, errTrouble
			}
			return best, nil
		}}, tracker.StartSensor{Source: task.SourceFanotify, Open: always(second)})
		defer b.stop()
		inUse := func(want task.Source) {
			t.Helper()
			if h := b.Snapshot().Health; h.Sensor != want {
				t.Errorf("sensor %s (%q), want %s", h.Sensor, h.SensorReason, want)
			}
		}
		inUse(task.SourceUprobe)

		broken.Store(true)
		best.err <- errTrouble
		b.pass(time.Second)
		inUse(task.SourceFanotify)
		b.pass(3 * time.Hour)
		inUse(task.SourceFanotify)
		if n := tries.Load(); n < 8 || n > 11 {
			t.Errorf("the better one was tried %d times in three hours, want seldomer and seldomer, at last once an hour", n)
		}

		broken.Store(false)
		b.pass(61 * time.Minute)
		inUse(task.SourceUprobe)
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		began := time.Now()
		best.sense(pid, sensor.Init)
		best.sense(pid, sensor.ContextMade)
		b.pass(time.Second)
		if got := b.tasks(1)[0]; !got.Start.Time.Equal(began) {
			t.Errorf("start %+v, want cuInit's at %v", got.Start, began)
		}

		best.err <- errTrouble // once, after an hour: it is back at once
		b.pass(time.Second)
		inUse(task.SourceFanotify)
		b.pass(2 * time.Minute)
		inUse(task.SourceUprobe)
	})
}

// Processes that cannot be watched are tried again, and do not fill the log.
func TestProcessesThatCannotBeWatched(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.refuse(errTrouble)
		for pid := 1; pid <= 20; pid++ {
			b.host.start(pid, c.ID)
		}
		b.card.set(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
		b.pass(70 * time.Second)
		if n := b.log.count("cannot be watched"); n < 2 || n > 3 {
			t.Errorf("%d lines about it in 70 s, want one each half a minute", n)
		}
		b.tasks(0)
		b.host.refuse(nil)
		b.pass(2 * time.Second)
		b.tasks(20)
	})
}

// What sensors lose is told, and adds up over the sensors.
func TestEventsOfTheSensorThatAreLost(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		lost := func(want uint64) {
			t.Helper()
			b.pass(15 * time.Second)
			if n := b.Snapshot().Health.EventsLost; n != want {
				t.Errorf("%d events lost, want %d", n, want)
			}
		}
		lost(0)
		probe.lost.Store(3)
		lost(3)
		lost(3)
		probe.lost.Store(5)
		probe.err <- errTrouble
		lost(5)
		probe.lost.Store(2) // of the next one
		b.pass(time.Minute)
		lost(7)
		if n := b.log.count("dropped events"); n != 3 {
			t.Errorf("%d lines about it, want one each time", n)
		}
	})
}

// A process that the device lists, and whose calls nobody saw, has a libcuda that is not
// watched: it is looked for there, for those that come after.
func TestLibraryOfAListedProcessIsLookedFor(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("web")
		for _, p := range []int{pid + 1, pid + 2, pid + 3} {
			b.host.start(p, c.ID)
		}
		b.host.start(pid+4, "") // of no container
		b.pass(time.Second)
		probe.sense(pid+1, sensor.Init)
		b.card.set(pid+1, pid+2, pid+4)
		b.pass(5 * time.Second)
		probe.mu.Lock()
		defer probe.mu.Unlock()
		if got := fmt.Sprint(probe.loaded); got != fmt.Sprint([]int{pid + 2}) {
			t.Errorf("libcuda was looked for in %s, want the process of a container that was not seen", got)
		}
	})
}

// So it is for those that were there before the sensor.
func TestLibraryOfAProcessOfBeforeTheSensorIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.newContainer("web")
		b.host.start(pid+1, c.ID)
		b.card.set(pid + 1)
		p := newProbe()
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(p)})
		b.pass(time.Second)
		p.mu.Lock()
		if got := fmt.Sprint(p.loaded); got != fmt.Sprint([]int{pid + 1}) {
			t.Errorf("libcuda was looked for in %s", got)
		}
		p.mu.Unlock()
		b.stop()
	})
}

// The sensor is told of whom it cannot have seen start, also when it begins anew: its
// word, not the pidfd's later one, is the end of their tasks.
func TestEndsOfTasksThatTheSensorDidNotSeeStart(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(time.Second)
		b.tasks(1)
		b.stop()
		p := newProbe()
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(p)})
		b.host.start(pid+1, c.ID)
		b.card.set(pid, pid+1)
		b.pass(time.Second)
		b.tasks(2)
		for one := range 2 {
			if !p.knows(pid + one) {
				t.Errorf("the sensor knows %v, want both processes", p.known)
			}
			exiting := time.Now()
			p.late(0, pid+one, 1, "", sensor.Exiting)
			b.pass(100 * time.Millisecond)
			b.host.exit(pid + one)
			b.pass(time.Millisecond)
			if x := b.Snapshot().Ended[0]; !x.End.Time.Equal(exiting) || x.End.Source != task.SourceTracepoint {
				t.Errorf("end %+v, want %v", x.End, exiting)
			}
		}

		b.host.start(pid+2, c.ID)
		b.card.set(pid + 2)
		b.pass(time.Second)
		b.tasks(1)
		clear(p.known)
		p.err <- errTrouble // what it knew is gone with it
		b.pass(time.Minute)
		if !p.knows(pid + 2) {
			t.Error("a sensor that begins anew is not told of the task that it did not see start")
		}
		p.late(0, pid+2, 2, "", sensor.Exiting) // of another process that had this PID
		b.pass(time.Millisecond)
		b.tasks(1)
	})
}
