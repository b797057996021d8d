package allinone_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// A simulated card in MIG mode: each instance is a GPU of its own. Those on the first are ordered behind its server; the one on
// the second has that alone, and no slice. Memory and tasks are each instance's.
func TestInstancesAreGPUsOfTheirOwn(t *testing.T) {
	s, run := gangStack(t, func(o *allinone.Options) {
		o.Sim.Cards = []sim.Card{{Speed: sim.H200().Scaled(512).Faster(20), Instances: []sim.Instance{{Share: 0.5}, {Share: 0.5}}}}
	})
	on := func(instance string, args []string, labels map[string]string) *simtest.Container {
		c := run(simtest.Spec{Args: args, Env: []string{"CUDA_VISIBLE_DEVICES=" + instance}}, labels)
		c.Await(t, "kernels_end")
		return c
	}
	batch := func(instance string) *simtest.Container {
		return on(instance, []string{"--n", "256", "--repeat", "0", "--alloc-extra", "64"}, map[string]string{task.LabelClass: string(task.ClassBatch)})
	}
	server := on("0", []string{"--n", "256", "--repeat", "0", "--gap", "0.03"},
		map[string]string{task.LabelDeadline: "20ms", task.LabelRelease: string(task.ReleaseBusy)})
	one, other, alone := batch("0"), batch("0"), batch("1")
	// Without the processes' utilisation, which the driver does not tell of instances, nobody takes turns: slices order them.
	awaitContainers(t, s, "stand in the queue", func(c state.Container) bool { return strings.Contains(c.Order, "in the queue, after the requests") }, one.ID, other.ID)
	awaitContainers(t, s, "have a slice", func(c state.Container) bool { return c.SliceSeconds > 0 }, server.ID)
	for _, c := range []*simtest.Container{one, other, alone} {
		goesOn(t, c, time.Now())
	}

	snap := s.Exporter.Snapshot()
	if len(snap.GPUs) != 2 || snap.GPUs[0].Parent == "" || snap.GPUs[0].Parent != snap.GPUs[1].Parent {
		t.Fatalf("GPUs: %+v", snap.GPUs)
	}
	for _, want := range []struct {
		c  *simtest.Container
		on int
	}{{one, 0}, {other, 0}, {alone, 1}} {
		here, there := snap.GPUs[want.on].UUID, snap.GPUs[1-want.on].UUID
		await(t, s, func(_ task.Task, used map[string]uint64) bool { return used[here] >= 64*mib && used[there] == 0 }, want.c.ID)
		for _, x := range snap.Tasks {
			if x.ContainerID == want.c.ID && (len(x.GPUs) != 1 || x.GPUs[0] != here) {
				t.Errorf("the task of the one on %s is on %v", here, x.GPUs)
			}
			if x.ContainerID == alone.ID && x.HeldSeconds > 0 {
				t.Errorf("the one that is alone was held: %+v", x)
			}
		}
	}
	for _, c := range s.Actuator.State().Containers {
		if c.ID == alone.ID && (c.SliceSeconds != 0 || c.LeftAsItIs != "") {
			t.Errorf("the one that is alone: %+v", c)
		}
	}
}

// awaitContainers waits until the actuator says so of all of these containers.
func awaitContainers(t *testing.T, s *allinone.Stack, what string, is func(state.Container) bool, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range s.Exporter.Watch(ctx) {
		n := 0
		for _, c := range s.Actuator.State().Containers {
			if slices.Contains(ids, c.ID) && is(c) {
				n++
			}
		}
		if n == len(ids) {
			return
		}
	}
	t.Fatalf("they do not all %s: %+v", what, s.Actuator.State().Containers)
}
