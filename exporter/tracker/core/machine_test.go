package core_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

func TestStart(t *testing.T) {
	tests := []struct {
		name   string
		play   func(w *world)
		start  float64
		source task.Source
		bound  task.Seconds
	}{
		{"cuInit shortly before the context", func(w *world) {
			w.sense(1, pid, sensor.Init)
			w.sense(1.5, pid, sensor.ContextMade)
		}, 1, task.SourceUprobe, 0.001},
		{"cuInit exactly 2 s before", func(w *world) {
			w.sense(1, pid, sensor.Init)
			w.sense(3, pid, sensor.ContextMade)
		}, 1, task.SourceUprobe, 0.001},
		{"cuInit long before: an availability check", func(w *world) {
			w.sense(1, pid, sensor.Init)
			w.sense(3.5, pid, sensor.ContextMade)
		}, 3.5, task.SourceUprobe, 0.001},
		{"the first cuInit counts", func(w *world) {
			w.sense(1, pid, sensor.Init)
			w.sense(2, pid, sensor.Init)
			w.sense(2.5, pid, sensor.ContextMade)
		}, 1, task.SourceUprobe, 0.001},
		{"only the context call", func(w *world) { w.sense(1, pid, sensor.ContextMade) }, 1, task.SourceUprobe, 0.001},
		{"only the device's list: as late as the readings are apart, and the list behind", func(w *world) {
			w.read(1)
			w.list(1.5, gpuA, pid)
		}, 1.5, task.SourceDevice, 0.75},
		{"the list before any other reading: nothing bounds it", func(w *world) {
			w.list(1.5, gpuA, pid)
		}, 1.5, task.SourceDevice, task.Seconds(math.Inf(1))},
		{"cuInit seen, context call not", func(w *world) {
			w.sense(1, pid, sensor.Init)
			w.list(1.2, gpuA, pid)
		}, 1, task.SourceUprobe, 0.001},
		{"library opened, then listed", func(w *world) {
			w.sense(1, pid, sensor.LibraryOpened)
			w.list(1.2, gpuA, pid)
		}, 1, task.SourceUprobe, 0.001},
		{"cuInit is better than the open before it", func(w *world) {
			w.sense(1, pid, sensor.LibraryOpened)
			w.sense(1.1, pid, sensor.Init)
			w.list(1.2, gpuA, pid)
		}, 1.1, task.SourceUprobe, 0.001},
		{"the list overtakes the event", func(w *world) {
			w.read(1)
			w.list(1.2, gpuA, pid)
			w.sense(1.1, pid, sensor.ContextMade)
		}, 1.1, task.SourceUprobe, 0.001},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.run(0, web, nil)
			w.meet(pid, web)
			tt.play(w)
			got := w.one()
			same(t, "start", got.Start.Time, at(tt.start))
			same(t, "deadline", got.Deadline, at(tt.start+9))
			if got.Start.Source != tt.source || math.Abs(float64(got.Start.ErrorBound-tt.bound)) > 1e-9 && got.Start.ErrorBound != tt.bound {
				t.Errorf("mark %+v, want source %s ± %v", got.Start, tt.source, tt.bound)
			}
		})
	}
}

func TestBornBoundsTheStart(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.m.Meet(core.Subject{Process: sensor.Process{PID: pid, Identity: identity(pid)}, Container: id(web), Born: at(1.4)})
	w.list(1.5, gpuA, pid)
	if b := w.one().Start.ErrorBound; math.Abs(float64(b)-0.1) > 1e-9 {
		t.Errorf("error bound %v, want 0.1: no process works before it is born", b)
	}
}

func TestCandidateIsNoTask(t *testing.T) {
	for _, kind := range []sensor.Kind{sensor.LibraryOpened, sensor.Init} {
		w := newWorld(t)
		w.run(0, web, nil)
		w.meet(pid, web)
		w.sense(1, pid, kind)
		w.read(2)
		w.none()
		if a := w.m.Activity(); a.Candidates != 1 {
			t.Errorf("%s: %d candidates, want 1", kind, a.Candidates)
		}
		w.exit(3, pid)
		w.none()
		if n := w.count(core.Ended, ""); n != 0 {
			t.Errorf("%s: %d ends of a task that never was", kind, n)
		}
	}
}

