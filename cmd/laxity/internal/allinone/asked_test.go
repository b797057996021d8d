package allinone_test

import (
	"context"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// A container that a person pauses is off the GPU until it is released, longer than anybody is off for others, and goes on then.
func TestPausedByAPersonIsOffTheGPU(t *testing.T) {
	s, run := gangStack(t)
	c := run(simtest.Spec{Args: []string{"--n", "512", "--repeat", "0"}}, map[string]string{task.LabelClass: string(task.ClassBatch)})
	c.Await(t, "kernels_end")
	check(t, s.Actuator.Pause(t.Context(), "anna", c.ID))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	since := time.Time{}
	for snap := range s.Exporter.Watch(ctx) {
		for _, is := range s.Actuator.State().Containers {
			if is.ID != c.ID {
				continue
			}
			if since.IsZero() && is.Off {
				since = snap.Time
			}
			if !since.IsZero() && !is.Off {
				t.Fatalf("it is on after %v: %+v", snap.Time.Sub(since), is)
			}
		}
		if !since.IsZero() && snap.Time.Sub(since) > 3*time.Second {
			break
		}
	}
	if since.IsZero() {
		t.Fatal("it was never off")
	}
	check(t, s.Actuator.Release(t.Context(), "anna", c.ID))
	goesOn(t, c, time.Now())
	for _, is := range s.Actuator.State().Containers {
		if is.ID == c.ID && is.Off {
			t.Errorf("%+v", is)
		}
	}
}
