// Package containertest helps to test what reads containers: the conformance
// suite that every container.Source passes, and a Fake that keeps its containers
// in memory.
//
// It imports exporter/container and the standard library.
package containertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
)

// patience is how long the suite waits for something that should be quick. It
// only bounds a failure.
const patience = 30 * time.Second

// Host is an engine under test, with the means to change its containers. Other
// containers may be there and change meanwhile: the suite leaves them alone.
// Every method fails the test when it cannot do its work.
type Host interface {
	Source() container.Source
	// Run starts a container that runs until it is stopped, and returns its id.
	Run(t *testing.T, name string, labels map[string]string) string
	Pause(t *testing.T, id string)
	Unpause(t *testing.T, id string)
	// Stop ends it, and leaves it there; Remove takes it away.
	Stop(t *testing.T, id string)
	Remove(t *testing.T, id string)
}

// Renamer is a Host whose containers can be renamed.
type Renamer interface {
	Rename(t *testing.T, id, name string)
}

// Conformance runs every rule of container.Source against a host. prefix begins
// the name of every container that it makes.
func Conformance(t *testing.T, prefix string, host Host) {
	t.Run("ListDescribes", func(t *testing.T) { listDescribes(t, prefix, host) })
	t.Run("ListLeavesOutTheStopped", func(t *testing.T) { listLeavesOutTheStopped(t, prefix, host) })
	t.Run("WatchTellsALife", func(t *testing.T) { watchTellsALife(t, prefix, host) })
	t.Run("WatchTellsNoPast", func(t *testing.T) { watchTellsNoPast(t, prefix, host) })
	t.Run("WatchEndsWithItsContext", func(t *testing.T) { watchEndsWithItsContext(t, host) })
	t.Run("EndedContextIsAnError", func(t *testing.T) { endedContextIsAnError(t, host) })
}

func listDescribes(t *testing.T, prefix string, host Host) {
	name := prefix + "describes"
	id := host.Run(t, name, map[string]string{"laxity.deadline": "9s", "name": "not the engine's"})
	c, ok := find(t, host.Source(), id)
	if !ok {
		t.Fatal("a running container is not listed")
	}
	if c.Name != name || c.PID <= 0 || c.Paused || c.Started.IsZero() || c.Labels["laxity.deadline"] != "9s" || c.Labels["name"] != "not the engine's" {
		t.Errorf("listed as %+v", c)
	}
	if len(c.ID) != 64 {
		t.Errorf("id %q is not 64 digits", c.ID)
	}
	host.Pause(t, id)
	if c, ok := find(t, host.Source(), id); !ok || !c.Paused || c.PID <= 0 {
		t.Errorf("paused: listed %v, as %+v", ok, c)
	}
	host.Unpause(t, id)
	// Docker learns of a pause from its runtime as well. Where that comes after the unpause, it says
	// "paused" until it learns of that too.
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, ok := find(t, host.Source(), id)
		if ok && !c.Paused {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("unpaused: listed %v, as %+v", ok, c)
		}
	}
}

func listLeavesOutTheStopped(t *testing.T, prefix string, host Host) {
	id := host.Run(t, prefix+"stopped", nil)
	host.Stop(t, id)
	if _, ok := find(t, host.Source(), id); ok {
		t.Error("a stopped container is listed")
	}
	host.Remove(t, id)
	if _, ok := find(t, host.Source(), id); ok {
		t.Error("a removed container is listed")
	}
}

func watchTellsALife(t *testing.T, prefix string, host Host) {
	events := watch(t.Context(), t, host.Source())
	begin := time.Now()
	id := host.Run(t, prefix+"life", map[string]string{"laxity.class": "batch"})
	host.Pause(t, id)
	host.Unpause(t, id)
	want := []container.EventKind{container.Started, container.Paused, container.Unpaused}
	if renamer, ok := host.(Renamer); ok {
		renamer.Rename(t, id, prefix+"afterlife")
		want = append(want, container.Renamed)
	}
	want = append(want, container.Died, container.Removed)
	for i, kind := range want {
		if kind == container.Died { // only now: an engine describes who was renamed when it tells of it
			host.Stop(t, id)
			host.Remove(t, id)
		}
		e := next(t, events, id)
		// Docker learns of a pause from its runtime as well. Where that comes after the
		// unpause, it tells of both once more.
		for i > 2 && (e.Kind == container.Paused || e.Kind == container.Unpaused) {
			e = next(t, events, id)
		}
		if e.Kind != kind {
			t.Fatalf("got %s, want %s", e.Kind, kind)
		}
		if e.Time.Before(begin) || e.Time.After(time.Now()) {
			t.Errorf("%s at %v, not within the test", kind, e.Time)
		}
		if described := kind == container.Started || kind == container.Renamed; (e.Container != nil) != described {
			t.Errorf("%s: container %+v", kind, e.Container)
		} else if described && (e.Container.ID != id || e.Container.Labels["laxity.class"] != "batch") {
			t.Errorf("%s: container %+v", kind, e.Container)
		}
	}
}

func watchTellsNoPast(t *testing.T, prefix string, host Host) {
	before := watch(t.Context(), t, host.Source())
	old := host.Run(t, prefix+"old", nil)
	// containerd publishes a start some time after the task runs: it is past once it was told.
	if e := next(t, before, old); e.Kind != container.Started {
		t.Errorf("got %s, want its start", e.Kind)
	}
	events := watch(t.Context(), t, host.Source())
	host.Pause(t, old)
	if e := next(t, events, old); e.Kind != container.Paused {
		t.Errorf("got %s, which was before the watch", e.Kind)
	}
	host.Unpause(t, old)
}

func watchEndsWithItsContext(t *testing.T, host Host) {
	ctx, cancel := context.WithCancel(t.Context())
	events := watch(ctx, t, host.Source())
	cancel()
	timeout := time.After(patience)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-timeout:
			t.Fatal("the channel stays open")
		}
	}
}

func endedContextIsAnError(t *testing.T, host Host) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := host.Source().List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v, want context.Canceled", err)
	}
	if _, err := host.Source().Watch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: %v, want context.Canceled", err)
	}
}

func find(t *testing.T, s container.Source, id string) (container.Container, bool) {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(all, func(c container.Container) bool { return c.ID == id }); i >= 0 {
		return all[i], true
	}
	return container.Container{}, false
}

func watch(ctx context.Context, t *testing.T, s container.Source) <-chan container.Event {
	t.Helper()
	events, err := s.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// next returns the next event of one container.
func next(t *testing.T, events <-chan container.Event, id string) container.Event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, open := <-events:
			switch {
			case !open:
				t.Fatal("the stream broke")
			case e.ID == id:
				return e
			}
		case <-timeout:
			t.Fatal("no event came")
		}
	}
}