func TestEnd(t *testing.T) {
	tests := []struct {
		name   string
		play   func(w *world)
		end    float64 // 0: still running
		source task.Source
	}{
		{"exit", func(w *world) { w.exit(5, pid) }, 5, task.SourcePidfd},
		{"begins to exit", func(w *world) { w.sense(4, pid, sensor.Exiting) }, 4, task.SourceUprobe},
		{"begins to exit, is listed on, has exited", func(w *world) {
			w.sense(4, pid, sensor.Exiting)
			w.list(4.05, gpuA, pid)
			w.sense(4.06, pid, sensor.Exiting)
			w.exit(4.1, pid)
			w.list(4.2, gpuA)
		}, 4, task.SourceUprobe},
		{"destroys its context, told to the end", func(w *world) {
			w.sense(4, pid, sensor.Leaving)
			w.list(4.02, gpuA) // the driver lists it no more
			w.one()
			w.sense(4.06, pid, sensor.Left)
			w.list(4.08, gpuA)
		}, 4.06, task.SourceUprobe},
		{"destroys its context and exits", func(w *world) {
			w.sense(4, pid, sensor.Leaving)
			w.list(4.02, gpuA)
			w.sense(4.06, pid, sensor.Left)
			w.sense(4.061, pid, sensor.Exiting)
			w.list(4.08, gpuA)
			w.exit(4.1, pid)
		}, 4.061, task.SourceUprobe},
		{"exits: the list overtakes the event", func(w *world) {
			w.vanish(4.02, gpuA, pid)
			w.one()
			w.list(4.04, gpuA)
			w.sense(4, pid, sensor.Exiting)
			w.exit(4.1, pid)
		}, 4, task.SourceUprobe},
		{"exits: the list overtakes the exit, and nothing else tells", func(w *world) {
			w.vanish(4.02, gpuA, pid)
			w.exit(4.03, pid)
		}, 4.03, task.SourcePidfd},
		{"destroys one of its contexts", func(w *world) {
			w.sense(4, pid, sensor.Leaving)
			w.sense(4.06, pid, sensor.Left)
			w.list(4.1, gpuA, pid)
			w.list(5, gpuA, pid)
		}, 0, ""},
		{"leaves the list while alive", func(w *world) { w.list(4, gpuA); w.exit(9, pid) }, 4, task.SourceDevice},
		{"the device does not answer", func(w *world) { w.m.DeviceDown("hangs", at(4)) }, 0, ""},
		{"the list of its GPU cannot be read", func(w *world) {
			w.fail[gpuA] = errDriver
			w.list(4, gpuA)
		}, 0, ""},
		{"its GPU is lost", func(w *world) { w.uuids = nil; w.read(4) }, 0, ""},
		{"its container dies but not the process", func(w *world) { w.event(4, container.Died, web) }, 0, ""},
		{"the engine goes away", func(w *world) { w.m.EngineDown("gone"); w.read(4) }, 0, ""},
		{"a GPU that it does not use is in trouble", func(w *world) {
			w.uuids = []string{gpuA, gpuB}
			w.fail[gpuB] = errDriver
			w.list(4, gpuA)
		}, 4, task.SourceDevice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.run(0, web, nil)
			w.meet(pid, web)
			w.sense(1, pid, sensor.Init)
			w.sense(1.1, pid, sensor.ContextMade)
			w.list(2, gpuA, pid)
			w.read(3)
			tt.play(w)
			if tt.end == 0 {
				w.one()
				return
			}
			got := w.last()
			same(t, "end", got.End.Time, at(tt.end))
			if got.State != task.Ended || got.End.Source != tt.source || got.Outcome() != task.Hit {
				t.Errorf("ended task: %+v", got)
			}
			if tt.source == task.SourceDevice && got.End.ErrorBound != 1 {
				t.Errorf("error bound %v, want the second since the list had it", got.End.ErrorBound)
			}
			if n := w.count(core.Ended, ""); n != 1 {
				t.Errorf("the end was told %d times", n)
			}
		})
	}
}

// Nobody has vanished from a list that could not be read.
func TestUnreadListsVanishNobody(t *testing.T) {
	w := begun(t)
	w.fail[gpuA] = errDriver
	if gone := w.m.Vanished(w.reading(3)); len(gone) != 0 {
		t.Errorf("%v have vanished", gone)
	}
}

