package tracker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

// stuck is a probe whose calls about the process pid hang until gate is closed: its container has
// a file system of a server that is down.
type stuck struct {
	*probe
	gate chan struct{}
}

func (s stuck) Discover(of int) error {
	if of == pid {
		<-s.gate
	}
	return s.probe.Discover(of)
}

func (s stuck) Track(of int) error {
	if of == pid {
		<-s.gate
	}
	return s.probe.Track(of)
}

func (p *probe) searched(of int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.explored, of)
}

// withStuck runs f with a container whose calls hang, and one whose calls do not. It checks that the
// tracker ends although they hang; then they return.
func withStuck(t *testing.T, f func(b *bench, s stuck)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := stuck{newProbe(), make(chan struct{})}
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(s)})
		for one, name := range []string{"hangs", "works"} {
			c := b.engine.Put(container.Container{Name: name, Image: "img", PID: pid + one, Labels: map[string]string{task.LabelRelease: "busy"}})
			b.host.start(pid+one, c.ID)
		}
		f(b, s)
		began := time.Now()
		b.stop()
		if took := time.Since(began); took >= time.Second {
			t.Errorf("the tracker ended after %v", took)
		}
		select {
		case <-s.gate:
		default:
			close(s.gate)
		}
	})
}

func TestASearchThatHangsStopsNoOther(t *testing.T) {
	withStuck(t, func(b *bench, s stuck) {
		b.pass(2 * time.Second)
		if !s.searched(pid + 1) {
			t.Error("another container was not searched")
		}
		if n := b.log.count("hangs"); n != 1 {
			t.Errorf("%d lines about it", n)
		}
		close(s.gate)
		b.pass(time.Second)
		if !s.searched(pid) {
			t.Error("the search did not go on")
		}
	})
}

func TestATrackThatHangsStopsNoOther(t *testing.T) {
	withStuck(t, func(b *bench, s stuck) {
		b.pass(time.Second)
		s.sense(pid, sensor.Init)
		synctest.Wait()
		s.sense(pid+1, sensor.Init)
		b.pass(6 * time.Second)
		if !s.tracks(pid + 1) {
			t.Error("another process is not followed")
		}
		close(s.gate)
		b.pass(time.Second)
		if s.tracks(pid) {
			t.Error("a process is followed that counts as not followed")
		}
	})
}

func TestTheTrackerEndsWhileCallsHang(t *testing.T) {
	withStuck(t, func(b *bench, s stuck) {
		b.pass(time.Second)
		s.sense(pid, sensor.Init)
		synctest.Wait()
	})
}

// deaf is a sensor whose Run does not end when it is told to.
type deaf struct{ gate chan struct{} }

func (d deaf) Run(context.Context, chan<- sensor.Event) error { <-d.gate; return nil }

// It ends also while a sensor hangs. What it knows is stored before.
func TestTheTrackerEndsWhileASensorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := deaf{make(chan struct{})}
		b.start(tracker.StartSensor{Source: task.SourceUprobe, Open: always(d)})
		began := time.Now()
		b.stop()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the tracker ended after %v", took)
		}
		if n := b.log.count("does not end"); n != 1 {
			t.Errorf("%d lines about it", n)
		}
		close(d.gate)
	})
}
