package tracker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

const pid = 100

// bench is a tracker among fakes, on a synctest clock.
type bench struct {
	*tracker.Tracker
	t      *testing.T
	host   *host
	card   *card
	engine *containertest.Fake
	store  *memory
	offs   offs
	device device.Device // nil: card
	cards  device.Cards
	log    paper
	stop   func()
}

// newBench is for use within a bubble.
func newBench(t *testing.T) *bench {
	return &bench{t: t, host: newHost(), card: &card{}, engine: &containertest.Fake{}, store: newMemory(), offs: make(offs)}
}

// within runs f in a bubble with a tracker that has no start sensor.
func within(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		f(b)
		b.stop()
	})
}

// withSensor runs f in a bubble with a tracker whose first start sensor cannot
// work and whose second one is p.
func withSensor(t *testing.T, f func(b *bench, p *probe)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := newProbe()
		b.start(tracker.StartSensor{Source: "broken", Open: always(unsupported{})},
			tracker.StartSensor{Source: task.SourceUprobe, Open: always(p)})
		f(b, p)
		b.stop()
	})
}

// offs tells who is off the GPU.
type offs chan map[int]time.Duration

func (o offs) Follow(ctx context.Context, report func(map[int]time.Duration, time.Time), _ func(error)) {
	for {
		select {
		case off := <-o:
			report(off, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (b *bench) start(starts ...tracker.StartSensor) {
	if b.device == nil {
		b.device = b.card
	}
	tr, err := tracker.New(tracker.Options{
		Node: "n", Device: b.device, Cards: b.cards, Containers: b.engine, Exits: b.host, Processes: b.host,
		Store: b.store, Holds: b.offs, Starts: starts, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Tracker = tr
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error)
	go func() { done <- tr.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
	b.pass(300 * time.Millisecond) // a sensor has settled
}

// pass lets time go by, and everything that is due happen.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) newContainer(name string) container.Container {
	return b.engine.Put(container.Container{Name: name, Image: "img", PID: pid,
		Labels: map[string]string{task.LabelDeadline: "9s"}})
}

func (b *bench) tasks(want int) []task.Task {
	b.t.Helper()
	s := b.Snapshot()
	if len(s.Tasks) != want {
		b.t.Fatalf("%d unfinished tasks, want %d: %+v", len(s.Tasks), want, s)
	}
	return s.Tasks
}

func TestPollingAlone(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.pass(time.Second)
		began := time.Now()
		b.card.set(pid)
		b.pass(40 * time.Millisecond)
		got := b.tasks(1)[0]
		if d := got.Start.Time.Sub(began); d < 0 || d > 20*time.Millisecond || got.Start.Source != task.SourceDevice {
			t.Errorf("start %v after the truth, by %s; want within one fast poll", d, got.Start.Source)
		}
		ended := time.Now()
		b.host.exit(pid)
		b.card.set()
		b.pass(time.Millisecond)
		s := b.Snapshot()
		if len(s.Tasks) != 0 || len(s.Ended) != 1 || !s.Ended[0].End.Time.Equal(ended) {
			t.Errorf("after the exit: %+v", s)
		}
		if h := s.Health; !h.DeviceUp || !h.EngineUp || h.Sensor != task.SourceDevice || h.SensorReason == "" {
			t.Errorf("health: %+v", h)
		}
	})
}

// The driver may free what a process held, and the device be read, before the event is that
// says when the process began to exit.
func TestListOvertakesTheExit(t *testing.T) {
	for name, exits := range map[string]func(*host){
		"it still exits":     func(h *host) { h.beginExit(pid) },
		"it has been reaped": func(h *host) { h.reap(pid) },
	} {
		t.Run(name, func(t *testing.T) {
			withSensor(t, func(b *bench, probe *probe) {
				c := b.newContainer("web")
				b.host.start(pid, c.ID)
				probe.sense(pid, sensor.ContextMade)
				b.card.set(pid)
				b.pass(3 * time.Second)
				b.tasks(1)
				exits(b.host)
				ended := time.Now()
				b.card.set()
				b.pass(1500 * time.Millisecond)
				b.tasks(1)
				probe.late(1500*time.Millisecond, pid, 1, "", sensor.Exiting)
				b.pass(time.Millisecond)
				s := b.Snapshot()
				if len(s.Tasks) != 0 || len(s.Ended) != 1 || !s.Ended[0].End.Time.Equal(ended) || s.Ended[0].End.Source != task.SourceTracepoint {
					t.Errorf("after the exit: %+v", s)
				}
			})
		})
	}
}

// The server of MPS in a container is nobody's task, whether the device or a sensor tells of it first.
func TestMPSServer(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("mps")
		b.host.servers = map[int]bool{pid: true, pid + 1: true}
		b.host.start(pid, c.ID)
		b.host.start(pid+1, c.ID)
		b.pass(time.Second)
		probe.sense(pid+1, sensor.ContextMade)
		b.card.set(pid, pid+1)
		b.pass(2 * time.Second)
		b.tasks(0)
		if u := b.Snapshot().Health.Unattributed; u[task.MPSServer] != 2 {
			t.Errorf("not attributed: %v", u)
		}
	})
}

func TestPollsSlowlyWhenIdle(t *testing.T) {
	within(t, func(b *bench) {
		reads := b.card.count()
		b.pass(10 * time.Second)
		if n := b.card.count() - reads; n > 11 {
			t.Errorf("%d readings in 10 idle seconds, want one a second", n)
		}
		b.newContainer("web")
		reads = b.card.count()
		b.pass(time.Second)
		if n := b.card.count() - reads; n < 40 {
			t.Errorf("%d readings in the second after a container came, want one each 20 ms", n)
		}
	})
}

func TestPollsSlowlyWithABetterSensor(t *testing.T) {
	withSensor(t, func(b *bench, _ *probe) {
		b.newContainer("web")
		reads := b.card.count()
		b.pass(time.Second)
		if n := b.card.count() - reads; n < 40 {
			t.Errorf("%d readings in the second after a container came: the sensor may not watch its driver yet", n)
		}
		b.pass(3 * time.Second)
		reads = b.card.count()
		b.pass(10 * time.Second)
		if n := b.card.count() - reads; n > 11 {
			t.Errorf("%d readings in 10 s without a task, want one a second", n)
		}
	})
}

func TestHeldAndPaused(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(time.Second)
		for _, step := range []struct {
			do   func()
			want task.State
		}{
			{func() { b.host.signal(pid, 'T') }, task.Held},
			{func() { b.engine.SetPaused(c.ID, true) }, task.Paused},
			{func() { b.engine.SetPaused(c.ID, false) }, task.Held},
			{func() { b.host.signal(pid, 'S') }, task.Running},
		} {
			step.do()
			b.pass(time.Second)
			if got := b.tasks(1)[0]; got.State != step.want {
				t.Errorf("state %s, want %s", got.State, step.want)
			}
		}
	})
}

