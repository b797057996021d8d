package allinone_test

import (
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// A job whose ranks wait for each other on two GPUs takes turns with a trainer beside a server on one of
// them: the whole of it goes off and on as one, and its sums stay right.
func TestJobOnTwoGPUsTakesTurns(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "controlling other processes' channels needs root")
	}
	docker := simtest.Docker(t)
	image := simtest.Image(t, docker)
	card := sim.Card{Speed: sim.H200().Scaled(512).Faster(20)}
	s := open(t, image, func(o *allinone.Options) {
		o.Config.Arbitrate, o.Device, o.MemoryGuard = config.Always, allinone.DeviceSim, config.MemoryOff
		o.Hold, o.SeveralGPUs, o.Sim = config.HoldChannels, config.SeveralAsOne, sim.Options{Cards: []sim.Card{card, card}}
	})
	gpu := &simtest.Server{Socket: s.Socket}
	run := func(spec simtest.Spec, labels map[string]string) *simtest.Container {
		spec.Image, spec.Labels = image, labels
		labels[label] = image
		return gpu.StartContainer(t, docker, spec)
	}
	run(simtest.Spec{Args: []string{"--n", "256", "--repeat", "0", "--gap", "0.03"}},
		map[string]string{task.LabelDeadline: "20ms", task.LabelRelease: string(task.ReleaseBusy)})
	run(simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}}, map[string]string{task.LabelClass: string(task.ClassBatch)})
	job := run(simtest.Spec{Program: simtest.Ranks(t), Args: []string{"--gpus", "2", "--processes", "--kernel", "0.003"}},
		map[string]string{task.LabelClass: string(task.ClassBatch)})
	job.Await(t, "kernels_end")
	state := func(want task.State) {
		await(t, s, func(x task.Task, _ map[string]uint64) bool { return x.State == want }, job.ID)
	}
	for range 2 {
		state(task.Held)
		state(task.Running)
		goesOn(t, job, time.Now())
	}
}
