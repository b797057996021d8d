package demo

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// The whole demonstration, on real containers and the simulated GPU. Whether
// deadlines are hit depends on how busy this machine is; what happens does not.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real containers for half a minute")
	}
	docker := simtest.Docker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out strings.Builder
	var results *Results
	err := Run(ctx, Options{Device: "sim", Policy: "fifo", Hold: config.HoldPause, Out: &out, Logger: slog.New(slog.DiscardHandler),
		JSON: func(r Results) error { results = &r; return nil }})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"Simulated GPU", "began a task, due in", "ALERT GPUContention", "actuator  pauses", "is paused", "actuator  unpauses", "computes again after",
		"Ranking of the nodes", "deadlines hit", "makespan", "mean turnaround",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing was printed of %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "GPU-") {
		t.Errorf("a GPU is called by its UUID:\n%s", out.String())
	}
	for _, d := range results.Without.Tasks {
		if d.Paused != 0 {
			t.Errorf("%s was paused for %vs without arbitration", d.Name, d.Paused)
		}
	}
	paused := task.Seconds(0)
	for _, d := range results.With.Tasks {
		paused += d.Paused
	}
	if paused == 0 {
		t.Error("nothing was paused with arbitration")
	}
	if left, err := leftovers(t.Context(), docker); err != nil || len(left) > 0 {
		t.Errorf("the demo left behind %v (%v)", left, err)
	}
}

// Ctrl-C in the middle: everything that it made is removed.
func TestDemoInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real containers")
	}
	docker := simtest.Docker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &until{text: "began a task", then: cancel}
	err := Run(ctx, Options{Device: "sim", Out: out, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(out.String(), "stopped") {
		t.Errorf("interrupted, it returned %v and printed:\n%s", err, out.String())
	}
	if left, err := leftovers(t.Context(), docker); err != nil || len(left) > 0 {
		t.Errorf("the demo left behind %v (%v)", left, err)
	}
}
