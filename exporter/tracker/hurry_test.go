package tracker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

// crowd is a card on which a reading takes as long as with 100 processes.
type crowd struct{ *card }

func (c crowd) Read(ctx context.Context) (device.Reading, error) {
	began := time.Now()
	time.Sleep(24 * time.Millisecond) // the clock of the bubble
	r, err := c.card.Read(ctx)
	r.Time = began
	return r, err
}

// Events bring readings forward. Those of a server's requests do not, because no reading shows
// anything of them; others do so only as far as readings may cost.
func TestReadingsOfABusyNode(t *testing.T) {
	launch := func(p *probe, pass func()) {
		p.sense(pid, sensor.Launched)
		pass()
		p.sense(pid, sensor.WorkDone)
	}
	other := func(p *probe, pass func()) { pass(); p.sense(pid, sensor.Init) }
	for name, tt := range map[string]struct {
		event func(p *probe, pass func())
		fails bool
		most  int
	}{
		"idle":                         {func(_ *probe, pass func()) { pass() }, false, 11},
		"requests":                     {launch, false, 11},
		"other events":                 {other, false, 38},
		"other events, and it is down": {other, true, 38},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, p := newBench(t), newProbe()
				b.device = crowd{b.card}
				b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(p)})
				b.server()
				p.sense(pid, sensor.ContextMade)
				b.card.set(pid)
				b.pass(5 * time.Second)
				if tt.fails {
					b.card.fail(errTrouble)
				}
				before := b.card.count()
				for range 300 { // 30 a second
					tt.event(p, func() { b.pass(5 * time.Millisecond) })
					b.pass(28333 * time.Microsecond)
				}
				if n := b.card.count() - before; n < 9 || n > tt.most {
					t.Errorf("%d readings in 10 s, want 9 to %d", n, tt.most)
				}
				b.stop()
			})
		})
	}
}

// The first launch of a process that the device has not listed brings a reading forward: it shows where the task is.
func TestALaunchWithoutAPlaceHurries(t *testing.T) {
	withSensor(t, func(b *bench, p *probe) {
		b.server()
		p.sense(pid, sensor.ContextMade)
		b.pass(5 * time.Second)
		b.pass(1500 * time.Microsecond)
		before := b.card.count()
		p.sense(pid, sensor.Launched)
		b.pass(25 * time.Millisecond)
		if n := b.card.count() - before; n != 1 {
			t.Errorf("%d readings within 25 ms of the launch, want 1", n)
		}
		b.card.set(pid)
		b.pass(50 * time.Millisecond)
	})
}

// Turns on the GPU wake readers at most once a second. The snapshot has each soon, and readers learn the last one.
func TestTurnsWakeReadersOnceASecond(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(5 * time.Second)
		changes := b.Watch(b.t.Context())
		<-changes // the present one
		woken, last := 0, task.State("")
		pass := func(d time.Duration) {
			b.pass(d)
			select {
			case s := <-changes:
				woken++
				last = s.Tasks[0].State
			default:
			}
		}
		off := map[int]time.Duration{pid: b.host.started(pid)}
		for range 50 { // 25 a second
			b.offs <- off
			pass(20 * time.Millisecond)
			b.offs <- nil
			pass(20 * time.Millisecond)
		}
		if woken > 3 {
			t.Errorf("readers were woken %d times in 2 s, want at most 3", woken)
		}
		pass(200 * time.Millisecond)
		b.offs <- off
		pass(150 * time.Millisecond)
		if got := b.tasks(1)[0]; got.State != task.Held {
			t.Errorf("state %s 150 ms after it went off, want %s", got.State, task.Held)
		}
		pass(1500 * time.Millisecond)
		if last != task.Held || woken > 5 {
			t.Errorf("readers know it as %s and were woken %d times", last, woken)
		}
	})
}