// A process that begins to exit, and whose exit no event tells, has ended all the same.
func TestVanishedForLong(t *testing.T) {
	w := begun(t)
	w.vanish(3, gpuA, pid)
	w.list(4.9, gpuA)
	w.one()
	w.list(5, gpuA)
	got := w.last()
	same(t, "end", got.End.Time, at(3))
	if got.End.Source != task.SourceDevice || got.End.ErrorBound != 1 {
		t.Errorf("its end is %+v, want one within the second since the list had it", got.End)
	}
}

func TestSecondTaskOfOneProcess(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.sense(1, pid, sensor.ContextMade)
	w.list(2, gpuA, pid)
	w.list(3, gpuA)
	first := w.last()
	w.sense(3.5, pid, sensor.ContextMade)
	second := w.one()
	same(t, "second start", second.Start.Time, at(3.5))
	if first.ID == second.ID {
		t.Errorf("both are called %s", first.ID)
	}
}

// A process that destroys its context and makes another, faster than the device is read.
func TestSecondTaskBeforeTheListTellsTheEndOfTheFirst(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.list(3, gpuA, pid)
	w.sense(3.01, pid, sensor.Leaving)
	w.sense(3.05, pid, sensor.Left)
	w.sense(3.06, pid, sensor.ContextMade)
	w.one()
	w.list(3.1, gpuA)
	s := w.snapshot()
	if len(s.Tasks) != 1 || len(s.Ended) != 1 {
		t.Fatalf("unfinished %+v, ended %+v; want one of each", s.Tasks, s.Ended)
	}
	same(t, "end of the first", s.Ended[0].End.Time, at(3.05))
	same(t, "start of the second", s.Tasks[0].Start.Time, at(3.06))
	// It leaves one of two contexts that the device lists as one.
	w.list(3.3, gpuA, pid)
	w.sense(4, pid, sensor.Left)
	w.sense(4.1, pid, sensor.ContextMade)
	w.list(5, gpuA, pid)
	w.list(6, gpuA)
	same(t, "end of the second", w.last().End.Time, at(6))
}

func TestShortTaskBeforeItsContainerIsKnown(t *testing.T) {
	w := newWorld(t)
	w.read(0.5)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.sense(1.01, pid, sensor.ContextMade)
	w.exit(1.03, pid)
	w.none()
	if n := w.m.Activity().UnknownContainers; n != 1 {
		t.Errorf("%d unknown containers, want 1", n)
	}
	w.run(1.1, web, nil)
	got := w.last()
	same(t, "start", got.Start.Time, at(1))
	same(t, "end", got.End.Time, at(1.03))
	if w.count(core.Began, "") != 1 || w.count(core.Ended, "") != 1 {
		t.Errorf("facts: %+v", w.facts)
	}
}

func TestExitBeganBeforeItsContainerIsKnown(t *testing.T) {
	w := newWorld(t)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.sense(1.01, pid, sensor.ContextMade)
	w.sense(1.2, pid, sensor.Exiting)
	w.exit(1.3, pid)
	w.run(1.4, web, nil)
	w.none()
	ended := w.m.Snapshot().Ended
	if len(ended) != 1 {
		t.Fatalf("%d ended tasks, want 1", len(ended))
	}
	same(t, "end", ended[0].End.Time, at(1.2))
}

func TestLateContextEventAfterTheExit(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.Init)
	w.exit(1.05, pid)
	w.sense(1.02, pid, sensor.ContextMade)
	got := w.last()
	same(t, "end", got.End.Time, at(1.05))
	if got.GPUs[0] != task.UnknownGPU || got.GPUReason == "" {
		t.Errorf("GPUs %v, reason %q: the device was never read", got.GPUs, got.GPUReason)
	}
}

func TestGoneProcessIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.exit(2, pid)
	w.m.Tick(at(20))
	if _, ok := w.m.Known(pid); ok {
		t.Error("a process that exited 18 s ago is still known")
	}
	if n := w.count(core.Missed, ""); n != 1 {
		t.Errorf("told %d times that its task was missed", n)
	}
	w.run(21, web, nil)
	w.none()
}

