package exporter_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/internal/needtest"
)

// knowing is the start sensor, and tells whom it was told of.
type knowing struct {
	*uprobe.Sensor
	known chan int
}

func (k knowing) Know(pid int) error {
	err := k.Sensor.Know(pid)
	k.known <- pid
	return err
}

// slowExits tells of no end before the test is over: a driver takes that long to let go.
type slowExits struct {
	*pidfd.Watcher
	late chan sensor.Exit
}

func newSlowExits(t *testing.T) slowExits {
	t.Helper()
	w, err := pidfd.New()
	if err != nil {
		needtest.BPF.Skip(t, err)
	}
	s := slowExits{w, make(chan sensor.Exit, 100)}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for x := range w.Exits() {
			<-over
			s.late <- x
		}
	}()
	t.Cleanup(func() {
		close(over)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return s
}

func (s slowExits) Exits() <-chan sensor.Exit { return s.late }

// Tasks whose start the sensor did not see, for it began before the exporter did, end
// when their process begins to exit all the same.
func TestEndsAreExactAfterARestart(t *testing.T) {
	needUprobes(t)
	docker := simtest.Docker(t)
	gpu := simtest.Start(t, sim.Options{})
	image := simtest.Image(t, docker)
	label, keep := only(t)
	opt := exporter.Options{Node: "test", Device: "sim:" + gpu.Socket, Keep: keep, StateDir: filepath.Join(t.TempDir(), "state")}
	tenant := func() *simtest.Container {
		return gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: label, Args: []string{"--context-only", "--hold", "600"}})
	}
	first := startWith(t, opt)
	<-first.Ready()
	restored := tenant()
	first.await("a running task", inState(restored.ID, task.Running))
	first.stop()
	listed := tenant()
	listed.Await(t, "context")

	known := make(chan int, 100)
	opt.Parts = exporter.Parts{
		Exits: newSlowExits(t),
		Starts: []tracker.StartSensor{{Source: task.SourceUprobe, Open: func() (sensor.Starts, error) {
			s, err := uprobe.New(uprobe.Options{})
			return knowing{s, known}, err
		}}},
	}
	second := startWith(t, opt)
	for _, c := range []*simtest.Container{restored, listed} {
		second.await("the task", inState(c.ID, task.Running))
	}
	for missing := map[int]bool{restored.PID: true, listed.PID: true}; len(missing) > 0; {
		select {
		case pid := <-known:
			delete(missing, pid)
		case <-time.After(patience):
			t.Fatalf("the sensor was not told of %v", missing)
		}
	}
	for name, c := range map[string]*simtest.Container{"restored": restored, "listed": listed} {
		before := time.Now()
		if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s := second.await("the end", ended(c.ID))
		end, _ := taskOf(s.Ended, c.ID)
		if end.State != task.Ended || end.End.Source != task.SourceTracepoint || end.End.Time.Before(before) {
			t.Errorf("%s: killed at %v, its end is %+v: %+v", name, before, *end.End, end)
		}
	}
}
