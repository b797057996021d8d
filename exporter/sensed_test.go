package exporter_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/internal/enginetest"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/priority"
)

// only is a label for the containers of a test, and keeps those that carry it: the
// same test may run twice on one engine.
func only(t *testing.T) (label map[string]string, keep func(container.Container) bool) {
	key, value := "laxity-test-of", t.Name()+"-"+rand.Text()
	return map[string]string{key: value}, func(c container.Container) bool { return c.Labels[key] == value }
}

func needUprobes(t *testing.T) {
	t.Helper()
	if err := uprobe.Supported(uprobe.Options{}); err != nil {
		needtest.BPF.Skip(t, err)
	}
}

func with(a map[string]string, more ...string) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// following is the start sensor, and tells whose launches it follows.
type following struct {
	*uprobe.Sensor
	tracked chan int
}

func (f following) Track(pid int) error {
	err := f.Sensor.Track(pid)
	if err == nil {
		f.tracked <- pid
	}
	return err
}

// A server that computes now and then: with laxity.release=busy each of its busy
// intervals is a task, as real uprobes see it. One that launches fast is not watched
// while it does.
func TestBusyIntervalsOfAServer(t *testing.T) { enginetest.Each(t, busyIntervalsOfAServer) }

func busyIntervalsOfAServer(t *testing.T) {
	needUprobes(t)
	docker := simtest.Docker(t)
	for name, args := range map[string][]string{
		"slow": {"--n", "128", "--kernels", "3"},
		"fast": {"--n", "16", "--kernels", "4000"},
	} {
		t.Run(name, func(t *testing.T) {
			const pause = time.Second
			gpu := simtest.Start(t, slow())
			label, keep := only(t)
			tracked := make(chan int, 100)
			e := startWith(t, exporter.Options{Device: "sim:" + gpu.Socket, Keep: keep, Parts: exporter.Parts{
				Starts: []tracker.StartSensor{{Source: task.SourceUprobe, Open: func() (sensor.Starts, error) {
					s, err := uprobe.New(uprobe.Options{})
					return following{s, tracked}, err
				}}},
			}})
			<-e.Ready()
			c := gpu.StartContainer(t, docker, simtest.Spec{
				Image:  simtest.Image(t, docker),
				Labels: with(label, task.LabelRelease, "busy", task.LabelDeadline, "5m"),
				Args:   append(args, "--repeat", "4", "--gap", fmt.Sprint(pause.Seconds()), "--hold", "0.5"),
				Rests:  true,
			})
			select {
			case <-tracked:
			case <-time.After(patience):
				t.Fatal("its launches are not followed")
			}
			c.Begin(t)
			of := func(s *task.Snapshot) (n int) {
				for _, x := range s.Ended {
					if x.ContainerID == c.ID {
						n++
					}
				}
				return n
			}
			began := c.Await(t, "launch").Time
			took := c.Await(t, "exit").Time.Sub(began)
			s := e.await("the end of the server", func(s *task.Snapshot) bool {
				_, unfinished := taskOf(s.Tasks, c.ID)
				return of(s) >= 4 && !unfinished
			})
			if n := of(s); n != 4 {
				t.Errorf("%d busy intervals of 4 tasks", n)
			}
			var next time.Time // Ended has the latest first
			for _, x := range s.Ended {
				if x.ContainerID != c.ID {
					continue
				}
				if x.Start.Source != task.SourceUprobe || x.Outcome() != task.Hit || x.Duration(time.Time{}) > took-2*pause { // without the pauses
					t.Errorf("interval %+v of %v", x, x.Duration(time.Time{}))
				}
				if gap := next.Sub(x.End.Time); !next.IsZero() && gap < pause-50*time.Millisecond {
					t.Errorf("it ended %v before the next one, after a pause of %v", gap, pause)
				}
				next = x.Start.Time
			}
		})
	}
}

// Tasks that are over before the device would list them, while the machine does
// little else than start processes: every one is counted.
func TestShortTasksInAForkStorm(t *testing.T) {
	needUprobes(t)
	if testing.Short() {
		t.Skip("keeps the machine busy")
	}
	docker := simtest.Docker(t)
	// The device's list comes later than all of them end.
	gpu := simtest.Start(t, sim.Options{ContextTime: 5 * time.Millisecond, ListDelay: 2 * time.Second})
	label, keep := only(t)
	e := startWith(t, exporter.Options{Device: "sim:" + gpu.Socket, Keep: keep, MaxEnded: 100})
	<-e.Ready()
	image := simtest.Image(t, docker)
	// The stand-in driver is no file of the host: it is found with the first
	// container that has it, as NVIDIA's is before any.
	first := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: label, Args: []string{"--context-only", "--hold", "600"}})
	e.await("the first task", inState(first.ID, task.Running))
	e.sensed(func(int) string {
		return gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: label, Args: []string{"--context-only", "--hold", "3"}}).ID
	})

	// As the daemon does, with the storm in a group of its own, as tenants are.
	if err := priority.Raise(-10); err != nil {
		t.Log(err)
	}
	storm := exec.Command("nice", "-n", "10", "sh", "-c", "while :; do (:); (:); (:); (:); done")
	storm.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := storm.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = storm.Process.Kill(); _ = storm.Wait() })

	const count = 12
	dozen := func(hold string) (missed []string) {
		ids := make([]string, count)
		var all sync.WaitGroup
		limit := make(chan struct{}, 3)
		for i := range count {
			all.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				c := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: with(label, task.LabelDeadline, "5s"),
					Args: []string{"--context-only", "--hold", hold}})
				ids[i] = c.ID
				c.Await(t, "exit")
			})
		}
		all.Wait()
		ended, missed := e.ended(ids, patience)
		for _, x := range ended {
			if x.State != task.Ended || x.Start.Source != task.SourceUprobe || len(x.GPUs) != 1 || slices.Contains(x.GPUs, task.UnknownGPU) && x.GPUReason == "" {
				t.Errorf("task %+v", x)
			}
		}
		return missed
	}
	for _, hold := range []string{"0.3", "0.015", "0"} {
		if missed := dozen(hold); len(missed) > 0 {
			t.Errorf("tasks that hold their context for %s s were missed: containers %.12s", hold, missed)
		}
	}
}

// ended waits until each of the containers has an ended task, for so long, and
// returns the tasks, and the containers that have none.
func (r *running) ended(ids []string, within time.Duration) (found []task.Task, missed []string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	missed = ids
	for s := range r.Watch(ctx) {
		found, missed = nil, nil
		for _, id := range ids {
			if x, ok := taskOf(s.Ended, id); ok {
				found = append(found, x)
			} else {
				missed = append(missed, id)
			}
		}
		if len(missed) == 0 {
			break
		}
	}
	return found, missed
}
