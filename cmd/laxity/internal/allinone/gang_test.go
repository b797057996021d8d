package allinone_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// gangStack is a stack with two simulated cards, unless change says otherwise, and a function that runs a container on them.
func gangStack(t *testing.T, change ...func(*allinone.Options)) (*allinone.Stack, func(simtest.Spec, map[string]string) *simtest.Container) {
	t.Helper()
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "controlling other processes' channels needs root")
	}
	docker := simtest.Docker(t)
	image := simtest.Image(t, docker)
	card := sim.Card{Speed: sim.H200().Scaled(512).Faster(20)}
	s := open(t, image, func(o *allinone.Options) {
		o.Config.Arbitrate, o.Device, o.MemoryGuard = config.Always, allinone.DeviceSim, config.MemoryOff
		o.Hold, o.SeveralGPUs, o.Sim = config.HoldChannels, config.SeveralAsOne, sim.Options{Cards: []sim.Card{card, card}}
		for _, f := range change {
			f(o)
		}
	})
	gpu := &simtest.Server{Socket: s.Socket}
	return s, func(spec simtest.Spec, labels map[string]string) *simtest.Container {
		spec.Image, spec.Labels = image, labels
		labels[label] = image
		return gpu.StartContainer(t, docker, spec)
	}
}

// A job whose ranks wait for each other on two GPUs takes turns with a trainer beside a server on one of
// them: the whole of it goes off and on as one, and its sums stay right.
func TestJobOnTwoGPUsTakesTurns(t *testing.T) {
	s, run := gangStack(t)
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

// Two containers of one gang, each on a GPU of its own; beside a server and a trainer of the first:
// the two go off together, also the one whose GPU nobody else wants, and on together, and both go on with their work.
func TestGangOfContainersTakesTurns(t *testing.T) {
	s, run := gangStack(t)
	run(simtest.Spec{Args: []string{"--n", "256", "--repeat", "0", "--gap", "0.03"}},
		map[string]string{task.LabelDeadline: "20ms", task.LabelRelease: string(task.ReleaseBusy)})
	run(simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}}, map[string]string{task.LabelClass: string(task.ClassBatch)})
	var ranks []*simtest.Container
	for _, gpu := range []string{"0", "1"} {
		ranks = append(ranks, run(simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}, Env: []string{"CUDA_VISIBLE_DEVICES=" + gpu}},
			map[string]string{task.LabelGang: "job"}))
		ranks[len(ranks)-1].Await(t, "kernels_end")
	}
	both := func(want task.State) {
		t.Helper()
		awaitAll(t, s, want, ranks[0].ID, ranks[1].ID)
	}
	for range 2 {
		both(task.Held)
		both(task.Running)
		for _, r := range ranks {
			goesOn(t, r, time.Now())
		}
	}
}

// awaitAll waits until one snapshot shows a task of each container in this state.
func awaitAll(t *testing.T, s *allinone.Stack, want task.State, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for snap := range s.Exporter.Watch(ctx) {
		is := map[string]bool{}
		for _, x := range snap.Tasks {
			is[x.ContainerID] = is[x.ContainerID] || x.State == want
		}
		if !slices.ContainsFunc(ids, func(id string) bool { return !is[id] }) {
			return
		}
	}
	t.Fatalf("no snapshot shows all of them %s: %+v", want, s.Exporter.Snapshot().Tasks)
}