func TestTurnsOnTheGPU(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(time.Second)
		off := map[int]time.Duration{pid: b.host.started(pid)}
		for range 10 {
			b.offs <- off
			b.pass(210 * time.Millisecond)
			if got := b.tasks(1)[0]; got.State != task.Held {
				t.Errorf("state %s 210 ms after it went off, want %s", got.State, task.Held)
			}
			b.offs <- nil
			b.pass(300 * time.Millisecond)
		}
		if got := b.tasks(1)[0]; got.State != task.Running || got.HeldSeconds < 2.0999 || got.HeldSeconds > 2.1001 {
			t.Errorf("%s, held for %v s", got.State, got.HeldSeconds)
		}
	})
}

// A task that begins after a long idle time is looked at as often as any other,
// whoever told of its start.
func TestHeldIsSeenAtOnceAfterIdleTime(t *testing.T) {
	held := func(b *bench, start func()) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.pass(time.Minute)
		start()
		b.pass(300 * time.Millisecond)
		b.host.signal(pid, 'T')
		b.pass(150 * time.Millisecond)
		if got := b.tasks(1)[0]; got.State != task.Held {
			t.Errorf("state %s 150 ms after the stop, want %s", got.State, task.Held)
		}
	}
	within(t, func(b *bench) { held(b, func() { b.card.set(pid) }) })
	withSensor(t, func(b *bench, probe *probe) { held(b, func() { probe.sense(pid, sensor.ContextMade) }) })
}

