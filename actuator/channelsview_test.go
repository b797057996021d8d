package actuator_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

// The state says of everybody where it stands, or why it is left as it is.
func TestStateSaysTheOrder(t *testing.T) {
	m := channelstest.NewMachine()
	b := newBench(t, func(o *actuator.Options) {
		o.Mechanisms.Channels, o.RunDir = m, t.TempDir()
		o.Config.Arbitrate = config.Always
	})
	const gpu1 = "GPU-1"
	b.source.set(func() { b.source.gpus = append(b.source.gpus, task.GPU{UUID: gpu1, MemoryTotal: 100}) })
	begin := func(id string, gpus ...string) {
		sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
		pid := sleeper.Process.Pid
		stat, _ := proc.ReadStat("/proc", pid)
		m.Adopt(rm.Process{PID: pid, Start: stat.Start}, gpus[0])
		b.source.set(func() {
			n := time.Duration(len(b.source.containers))
			b.source.containers = append(b.source.containers, task.Container{ID: id, Name: id, Spec: task.Spec{Managed: true, Deadline: 100},
				Processes: []task.Process{{PID: pid, GPUs: gpus}}})
			b.source.tasks = append(b.source.tasks, task.Task{ID: id, PID: pid, Container: id, ContainerID: id, GPUs: gpus, State: task.Running,
				Start: task.Mark{Time: time.Now()}, Deadline: time.Now().Add((100 + n) * time.Second)})
		})
	}
	says := func(id, want string) {
		t.Helper()
		b.await(id+": "+want, func() bool {
			for _, c := range b.State().Containers {
				if c.ID == id {
					return c.Order == want
				}
			}
			return false
		})
	}
	begin("a", gpu0)
	begin("b", gpu0)
	says("a", "first in the queue, slice 10 s")
	says("b", "second in the queue, slice 100 ms")
	b.await("the GPU's order", func() bool { return slices.Equal(b.State().GPUs[0].Order, []string{"a", "b"}) })
	begin("c", gpu0, gpu1)
	says("c", "left as it is: it computes on several GPUs")
}
