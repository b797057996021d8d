package exporter_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/enginetest"
)

// patience is how long a test waits for an event before it gives up; none
// passes by waiting.
const patience = 30 * time.Second

// running is an exporter in its own goroutine.
type running struct {
	*exporter.Exporter
	t    *testing.T
	stop func()
}

// start runs an exporter on the simulated GPU and this machine's Docker engine.
func start(t *testing.T, socket, stateDir string) *running {
	t.Helper()
	return startWith(t, exporter.Options{Node: "test", Device: "sim:" + socket, StateDir: stateDir})
}

// startWith runs an exporter until the test ends. Where opt gives no DeviceTimeout the device answers in time.
func startWith(t *testing.T, opt exporter.Options) *running {
	t.Helper()
	mayHang := opt.DeviceTimeout > 0
	if !mayHang {
		opt.DeviceTimeout = patience
	}
	e, err := simtest.Opened(func() (*exporter.Exporter, error) { return exporter.New(opt) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	r := &running{Exporter: e, t: t}
	r.stop = func() {
		if ctx.Err() == nil {
			cancel()
			if err := <-done; err != nil && (!mayHang || !errors.Is(err, device.ErrNotAnswering)) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(r.stop)
	return r
}

// sensed runs tasks until the sensor sees the start of one, and returns how many. An exporter knows
// the host's libcuda before any task; it must find the stand-in in a container first, and the device
// lists a task also where its driver is not watched yet. run returns the nth one's container.
func (r *running) sensed(run func(n int) (id string)) int {
	r.t.Helper()
	const most = 5
	for n := 1; n <= most; n++ {
		id, seen := run(n), false
		r.await("a task that is over", func(s *task.Snapshot) bool {
			x, over := taskOf(s.Ended, id)
			seen = x.Start.Source == s.Health.Sensor
			return over
		})
		if seen {
			return n
		}
	}
	r.t.Fatalf("the sensor saw no start of %d tasks", most)
	return 0
}

// await returns the first snapshot that satisfies ok.
func (r *running) await(what string, ok func(*task.Snapshot) bool) *task.Snapshot {
	r.t.Helper()
	s := r.first(ok)
	if s == nil {
		r.t.Fatalf("no snapshot with %s within %v: %+v", what, patience, r.Snapshot())
	}
	return s
}

// first is await without a failure: nil if no snapshot satisfies ok in time. Any goroutine may call it.
func (r *running) first(ok func(*task.Snapshot) bool) *task.Snapshot {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for s := range r.Watch(ctx) {
		if ok(s) {
			return s
		}
	}
	return nil
}

func taskOf(tasks []task.Task, containerID string) (task.Task, bool) {
	for _, t := range tasks {
		if t.ContainerID == containerID {
			return t, true
		}
	}
	return task.Task{}, false
}

func inState(id string, state task.State) func(*task.Snapshot) bool {
	return func(s *task.Snapshot) bool {
		t, ok := taskOf(s.Tasks, id)
		return ok && t.State == state
	}
}

func ended(id string) func(*task.Snapshot) bool {
	return func(s *task.Snapshot) bool { _, ok := taskOf(s.Ended, id); return ok }
}

// slow is a card on which a 512² task has the phases of a 16384² one.
func slow() sim.Options {
	return sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512)}}}
}

var (
	deadline9s = map[string]string{task.LabelDeadline: "9s"}
	work       = []string{"--n", "512"}
)

func TestTaskOfAContainer(t *testing.T) { enginetest.Each(t, taskOfAContainer) }