func TestDeviceTroubleEndsNothing(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(time.Second)
		b.card.fail(errTrouble)
		b.card.set()
		b.pass(5 * time.Second)
		b.tasks(1)
		s := b.Snapshot()
		if s.Health.DeviceUp || !strings.Contains(s.Health.DeviceError, "trouble") {
			t.Errorf("health: %+v", s.Health)
		}
		if age := time.Since(s.Time); age < 5*time.Second {
			t.Errorf("the facts are %v old, want their true age", age)
		}
		b.card.set(pid)
		b.card.fail(nil)
		b.pass(2 * time.Second)
		b.tasks(1)
		if !b.Snapshot().Health.DeviceUp {
			t.Error("it did not recover")
		}
	})
}

func TestRestart(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.host.start(pid+1, c.ID)
		b.card.set(pid, pid+1)
		b.pass(time.Second)
		before := b.tasks(2)
		if open, _ := b.store.counts(); open != 2 {
			t.Fatalf("%d tasks stored a second after they began, want 2", open)
		}
		if _, err := b.Change(b.t.Context(), "web", due(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		b.stop()
		delete(b.host.containers, pid+1) // it ends while nobody watches
		b.card.set(pid)
		b.start()
		b.pass(time.Second)
		after := b.tasks(1)[0]
		if after.ID != before[0].ID && after.ID != before[1].ID {
			t.Errorf("task %s after the restart, %s and %s before", after.ID, before[0].ID, before[1].ID)
		}
		if want := after.Start.Time.Add(5 * time.Second); !after.Deadline.Equal(want) {
			t.Errorf("deadline %v, want the changed one, %v", after.Deadline, want)
		}
		if s := b.Snapshot(); len(s.Ended) != 1 || s.Ended[0].State != task.Lost {
			t.Errorf("ended: %+v", s.Ended)
		}
	})
}

func due(d time.Duration) task.Change { return task.Change{Deadline: &d} }

func TestChange(t *testing.T) {
	within(t, func(b *bench) {
		if _, err := b.Change(b.t.Context(), "web", due(time.Second)); !errors.Is(err, tracker.ErrUnknownContainer) {
			t.Errorf("error %v", err)
		}
		c := b.newContainer("web")
		b.pass(time.Second)
		got, err := b.Change(b.t.Context(), c.ID[:12], due(5*time.Second))
		if err != nil || got.Spec.Deadline != 5 || got.Name != "web" {
			t.Errorf("%+v, %v", got, err)
		}
		if b.store.over[c.ID].Deadline != 5 {
			t.Error("it returned before the change was stored")
		}
		b.store.fail(errTrouble)
		if _, err := b.Change(b.t.Context(), "web", due(6*time.Second)); !errors.Is(err, errTrouble) {
			t.Errorf("error %v, want the disk's", err)
		}
		b.store.fail(nil)
		b.pass(3 * time.Second)
		if b.store.over[c.ID].Deadline != 6 {
			t.Error("the change was not written once the disk had recovered")
		}
	})
}

