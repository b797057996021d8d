package allinone_test

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// With pauses one of two tasks with deadlines waits for the other, and goes on beside it while a container without a label
// takes what it leaves.
func TestPausesEndBesideAContainerThatIsNotOurs(t *testing.T) {
	s, run := gangStack(t, func(o *allinone.Options) { o.Hold, o.SeveralGPUs = config.HoldPause, config.SeveralNever })
	work := simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}, Env: []string{"CUDA_VISIBLE_DEVICES=0"}}
	first := run(work, map[string]string{task.LabelDeadline: "1h"})
	first.Await(t, "kernels_end")
	second := run(work, map[string]string{task.LabelDeadline: "2h"})
	state := func(want task.State) {
		t.Helper()
		await(t, s, func(x task.Task, _ map[string]uint64) bool { return x.State == want }, second.ID)
	}
	state(task.Paused)
	stranger := run(work, map[string]string{})
	state(task.Running)
	for _, c := range []*simtest.Container{first, second, stranger} {
		goesOn(t, c, time.Now())
	}
	if err := simtest.Docker(t).ContainerRemove(t.Context(), stranger.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	state(task.Paused)
	goesOn(t, first, time.Now())
}