func taskOfAContainer(t *testing.T) {
	docker := simtest.Docker(t)
	gpu := simtest.Start(t, slow())
	e := start(t, gpu.Socket, "")
	c := gpu.StartContainer(t, docker, simtest.Spec{
		Image: simtest.Image(t, docker), Labels: deadline9s, Args: work, Rests: true,
	})

	s := e.await("a running task", inState(c.ID, task.Running))
	running, _ := taskOf(s.Tasks, c.ID)
	if want := running.Start.Time.Add(9 * time.Second); !running.Deadline.Equal(want) {
		t.Errorf("deadline %v, want start + 9 s = %v", running.Deadline, want)
	}
	if f := running.Float(time.Now()); f > 9 || f < -20 {
		t.Errorf("float = %v", f)
	}
	if running.Container != c.Name || len(running.GPUs) != 1 || running.GPUs[0] != gpu.UUIDs()[0] {
		t.Errorf("task of %q on %v", running.Container, running.GPUs)
	}

	c.Pause(t)
	s = e.await("a paused task", inState(c.ID, task.Paused))
	if container, ok := s.FindContainer(c.ID); !ok || !container.Paused {
		t.Errorf("container: %+v", container)
	}
	c.Unpause(t)
	e.await("the task running again", inState(c.ID, task.Running))

	c.Begin(t)
	c.Await(t, "exit")
	s = e.await("the end", ended(c.ID))
	end, _ := taskOf(s.Ended, c.ID)
	if end.State != task.Ended || end.Outcome() == "" || end.PausedSeconds <= 0 {
		t.Errorf("ended task: %+v", end)
	}
	if _, still := taskOf(s.Tasks, c.ID); still {
		t.Error("the ended task is unfinished as well")
	}
	checkMarks(t, c.Timeline(t)[0].Time, end)
}

func TestTaskOfARootlessContainer(t *testing.T) {
	enginetest.Rootless(t)
	// Podman's user reads the stand-in driver too.
	dir, err := os.MkdirTemp("", "laxity-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	taskOfAContainer(t)
}

// checkMarks checks that the truth lies within what the task claims of itself.
func checkMarks(t *testing.T, born time.Time, got task.Task) {
	t.Helper()
	if got.Start.Time.Before(born) {
		t.Errorf("start %v, before the program began at %v", got.Start.Time, born)
	}
	if b := float64(got.Start.ErrorBound); math.IsInf(b, 0) || b <= 0 {
		t.Errorf("error bound of the start: %v", b)
	}
}

func TestRestartKeepsStartAndDeadline(t *testing.T) {
	docker := simtest.Docker(t)
	gpu := simtest.Start(t, slow())
	dir := filepath.Join(t.TempDir(), "state")
	image := simtest.Image(t, docker)
	first := start(t, gpu.Socket, dir)
	goesOn := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: deadline9s, Args: work, Rests: true})
	dies := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: deadline9s, Args: work, Rests: true})
	s := first.await("two tasks", func(s *task.Snapshot) bool {
		return inState(goesOn.ID, task.Running)(s) && inState(dies.ID, task.Running)(s)
	})
	before, _ := taskOf(s.Tasks, goesOn.ID)
	goesOn.Pause(t) // holds its place while the exporter is away
	first.stop()
	kill(t, dies)

	second := start(t, gpu.Socket, dir)
	s = second.await("the task after the restart", inState(goesOn.ID, task.Paused))
	after, _ := taskOf(s.Tasks, goesOn.ID)
	// By the date: the monotonic clock of the new one is not that of the old one.
	date := func(t time.Time) time.Time { return t.Round(0) }
	if after.ID != before.ID || !date(after.Start.Time).Equal(date(before.Start.Time)) || !date(after.Deadline).Equal(date(before.Deadline)) {
		t.Errorf("restart changed the task:\n%+v\n%+v", before, after)
	}
	lost, ok := taskOf(s.Ended, dies.ID)
	if !ok || lost.State != task.Lost || lost.End.Source != task.SourceRestart {
		t.Errorf("the task that ended while the exporter was down: %+v", lost)
	}
	goesOn.Unpause(t)
	goesOn.Begin(t)
	s = second.await("its end", ended(goesOn.ID))
	if end, _ := taskOf(s.Ended, goesOn.ID); end.State != task.Ended || end.ID != before.ID {
		t.Errorf("the task that went on: %+v", end)
	}
}

// kill ends a tenant and waits until it is gone.
func kill(t *testing.T, c *simtest.Container) {
	t.Helper()
	if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.Wait(t)
}
