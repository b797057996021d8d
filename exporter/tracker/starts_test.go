package tracker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// Events of processes that have ended before the exporter reads the first one.
func TestEventsOfTheGone(t *testing.T) {
	const ms = time.Millisecond
	init, made, exiting := sensor.Init, sensor.ContextMade, sensor.Exiting
	for _, tt := range []struct {
		name   string
		events []sensor.Kind // 10 ms apart
		start  time.Duration // of the one task, after the first event; −1: there is none
		end    time.Duration // −1: not known
	}{
		{"all of a life", []sensor.Kind{init, made, exiting}, 0, 20 * ms},
		{"no end is told", []sensor.Kind{init, made}, 0, -1},
		{"the context alone", []sensor.Kind{made, exiting}, 0, 10 * ms},
		{"it leaves and makes another", []sensor.Kind{init, made, sensor.Leaving, sensor.Left, made, exiting}, 0, 50 * ms},
		{"no context", []sensor.Kind{init, exiting}, -1, 0},
		{"no context and no end", []sensor.Kind{init}, -1, 0},
		{"an end alone", []sensor.Kind{exiting}, -1, 0},
		{"told again after its end", []sensor.Kind{init, made, exiting, made, exiting}, 0, 20 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withSensor(t, func(b *bench, probe *probe) {
				c := b.newContainer("web")
				b.pass(time.Second)
				read := time.Now()
				began := read.Add(-time.Second)
				for i, kind := range tt.events {
					probe.late(time.Second-time.Duration(i)*10*ms, pid, 1, c.ID, kind)
				}
				last := began.Add(time.Duration(len(tt.events)-1) * 10 * ms)
				b.pass(30 * time.Second)
				b.tasks(0)
				got := b.Snapshot().Ended
				if tt.start < 0 {
					if len(got) != 0 {
						t.Errorf("counted: %+v", got)
					}
					return
				}
				if len(got) != 1 {
					t.Errorf("%d tasks, want 1: %+v", len(got), got)
					return
				}
				x := got[0]
				if x.State != task.Ended || x.ContainerID != c.ID || x.GPUs[0] != "GPU-a" || x.Outcome() != task.Hit {
					t.Errorf("task %+v", x)
				}
				if !x.Start.Time.Equal(began.Add(tt.start)) || x.Start.Source != task.SourceUprobe {
					t.Errorf("start %+v, want %v", x.Start, began.Add(tt.start))
				}
				if tt.end >= 0 {
					if !x.End.Time.Equal(began.Add(tt.end)) || x.End.Source != task.SourceTracepoint {
						t.Errorf("end %+v, want %v", x.End, began.Add(tt.end))
					}
				} else if from := x.End.Time.Add(-x.End.ErrorBound.Duration()); from.After(last) || last.Sub(from) > 2*ms || !x.End.Time.Equal(read) {
					t.Errorf("end %+v, want it between the last event at %v and the reading at %v", x.End, last, read)
				}
			})
		})
	}
}

// What a process that has ended is told from: those that its PID belonged to
// before and after, and its container's own life.
func TestEventsOfTheGoneAmongOthers(t *testing.T) {
	life := func(p *probe, life int, id string) {
		for _, kind := range []sensor.Kind{sensor.Init, sensor.ContextMade, sensor.Exiting} {
			p.late(0, pid, life, id, kind)
		}
	}
	for _, tt := range []struct {
		name              string
		play              func(b *bench, p *probe)
		unfinished, ended int
	}{
		{"of the host", func(_ *bench, p *probe) { life(p, 1, "") }, 0, 0},
		{"its container is told later", func(b *bench, p *probe) {
			life(p, 1, containertest.ID("web"))
			b.pass(5 * time.Second)
			b.newContainer("web")
		}, 0, 1},
		{"its container is never told", func(_ *bench, p *probe) { life(p, 1, containertest.ID("web")) }, 0, 0},
		{"its container has ended too", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.pass(time.Second)
			b.engine.Stop(c.ID)
			b.engine.Remove(c.ID)
			b.pass(time.Second)
			life(p, 1, c.ID)
		}, 0, 1},
		{"its container ended long ago", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.pass(time.Second)
			b.engine.Stop(c.ID)
			b.pass(time.Minute)
			life(p, 1, c.ID)
		}, 0, 0},
		{"the PID is another's, of the host", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.lives[pid] = 1
			b.host.start(pid, "") // its second life
			life(p, 1, c.ID)
		}, 0, 1},
		{"the PID is another's, that is known and at work", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.lives[pid] = 1
			b.host.start(pid, c.ID)
			b.card.set(pid)
			b.pass(time.Second)
			b.tasks(1)
			life(p, 1, c.ID)
		}, 1, 1},
		{"the PID is another's, that begins later", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.lives[pid] = 1
			b.host.start(pid, c.ID)
			life(p, 1, c.ID)
			p.late(0, pid, 2, c.ID, sensor.Init)
			p.late(0, pid, 2, c.ID, sensor.ContextMade)
		}, 1, 1},
		{"the PID was two short ones'", func(b *bench, p *probe) {
			c := b.newContainer("web")
			life(p, 1, c.ID)
			life(p, 2, c.ID)
		}, 0, 2},
		{"the PID was another's, that has just ended", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.start(pid, c.ID)
			p.late(0, pid, 1, c.ID, sensor.Init)
			b.pass(time.Millisecond)
			b.host.exit(pid) // waits for what makes it a task
			b.pass(time.Millisecond)
			life(p, 2, c.ID)
		}, 0, 1},
		{"it was counted by the device's list", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.start(pid, c.ID)
			b.card.set(pid)
			b.pass(time.Second)
			b.tasks(1)
			b.host.exit(pid)
			b.card.set()
			b.pass(20 * time.Millisecond)
			life(p, 1, c.ID)
		}, 0, 1},
		{"it ends between its events", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.start(pid, c.ID)
			p.late(0, pid, 1, c.ID, sensor.Init)
			b.pass(time.Millisecond)
			b.host.exit(pid)
			b.pass(time.Millisecond)
			p.late(0, pid, 1, c.ID, sensor.ContextMade)
			p.late(0, pid, 1, c.ID, sensor.Exiting)
		}, 0, 1},
		{"it has left its control group, and not ended", func(b *bench, p *probe) {
			c := b.newContainer("web")
			b.host.start(pid, "")
			p.late(0, pid, 1, c.ID, sensor.ContextMade)
			b.pass(time.Millisecond)
			b.host.exit(pid)
		}, 0, 1},
		{"busy intervals were asked for", func(b *bench, p *probe) {
			c := b.engine.Put(container.Container{Name: "server", PID: pid + 1, Labels: map[string]string{task.LabelRelease: "busy"}})
			b.pass(time.Second)
			life(p, 1, c.ID)
		}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withSensor(t, func(b *bench, p *probe) {
				b.pass(time.Second)
				tt.play(b, p)
				b.pass(100 * time.Millisecond)
				b.tasks(tt.unfinished)
				if got := b.Snapshot().Ended; len(got) != tt.ended {
					t.Errorf("%d ended tasks, want %d: %+v", len(got), tt.ended, got)
				}
				b.card.set()
				synctest.Wait()
			})
		})
	}
}
