package tracker_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

func TestProcessBeforeItsContainer(t *testing.T) {
	within(t, func(b *bench) {
		b.newContainer("other") // something may start
		id := containertest.ID("web")
		b.host.start(pid, id)
		b.card.set(pid)
		b.pass(100 * time.Millisecond)
		b.tasks(0)
		if u := b.Snapshot().Health.Unattributed; u[task.UnknownContainer] != 1 {
			t.Errorf("unattributed: %v", u)
		}
		b.newContainer("web")
		b.pass(time.Millisecond)
		b.tasks(1)
	})
}

func TestHostProcessThatJoinsAContainer(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, "")
		b.card.set(pid)
		b.pass(100 * time.Millisecond)
		if u := b.Snapshot().Health.Unattributed; u[task.HostProcess] != 1 {
			t.Errorf("unattributed: %v", u)
		}
		b.host.mu.Lock()
		b.host.containers[pid] = c.ID
		b.host.mu.Unlock()
		b.pass(2 * time.Second)
		b.tasks(1)
	})
}

func TestEngineTrouble(t *testing.T) {
	within(t, func(b *bench) {
		c := b.newContainer("web")
		b.host.start(pid, c.ID)
		b.card.set(pid)
		b.pass(time.Second)
		b.engine.Fail(errTrouble)
		b.pass(5 * time.Second)
		b.tasks(1)
		s := b.Snapshot()
		if s.Health.EngineUp || len(s.Containers) != 1 {
			t.Errorf("health %+v, containers %+v; want the ones last seen", s.Health, s.Containers)
		}
		b.engine.Fail(nil)
		b.newContainer("later")
		b.pass(2 * time.Second)
		if s := b.Snapshot(); !s.Health.EngineUp || len(s.Containers) != 2 {
			t.Errorf("after its return: %+v", s)
		}
	})
}

// The first process of a container that is restarted while the engine's events do not
// come: its copy of libcuda is looked for too.
func TestContainerRestartsUnseen(t *testing.T) {
	withSensor(t, func(b *bench, probe *probe) {
		c := b.newContainer("web")
		b.pass(time.Second)
		b.engine.Fail(errTrouble)
		b.pass(time.Second)
		b.engine.Stop(c.ID)
		c.PID = pid + 7
		b.engine.Put(c)
		b.engine.Fail(nil)
		b.pass(5 * time.Second)
		probe.mu.Lock()
		defer probe.mu.Unlock()
		if n := len(probe.explored); n == 0 || probe.explored[n-1] != pid+7 {
			t.Errorf("libcuda was looked for in %v, want the new process too", probe.explored)
		}
	})
}

// hanging is an engine that may take a call and not answer.
type hanging struct {
	containertest.Fake
	hangs atomic.Bool
}

func (h *hanging) Watch(ctx context.Context) (<-chan container.Event, error) {
	h.wait(ctx)
	return h.Fake.Watch(ctx)
}

func (h *hanging) List(ctx context.Context) ([]container.Container, error) {
	h.wait(ctx)
	return h.Fake.List(ctx)
}

func (h *hanging) wait(ctx context.Context) {
	for h.hangs.Load() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// An engine that hangs does not end its stream of events: that is told all the same, once.
func TestEngineHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log paper
		engine := &hanging{}
		tr, err := tracker.New(tracker.Options{Node: "n", Device: &card{}, Containers: engine, Exits: newHost(), Processes: newHost(),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = tr.Run(t.Context()) }()
		healthy := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if h := tr.Snapshot().Health; h.EngineUp != want {
				t.Errorf("health %+v", h)
			}
		}
		healthy(5*time.Minute, true)
		engine.hangs.Store(true)
		healthy(130*time.Second, false)
		healthy(10*time.Minute, false)
		if n := log.count("does not answer within"); n != 1 {
			t.Errorf("%d lines tell of it, want 1", n)
		}
		engine.hangs.Store(false)
		healthy(5*time.Second, true)
	})
}