func TestReusedPID(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.m.Meet(core.Subject{Process: sensor.Process{PID: pid, Identity: "other"}, Container: id(web)})
	w.exit(2, pid) // the old one's, late
	w.last()
	w.sense(3, pid, sensor.ContextMade)
	if got := w.one(); got.ID[:5] != "other" {
		t.Errorf("task %s, want the new process's", got.ID)
	}
}

func TestStatesAndTheirTimes(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	step := func(s float64, state task.State, held, paused task.Seconds, since float64) {
		t.Helper()
		got := w.one()
		if got.State != state || math.Abs(float64(got.HeldSeconds-held)) > 1e-9 || math.Abs(float64(got.PausedSeconds-paused)) > 1e-9 {
			t.Errorf("at %v s: %s held %v paused %v, want %s %v %v", s, got.State, got.HeldSeconds, got.PausedSeconds, state, held, paused)
		}
		same(t, "state since", got.StateSince, at(since))
		same(t, "deadline", got.Deadline, at(10))
	}
	step(1, task.Running, 0, 0, 1)
	w.m.Stopped(identity(pid), true, at(2))
	step(2, task.Held, 0, 0, 2)
	w.event(4, container.Paused, web) // a long hold goes over into a pause
	step(4, task.Paused, 2, 0, 4)
	w.event(7, container.Unpaused, web)
	step(7, task.Held, 2, 3, 7)
	w.m.Stopped(identity(pid), false, at(8))
	step(8, task.Running, 3, 3, 8)
	w.event(9, container.Paused, web)
	w.event(9, container.Paused, web) // told twice
	w.exit(10, pid)
	got := w.last()
	if got.HeldSeconds != 3 || got.PausedSeconds != 4 {
		t.Errorf("held %v, paused %v; want 3 and 4", got.HeldSeconds, got.PausedSeconds)
	}
}

func TestTaskOfAPausedContainer(t *testing.T) {
	w := newWorld(t)
	c := newContainer(web, nil)
	c.Paused = true
	w.m.Containers([]container.Container{c}, at(0))
	w.meet(pid, web)
	w.list(1, gpuA, pid)
	if got := w.one(); got.State != task.Paused {
		t.Errorf("state %s", got.State)
	}
	c.Paused = false // learned from a list: the event was missed
	w.m.Containers([]container.Container{c}, at(2))
	if got := w.one(); got.State != task.Running || got.PausedSeconds != 1 {
		t.Errorf("state %s after %v s of pause", got.State, got.PausedSeconds)
	}
}

// The engine is asked for a container that it has not told of, and not for ever: it
// may be another engine's.
func TestContainerOfAnotherEngine(t *testing.T) {
	w := newWorld(t)
	w.meet(1, "stranger")
	w.sense(0, 1, sensor.ContextMade)
	asked := func(s float64) int {
		w.m.Tick(at(s))
		return w.m.Activity().UnknownContainers
	}
	for _, tt := range []struct {
		at   float64
		want int
	}{{1, 1}, {10.5, 1}, {11.5, 0}, {60, 0}} {
		if n := asked(tt.at); n != tt.want {
			t.Errorf("%v s after it was met the engine is asked for %d containers, want %d", tt.at, n, tt.want)
		}
	}
	w.meet(2, "newcomer")
	w.sense(61, 2, sensor.ContextMade)
	if n := asked(61); n != 1 {
		t.Errorf("the engine is asked for %d containers, want the new one", n)
	}
	w.run(62, "stranger", nil)
	same(t, "start", w.one().Start.Time, at(0))
}

func TestUnattributed(t *testing.T) {
	w := newWorld(t)
	w.meet(1, "")
	w.meet(2, "stranger")
	w.list(1, gpuA, 1, 2, 3)
	got := w.snapshot().Health.Unattributed
	if got[task.HostProcess] != 1 || got[task.UnknownContainer] != 1 || got[task.GoneProcess] != 1 {
		t.Errorf("unattributed: %v", got)
	}
	w.run(1.5, "stranger", nil) // never ignored for ever
	same(t, "start", w.one().Start.Time, at(1))
	w.meet(1, web) // it was moved to a container's cgroup after all
	w.run(2, web, nil)
	w.list(3, gpuA, 1, 2)
	if s := w.snapshot(); len(s.Tasks) != 2 || s.Health.Unattributed[task.HostProcess] != 0 {
		t.Errorf("%d tasks, unattributed %v", len(s.Tasks), s.Health.Unattributed)
	}
}