// Who asked for a change and goes, as all do when the exporter ends, does not make it fail.
func TestAChangeThatIsMadeIsStored(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.pass(time.Second)
		b.store.gate = make(chan struct{})
		ctx, leave := context.WithCancel(b.t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := b.Change(ctx, "web", due(5*time.Second))
			answer <- err
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		close(b.store.gate)
		if err := <-answer; err != nil || b.store.over[c.ID].Deadline != 5 {
			t.Errorf("error %v, deadline %v", err, b.store.over[c.ID].Deadline)
		}
	})
}

func TestWatchIsLatestWins(t *testing.T) {
	within(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.t.Context())
		ch := b.Watch(ctx)
		for _, name := range []string{"a", "b", "c"} { // nobody reads
			b.newContainer(name)
			b.pass(time.Second)
		}
		if s := <-ch; len(s.Containers) != 3 {
			t.Errorf("a slow reader got %d containers, want the latest 3", len(s.Containers))
		}
		select {
		case s := <-ch:
			t.Errorf("a second snapshot without a change: %+v", s)
		default:
		}
		cancel()
		synctest.Wait()
		if _, ok := <-ch; ok {
			t.Error("the channel is open after its context ended")
		}
	})
}

func TestConfirmingIsNoChange(t *testing.T) {
	within(t, func(b *bench) {
		b.newContainer("web")
		b.pass(time.Second)
		first := b.Snapshot()
		b.pass(time.Second)
		second := b.Snapshot()
		if first.Sequence != second.Sequence || !second.Time.After(first.Time) {
			t.Errorf("sequence %d → %d, time %v → %v", first.Sequence, second.Sequence, first.Time, second.Time)
		}
	})
}

func TestBusyIsTrackedWhereAskedFor(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.engine.Put(container.Container{Name: "server", PID: pid, Labels: map[string]string{task.LabelRelease: "busy"}})
		other := b.newContainer("batch")
		b.host.start(pid, c.ID)
		b.host.start(pid+1, other.ID)
		b.pass(time.Second)
		probe.sense(pid, sensor.Init)
		probe.sense(pid+1, sensor.Init)
		synctest.Wait()
		if !probe.tracks(pid) || probe.tracks(pid+1) {
			t.Errorf("tracked %v, want only %d", probe.tracked, pid)
		}
		probe.sense(pid, sensor.ContextMade)
		probe.sense(pid, sensor.Launched)
		synctest.Wait()
		b.tasks(1)
		probe.sense(pid, sensor.WorkDone)
		b.pass(200 * time.Millisecond)
		b.tasks(0)
		b.host.exit(pid)
		b.pass(time.Second)
		if probe.tracks(pid) {
			t.Error("a process that has exited is still tracked")
		}
	})
}

// A PID that is used again within seconds: the process that had it was no task, the one
// that has it now is, whoever tells of it.
func TestReusedPIDOfAProcessThatOnlyAsked(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.pass(time.Second)
		probe.sense(pid, sensor.Init)
		b.pass(10 * time.Millisecond)
		b.host.exit(pid)
		b.pass(500 * time.Millisecond)
		b.host.start(pid, c.ID)
		b.card.set(pid) // its calls were not seen
		b.pass(2 * time.Second)
		if s := b.Snapshot(); len(s.Ended) != 0 || len(s.Tasks) != 1 || s.Tasks[0].Start.Source != task.SourceDevice {
			t.Errorf("unfinished %+v, ended %+v; want one task, which the device told", s.Tasks, s.Ended)
		}
	})
}

func TestShortTaskIsCounted(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.pass(time.Second)
		probe.sense(pid, sensor.Init)
		probe.sense(pid, sensor.ContextMade)
		b.pass(20 * time.Millisecond)
		b.host.exit(pid)
		synctest.Wait()
		s := b.Snapshot()
		if len(s.Ended) != 1 || s.Ended[0].Duration(time.Time{}) != 20*time.Millisecond || s.Ended[0].GPUs[0] != "GPU-a" {
			t.Errorf("ended: %+v", s.Ended)
		}
	})
}
