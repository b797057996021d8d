package core_test

import (
	"fmt"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// What a container did that is gone is not driven out by a server with many short
// tasks: the metrics show it for a quarter of an hour. Yet the history is bounded.
func TestHistoryOfContainersThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.m = core.New(core.Options{MaxEnded: 3})
	w.m.Containers(nil, at(0))
	once := func(s float64, name string) {
		w.meet(1, name)
		w.sense(s, 1, sensor.ContextMade)
		w.exit(s+0.5, 1)
	}
	for i := range 10 {
		name := fmt.Sprint("short", i)
		w.run(float64(i), name, nil)
		once(float64(i), name)
		w.event(float64(i)+0.6, container.Removed, name)
	}
	w.run(10, "server", nil)
	for i := range 20 {
		once(11+float64(i), "server")
	}
	var names []string
	for _, x := range w.snapshot().Ended {
		names = append(names, x.Container)
	}
	if got, want := fmt.Sprint(names), "[server server server short9 short8 short7]"; got != want {
		t.Errorf("history of %s, want %s", got, want)
	}
}

// After a restart it is not known at once which containers run.
func TestHistoryOfContainersThatRunSurvives(t *testing.T) {
	m := core.New(core.Options{MaxEnded: 2})
	var s core.State
	for i, name := range []string{"rare", "gone1", "gone2", "gone3", "server", "server", "server"} {
		s.Ended = append(s.Ended, task.Task{ID: fmt.Sprint(i), Container: name, ContainerID: id(name), State: task.Ended,
			Start: task.Mark{Time: at(float64(i))}, End: &task.Mark{Time: at(float64(i) + 0.5)}})
	}
	m.Restore(s, nil, at(10))
	m.Snapshot()
	m.Containers([]container.Container{newContainer("rare", nil), newContainer("server", nil)}, at(11))
	var ids []string
	for _, x := range m.Snapshot().Ended {
		ids = append(ids, x.ID)
	}
	if got, want := fmt.Sprint(ids), "[6 5 3 2 0]"; got != want {
		t.Errorf("history %s, want %s: the latest two, and the latest of each of two that are gone and of one that runs", got, want)
	}
	if n := len(m.TakeChanges().Dropped); n != 2 {
		t.Errorf("%d tasks leave the store, want 2", n)
	}
}
