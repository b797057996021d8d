package allinone_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// A container that computes by MPS beside a server and two trainers: its task is its own, it is left as it is and says why, and
// the others are ordered.
func TestClientOfMPSIsLeftAsItIs(t *testing.T) {
	s, run := gangStack(t)
	batch := func(env ...string) *simtest.Container {
		c := run(simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}, Env: env}, map[string]string{task.LabelClass: string(task.ClassBatch)})
		c.Await(t, "kernels_end")
		return c
	}
	run(simtest.Spec{Args: []string{"--n", "256", "--repeat", "0", "--gap", "0.03"}},
		map[string]string{task.LabelDeadline: "20ms", task.LabelRelease: string(task.ReleaseBusy)})
	client, one, other := batch(sim.EnvMPS+"=1"), batch(), batch()
	goesOn(t, client, time.Now())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The others have an order in which nobody is off: what one leaves, the client would take.
	for snap := range s.Exporter.Watch(ctx) {
		all := s.Actuator.State().Containers
		beside := 0
		for _, c := range all {
			if (c.ID == one.ID || c.ID == other.ID) && strings.Contains(c.Order, "which must be left alone") && !c.Off {
				beside++
			}
		}
		for _, c := range all {
			if c.ID == client.ID && c.LeftAsItIs == state.ByMPS && beside == 2 {
				said, _ := snap.FindContainer(client.ID)
				if len(said.Processes) != 1 || !said.Processes[0].MPS || !strings.Contains(c.Order, "MPS server") || c.Off || c.SliceSeconds != 0 {
					t.Errorf("%+v, %+v", said, c)
				}
				for _, x := range snap.Tasks {
					if x.ContainerID == client.ID && x.HeldSeconds+x.PausedSeconds > 0 {
						t.Errorf("it was held: %+v", x)
					}
				}
				return
			}
		}
	}
	t.Fatalf("the actuator never said it: %+v", s.Actuator.State().Containers)
}