func TestRename(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	c := newContainer(web, map[string]string{task.LabelDeadline: "9s"})
	c.Name = "api"
	w.m.Container(container.Event{Kind: container.Renamed, ID: c.ID, Time: at(2), Container: &c}, at(2))
	if got := w.one(); got.Container != "api" {
		t.Errorf("task of %s", got.Container)
	}
	// One that does not run does not come to run by it.
	stopped := newContainer("stopped", nil)
	stopped.PID = 0
	w.m.Container(container.Event{Kind: container.Renamed, ID: stopped.ID, Time: at(3), Container: &stopped}, at(3))
	if s := w.snapshot(); len(s.Containers) != 1 {
		t.Errorf("containers %+v", s.Containers)
	}
}

// The engine lists a container that it cannot describe: what was known of it counts, and what the
// list says where nothing was.
func TestContainerThatIsOnlyNamed(t *testing.T) {
	w := newWorld(t)
	c := newContainer(web, map[string]string{task.LabelDeadline: "9s"})
	c.Started, c.GPUs, c.Command, c.Paused = at(0), []string{gpuA}, "serve", true
	named := container.Container{ID: c.ID, Name: "api", Labels: map[string]string{task.LabelDeadline: "8s"}, Partial: true}
	w.m.Containers([]container.Container{named}, at(1))
	if got := w.snapshot().Containers; len(got) != 1 || got[0].Name != "api" || got[0].Spec.Deadline != 8 {
		t.Errorf("unknown before: got %+v", got)
	}
	w.m.Containers([]container.Container{c}, at(2))
	before := w.snapshot().Containers
	w.m.Containers([]container.Container{named}, at(3))
	w.m.Container(container.Event{Kind: container.Renamed, ID: c.ID, Time: at(4), Container: &named}, at(4))
	if got := w.snapshot().Containers; !reflect.DeepEqual(got, before) {
		t.Errorf("got %+v, want %+v", got, before)
	}
}

func TestSnapshotsAreImmutable(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.list(1, gpuA, pid)
	before := w.snapshot()
	w.list(2, gpuA)
	w.run(3, "other", nil)
	w.snapshot()
	if len(before.Tasks) != 1 || before.Tasks[0].State != task.Running || len(before.Containers) != 1 || len(before.Ended) != 0 {
		t.Errorf("a published snapshot changed: %+v", before)
	}
}

func TestChangedTellsFactsFromMeasurements(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.list(1, gpuA, pid)
	w.snapshot()
	w.read(2)
	if changed, measured := w.m.Changed(); changed || measured {
		t.Errorf("the same reading: changed %v, measured %v", changed, measured)
	}
	w.m.Device(device.Reading{GPUs: []device.GPU{{UUID: gpuA, MemoryTotal: 100, MemoryUsed: 5, Utilization: math.NaN(),
		Processes: []device.Process{{PID: pid, MemoryUsed: 9, SMUtilization: math.NaN()}}}}}, at(3))
	if changed, measured := w.m.Changed(); changed || !measured {
		t.Errorf("other memory: changed %v, measured %v", changed, measured)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	w := newWorld(t)
	w.m = core.New(core.Options{MaxEnded: 3})
	w.run(0, "rare", nil)
	w.run(0, "busy", nil)
	w.meet(1, "rare")
	w.sense(1, 1, sensor.ContextMade)
	w.exit(2, 1)
	for i := range 20 {
		s := 3 + float64(i)
		w.meet(2, "busy")
		w.sense(s, 2, sensor.ContextMade)
		w.exit(s+0.5, 2)
	}
	ended := w.snapshot().Ended
	if len(ended) != 4 || ended[3].Container != "rare" {
		t.Errorf("history: %d tasks, the last of %s; want 3 and the last one of rare", len(ended), ended[len(ended)-1].Container)
	}
	for i := 1; i < len(ended); i++ {
		if ended[i].End.Time.After(ended[i-1].End.Time) {
			t.Error("not latest first")
		}
	}
	changes := w.m.TakeChanges()
	if len(changes.Ended) != 4 {
		t.Errorf("%d ended tasks to store, want 4", len(changes.Ended))
	}
}
