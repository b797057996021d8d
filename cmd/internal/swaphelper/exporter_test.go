package swaphelper_test

import (
	"context"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// The exporter sees a task swapped out and in again; it does not end by that.
func TestExporterSeesSwaps(t *testing.T) {
	r := newRig(t, options())
	e, err := exporter.New(exporter.Options{Device: "sim:" + r.Socket, SwapDir: r.swapOptions().NoticeDir, Sensor: "device",
		Keep: func(c observed.Container) bool { return c.Image == r.image }})
	check(t, err, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-e.Ready()
	c := r.run(t)
	running := awaitState(t, e, task.Running)
	for range 5 {
		_, err = r.swap.Suspend(t.Context(), c.ID, c.Name, "test")
		check(t, err, nil)
		if s := awaitState(t, e, task.Swapped); s.ID != running.ID {
			t.Errorf("task %s, was %s", s.ID, running.ID)
		}
		_, err = r.swap.Resume(t.Context(), c.ID, nil)
		check(t, err, nil)
		awaitState(t, e, task.Running)
	}
	if s := e.Snapshot(); len(s.Ended) != 0 || len(s.Tasks) != 1 || s.Tasks[0].SwappedSeconds <= 0 {
		t.Errorf("tasks %+v, ended %+v", s.Tasks, s.Ended)
	}
}

func awaitState(t *testing.T, e *exporter.Exporter, want task.State) task.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for s := range e.Watch(ctx) {
		if len(s.Tasks) == 1 && s.Tasks[0].State == want {
			return s.Tasks[0]
		}
	}
	t.Fatalf("never %s: %+v", want, e.Snapshot().Tasks)
	return task.Task{}
}
