package core_test

import (
	"math"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// condition reads the condition of GPU A, whose counter is at so many joules.
func (w *world) condition(s, joules float64, sm map[int]float64) {
	w.m.Cards(device.CardReading{Time: at(s), Cards: []device.Card{{UUID: gpuA, Energy: &joules, SM: sm, Xids: map[uint64]uint64{13: 1}, LastXids: map[uint64]time.Time{13: at(1)}}}})
}

// switched is condition with the part of the time in which each process's context was on the card, while
// the card switches three times a second.
func (w *world) switched(s float64, sm, present map[int]float64) {
	joules, of := 0.0, map[int]float64{}
	for pid := range present {
		of[pid] = 1.5
	}
	w.m.Cards(device.CardReading{Time: at(s), Cards: []device.Card{{UUID: gpuA, Energy: &joules, Switches: &device.Switches{From: at(s - 0.1), Rate: 3, Of: of}, SM: sm, Present: present}}})
}

// sample reads how much the process uses GPU A, by the driver's samples, and returns the use of web.
func (w *world) sample(s, share float64, mps bool) float64 {
	w.t.Helper()
	w.m.Device(device.Reading{Time: at(s), GPUs: []device.GPU{{UUID: gpuA, MemoryTotal: 100, Processes: []device.Process{
		{PID: pid, MemoryUsed: 7, MPS: mps, SMUtilization: share}}}}}, at(s))
	for _, c := range w.snapshot().Containers {
		if c.Name == web {
			return c.SMUtilization[gpuA]
		}
	}
	w.t.Fatal("web is not there")
	return 0
}

func (w *world) card() task.Card {
	w.t.Helper()
	s := w.snapshot()
	if len(s.Cards) != 1 {
		w.t.Fatalf("cards %+v, want one", s.Cards)
	}
	return s.Cards[0]
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A container's account has what its processes did, begins at 0 when it has a process on the card,
// and outlives the process and the container for as long as rules look back.
func TestUsesOfACard(t *testing.T) {
	w := running(t)
	w.condition(2, 1000, nil)
	if c := w.card(); c.Uses != nil || c.OtherSeconds != nil || c.Xids[13] != 1 || !c.LastXids[13].Equal(at(1)) {
		t.Errorf("without samples %+v, want the card alone", c)
	}
	w.condition(3, 1100, map[int]float64{})
	c := w.card()
	if len(c.Uses) != 1 || c.Uses[0].Container != web || c.Uses[0].ContainerID != id(web) || c.Uses[0].GPUSeconds != 0 {
		t.Fatalf("uses %+v, want that of web, at 0", c.Uses)
	}
	near(t, "idle", c.Unattributed["idle"], 100)

	w.condition(4, 1500, map[int]float64{pid: 0.6, 4711: 0.2}) // 4711 belongs to no container
	c = w.card()
	near(t, "seconds", c.Uses[0].GPUSeconds, 0.6)
	near(t, "seconds of others", *c.OtherSeconds, 0.2)
	near(t, "idle", c.Unattributed["idle"], 200)
	near(t, "all", *c.Uses[0].Energy+c.Unattributed["other"]+c.Unattributed["idle"]+c.Unattributed["unknown"], 500)

	w.exit(4.5, pid)
	w.event(4.6, container.Died, web)
	w.list(4.7, gpuA)
	w.condition(5, 1700, map[int]float64{pid: 0.4}) // the driver's samples come late
	near(t, "seconds after the end", w.card().Uses[0].GPUSeconds, 1)

	for s := 6.0; s < 15*60; s++ {
		w.condition(s, 1700, map[int]float64{})
	}
	near(t, "seconds, kept", w.card().Uses[0].GPUSeconds, 1)
	w.condition(15*60+10, 1700, map[int]float64{})
	if c := w.card(); len(c.Uses) != 0 {
		t.Errorf("uses %+v, long after the container's end", c.Uses)
	}
}

// Of the containers that have had one name, the one that was seen last is the first in the list, whatever
// their ids: its account is the one that the name goes on with.
func TestUsesOfOneNameBeginWithTheLatest(t *testing.T) {
	for _, ids := range [][]string{{"a", "b"}, {"b", "a"}} {
		w, s := newWorld(t), 0.0
		for n, cid := range ids {
			c := newContainer(web, nil)
			c.ID = id(cid)
			w.m.Container(container.Event{Kind: container.Started, ID: c.ID, Time: at(s), Container: &c}, at(s))
			w.meet(pid+n, cid)
			w.sense(s+0.1, pid+n, sensor.ContextMade)
			w.list(s+0.2, gpuA, pid+n)
			w.condition(s+1, 0, map[int]float64{})
			w.condition(s+2, 0, map[int]float64{pid + n: 1})
			w.exit(s+2.1, pid+n)
			w.event(s+2.2, container.Died, cid)
			s += 3
		}
		w.condition(s, 0, map[int]float64{})
		if uses := w.card().Uses; len(uses) != 2 || uses[0].ContainerID != id(ids[1]) {
			t.Errorf("uses %+v, want first that of %s", uses, ids[1])
		}
	}
}

// The idle power is stored, seldom, and known after a restart though the card is busy then.
func TestIdlePowerOutlivesARestart(t *testing.T) {
	w := running(t)
	w.m.TakeChanges()
	w.condition(2, 0, map[int]float64{})
	w.condition(3, 100, map[int]float64{})
	changes := w.m.TakeChanges()
	near(t, "stored", changes.IdleWatts[gpuA], 100)
	w.condition(4, 201, map[int]float64{})
	if c := w.m.TakeChanges(); !c.Empty() {
		t.Errorf("%+v is stored, the idle power is as before", c.IdleWatts)
	}

	n := newWorld(t)
	n.m.Restore(core.State{IdleWatts: changes.IdleWatts}, nil, at(10))
	n.condition(11, 1000, map[int]float64{4711: 1})
	n.condition(12, 1500, map[int]float64{4711: 1})
	near(t, "idle", n.card().Unattributed["idle"], 100)
	near(t, "other", n.card().Unattributed["other"], 400)
}

// A PID that a process of the host has now is no container's any more.
func TestUsesOfAReusedPID(t *testing.T) {
	w := running(t)
	w.condition(2, 0, map[int]float64{})
	w.exit(2.5, pid)
	w.meet(pid, "")
	w.condition(3, 0, map[int]float64{pid: 1})
	c := w.card()
	near(t, "seconds", c.Uses[0].GPUSeconds, 0)
	near(t, "seconds of others", *c.OtherSeconds, 1)
}

// What cannot be read is absent, and the reason is there. The account goes on.
func TestCardsDown(t *testing.T) {
	w := running(t)
	w.condition(2, 0, map[int]float64{})
	w.condition(3, 10, map[int]float64{pid: 1})
	w.m.CardsDown("hangs")
	if s := w.snapshot(); len(s.Cards) != 0 || s.Health.CardsError != "hangs" {
		t.Errorf("cards %+v, error %q", s.Cards, s.Health.CardsError)
	}
	if changed, _ := w.m.Changed(); changed {
		t.Error("changed since the snapshot")
	}
	w.m.CardsDown("hangs")
	if changed, _ := w.m.Changed(); changed {
		t.Error("the same error wakes the readers again")
	}
	w.condition(4, 20, map[int]float64{pid: 1})
	near(t, "seconds", w.card().Uses[0].GPUSeconds, 2)
	if e := w.snapshot().Health.CardsError; e != "" {
		t.Errorf("error %q after it answered", e)
	}
}

// While others take turns, a container's use is what its context switches show. When the others are
// paused nothing switches, and the driver's samples count from the next reading on: what was half is
// whole, and nobody takes it for half.
func TestUseAfterOthersArePaused(t *testing.T) {
	w := running(t)
	for s := 2.0; s < 4; s++ {
		w.switched(s, map[int]float64{pid: 0.9, 4711: 0.1}, map[int]float64{pid: 0.5, 4711: 0.5})
	}
	near(t, "use beside another", w.sample(3.5, 0.9, false), 0.5)
	w.condition(4, 0, map[int]float64{pid: 1})
	near(t, "use when nothing switches", w.sample(4.1, 1, false), 1)
}

// What was read of context switches counts for no more than two readings that fail.
func TestOldContextSwitchesDoNotCount(t *testing.T) {
	w := running(t)
	w.switched(2, map[int]float64{pid: 1}, map[int]float64{pid: 0.5, 4711: 0.5})
	w.m.CardsDown("hangs")
	near(t, "use, two seconds later", w.sample(4, 0.9, false), 0.5)
	near(t, "use, three seconds later", w.sample(5, 0.9, false), 0.9)
}

// A reading says what each container used of the time that was read; without samples nobody knows how much of it the
// card was idle, and it says nothing.
func TestReadingOfContextSwitchesSaysWhoUsedTheCard(t *testing.T) {
	w := running(t)
	w.switched(2, map[int]float64{pid: 1}, map[int]float64{pid: 0.5, 4711: 0.5})
	id := w.snapshot().Containers[0].ID
	if s := w.card().Switches; s == nil || s.Used[id] != 0.5 {
		t.Errorf("%+v, want half of the time for %s", s, id)
	}
	w.switched(3, nil, map[int]float64{pid: 0.5, 4711: 0.5})
	if s := w.card().Switches; s != nil {
		t.Errorf("without samples: %+v", s)
	}
}

// What a process computed is its container's though the process ended before the reading that says so.
func TestUsesOfShortProcesses(t *testing.T) {
	for name, play := range map[string]func(w *world){
		"between two readings": func(w *world) {
			w.run(0, web, nil)
			w.condition(2, 0, map[int]float64{})
			w.meet(pid, web)
			w.sense(2.1, pid, sensor.ContextMade)
			w.exit(2.8, pid)
		},
		"of a container that ends with it": func(w *world) {
			w.condition(2, 0, map[int]float64{})
			w.run(2, web, nil)
			w.meet(pid, web)
			w.sense(2.1, pid, sensor.ContextMade)
			w.event(2.7, container.Died, web)
			w.exit(2.8, pid)
		},
		"of a container that is told later": func(w *world) {
			w.condition(2, 0, map[int]float64{})
			w.meet(pid, web)
			w.sense(2.1, pid, sensor.ContextMade)
			w.exit(2.5, pid)
			w.run(2.8, web, nil)
		},
		"met when it had ended": func(w *world) {
			w.run(0, web, nil)
			w.condition(2, 0, map[int]float64{})
			gone := sensor.Process{PID: pid, Identity: identity(pid)}
			w.m.MeetGone(core.Subject{Process: gone, Container: id(web), Started: born}, at(2.8))
			w.m.Sensor(gone, sensor.Event{PID: pid, Kind: sensor.ContextMade, Time: at(2.1), Source: task.SourceUprobe})
			w.m.Sensor(gone, sensor.Event{PID: pid, Kind: sensor.Exiting, Time: at(2.7), Source: task.SourceTracepoint})
		},
		"met before the last reading, listed after it": func(w *world) {
			w.run(0, web, nil)
			w.meet(pid, web)
			w.sense(1.9, pid, sensor.ContextMade)
			w.condition(2, 0, map[int]float64{})
			w.list(2.1, gpuA, pid)
			w.exit(2.8, pid)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			play(w)
			w.tick(at(2.9))
			w.condition(3, 0, map[int]float64{pid: 0.5})
			c := w.card()
			if len(c.Uses) != 1 || c.Uses[0].ContainerID != id(web) || c.Uses[0].Container != web {
				t.Fatalf("uses %+v, want that of web", c.Uses)
			}
			near(t, "seconds", c.Uses[0].GPUSeconds, 0.5)
			near(t, "seconds of others", *c.OtherSeconds, 0)
		})
	}
}

// Long after the end of a process nothing is its own: its PID may be anybody's. Nobody else than Tick need forget it:
// where no condition is read, no reading comes.
func TestEndedProcessesAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	w.exit(2, pid)
	w.tick(at(2.5))
	w.tick(at(18))
	w.condition(18, 0, map[int]float64{})
	w.condition(19, 0, map[int]float64{pid: 1})
	c := w.card()
	if len(c.Uses) != 0 {
		t.Errorf("uses %+v, want none", c.Uses)
	}
	near(t, "seconds of others", *c.OtherSeconds, 1)
}

// The container's present name counts, also for what its processes did before.
func TestUsesOfARenamedContainer(t *testing.T) {
	w := running(t)
	w.condition(2, 0, map[int]float64{})
	w.condition(3, 0, map[int]float64{pid: 1})
	w.exit(3.5, pid)
	c := newContainer(web, nil)
	c.Name = "api"
	w.m.Container(container.Event{Kind: container.Renamed, ID: c.ID, Time: at(3.6), Container: &c}, at(3.6))
	w.condition(4, 0, map[int]float64{pid: 0.5})
	if uses := w.card().Uses; len(uses) != 1 || uses[0].Container != "api" {
		t.Errorf("uses %+v, want those of api", uses)
	}
}
