package allinone_test

import (
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// Who holds more than its limit though allocations are guarded is paused, and that is
// told: here because it had it before the guard came. Also where each is on a MIG instance of its own.
func TestOverItsLimitIsPaused(t *testing.T) {
	card := sim.Card{Memory: 4000 * mib, Speed: sim.H200().Scaled(512).Faster(20)}
	t.Run("a card", func(t *testing.T) { overItsLimitIsPaused(t, card, "0", "0") })
	card.Instances = []sim.Instance{{Share: 0.5}, {Share: 0.5}}
	t.Run("MIG instances", func(t *testing.T) { overItsLimitIsPaused(t, card, "0", "1") })
}

func overItsLimitIsPaused(t *testing.T, card sim.Card, withinOn, beyondOn string) {
	docker := simtest.Docker(t)
	image := simtest.Image(t, docker)
	gpu := simtest.Start(t, sim.Options{ContextMemory: 100 * mib, Cards: []sim.Card{card}})
	run := func(extra, on string) *simtest.Container {
		c := gpu.StartContainer(t, docker, simtest.Spec{Image: image, Labels: map[string]string{label: image, task.LabelGPUMemory: "1GiB"},
			Args: []string{"--n", "512", "--repeat", "0", "--alloc-extra", extra}, Env: []string{"CUDA_VISIBLE_DEVICES=" + on}})
		c.Await(t, "launch")
		return c
	}
	within, beyond := run("600", withinOn), run("1600", beyondOn)

	s := open(t, image, func(o *allinone.Options) {
		o.Config.Arbitrate, o.Device, o.Swap = config.Never, "sim:"+gpu.Socket, config.MemoryOff
	})
	decisions := s.Actuator.Decisions().Watch(t.Context(), 0)
	told := false
	for timeout := time.After(time.Minute); ; {
		select {
		case d := <-decisions:
			t.Logf("%s %s %.12s %s %s", d.Kind, d.Result, d.ContainerID, d.Reason, d.Error)
			if (d.Kind == decision.Memory || d.Kind == decision.Pause) && d.ContainerID != beyond.ID {
				t.Errorf("that one is within its limit")
			}
			told = told || d.Kind == decision.Memory && d.Result == decision.Opened && strings.Contains(d.Reason, "its limit is 1024 MiB")
			if d.Kind != decision.Pause || d.Result != decision.Done {
				continue
			}
			if !told || !strings.Contains(d.Reason, "its limit is 1024 MiB") {
				t.Errorf("why is not told: %s", d.Reason)
			}
			goesOn(t, within, d.Time)
			at, err := docker.ContainerInspect(t.Context(), beyond.ID)
			check(t, err)
			if !at.State.Paused {
				t.Error("it is not paused")
			}
			return
		case <-timeout:
			t.Fatal("it was not paused within a minute")
		}
	}
}
