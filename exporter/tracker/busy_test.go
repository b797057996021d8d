package tracker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

// server starts a container whose tasks are busy intervals, and its process.
func (b *bench) server() container.Container {
	c := b.engine.Put(container.Container{Name: "server", PID: pid, Labels: map[string]string{task.LabelRelease: "busy"}})
	b.host.start(pid, c.ID)
	b.pass(time.Second)
	return c
}

// follower is a probe whose Track does something else.
type follower struct {
	*probe
	track func() error
}

func (f follower) Track(int) error { return f.track() }

// withFollower is withSensor for a probe whose Track does something else.
func withFollower(t *testing.T, track func() error, f func(b *bench, p *probe)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := newProbe()
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(follower{p, track})})
		f(b, p)
		b.stop()
	})
}

// A request is told as ended 15 ms after its work, not with the next tick: until then it would seem late.
func TestBusyIntervalIsToldAsEndedSoon(t *testing.T) {
	withSensor(t, func(b *bench, p *probe) {
		b.server()
		p.sense(pid, sensor.Init)
		p.sense(pid, sensor.ContextMade)
		b.pass(time.Second)
		for range 20 {
			p.sense(pid, sensor.Launched)
			b.pass(3 * time.Millisecond)
			p.sense(pid, sensor.WorkDone)
			b.pass(9 * time.Millisecond)
			p.sense(pid, sensor.Launched) // within the gap
			b.pass(3 * time.Millisecond)
			ended := time.Now()
			p.sense(pid, sensor.WorkDone)
			b.pass(14 * time.Millisecond)
			b.tasks(1)
			b.pass(2 * time.Millisecond)
			b.tasks(0)
			if last := b.Snapshot().Ended[0]; !last.End.Time.Equal(ended) || last.Duration(ended) != 15*time.Millisecond {
				t.Fatalf("it ended at %v and lasted for %v, want %v and 15 ms", last.End.Time, last.Duration(ended), ended)
			}
			b.pass(24 * time.Millisecond)
		}
	})
}

// A process whose launches cannot be followed is a task all the same.
func TestBusyProcessThatCannotBeFollowed(t *testing.T) {
	withFollower(t, func() error { return errors.New("it needs Linux 5.12") }, func(b *bench, p *probe) {
		b.server()
		began := time.Now()
		p.sense(pid, sensor.Init)
		b.pass(200 * time.Millisecond)
		p.sense(pid, sensor.ContextMade)
		b.card.set(pid)
		b.pass(10 * time.Second)
		if got := b.tasks(1)[0]; !got.Start.Time.Equal(began) {
			t.Errorf("start %v, want cuInit's, %v", got.Start.Time, began)
		}
		if n := b.log.count("cannot be followed"); n != 1 {
			t.Errorf("%d lines tell of it, want 1", n)
		}
		b.host.exit(pid)
		b.pass(time.Millisecond)
		if s := b.Snapshot(); len(s.Tasks) != 0 || len(s.Ended) != 1 {
			t.Errorf("after its exit: %+v", s)
		}
	})
}

// One that is over before the probes are on it, as when many begin at once, is one task.
func TestBusyProcessThatIsOverBeforeItIsFollowed(t *testing.T) {
	slow := func() error { time.Sleep(time.Second); return errors.New("no such process") }
	withFollower(t, slow, func(b *bench, p *probe) {
		b.server()
		p.sense(pid, sensor.Init)
		p.sense(pid, sensor.ContextMade)
		b.pass(20 * time.Millisecond)
		b.tasks(0) // it may be an idle server
		b.host.exit(pid)
		b.pass(5 * time.Second)
		if s := b.Snapshot(); len(s.Tasks) != 0 || len(s.Ended) != 1 || s.Ended[0].Duration(time.Time{}) != 20*time.Millisecond {
			t.Errorf("unfinished %+v, ended %+v; want one task of 20 ms", s.Tasks, s.Ended)
		}
		if n := b.log.count("cannot be followed"); n != 0 {
			t.Errorf("%d lines of a process that has ended", n)
		}
	})
}

// A PID that is used again by the same server at once is another process.
func TestBusyProcessWithAReusedPID(t *testing.T) {
	withSensor(t, func(b *bench, p *probe) {
		c := b.server()
		p.sense(pid, sensor.Init)
		synctest.Wait()
		b.host.exit(pid)
		b.pass(50 * time.Millisecond)
		p.mu.Lock()
		clear(p.tracked) // those probes are of no use to anybody else
		p.mu.Unlock()
		b.host.start(pid, c.ID)
		p.sense(pid, sensor.Init)
		synctest.Wait()
		if !p.tracks(pid) {
			t.Error("the launches of the new process are not followed")
		}
	})
}
