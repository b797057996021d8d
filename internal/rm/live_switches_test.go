package rm_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

// TestLiveTrace has two programs compute side by side: the driver's trace says that both were on the
// GPU, equally long, and who.
func TestLiveTrace(t *testing.T) {
	kernel := needGPU(t)
	programs := []*tenant.Tenant{}
	for range 2 {
		run, _ := liveTenant(t, tenant.Spin, 1)
		programs = append(programs, run)
	}
	trace := openLiveTrace(t, kernel)
	defer trace.Close()
	var presence rm.Presence
	took, count := []time.Duration{}, 0
	total := map[int]time.Duration{}
	began := time.Now()
	for last := began; time.Since(began) < 5*time.Second; {
		time.Sleep(250 * time.Millisecond)
		now := time.Now()
		switches, lost, err := trace.Read()
		took = append(took, time.Since(now))
		if err != nil || lost {
			t.Fatalf("lost %v, %v", lost, err)
		}
		count += len(switches)
		for pid, d := range presence.Take(switches, lost, now.Sub(last)) {
			total[pid] += d
		}
		last = now
	}
	wall := time.Since(began)
	figure("a reading of the trace", "%s", spread(took))
	for _, pid := range slices.Sorted(maps.Keys(total)) {
		figure("on the GPU", "process %d: %.3f of the time, %d records in %v", pid, total[pid].Seconds()/wall.Seconds(), count, wall)
	}
	for _, run := range programs {
		if share := total[run.PID()].Seconds() / wall.Seconds(); share < 0.4 || share > 0.5 {
			t.Errorf("process %d was on the GPU %.3f of the time, want almost a half", run.PID(), share)
		}
	}
}

func openLiveTrace(t *testing.T, kernel rm.Kernel) *rm.Trace {
	t.Helper()
	files, err := filepath.Glob("/proc/driver/nvidia/gpus/*/information")
	if err != nil || len(files) == 0 {
		t.Fatalf("no GPU: %v", err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	trace, err := rm.New(kernel, rm.Options{}).OpenTrace(regexp.MustCompile(`GPU-[0-9a-f-]+`).FindString(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	figure("the trace, opened", "%v", time.Since(began))
	return trace
}

// TestLiveTraceCosts has two programs make short kernels side by side, with the trace and without, in turns.
func TestLiveTraceCosts(t *testing.T) {
	kernel := needGPU(t)
	first, _ := liveTenant(t, tenant.Steps, 1)
	second, _ := liveTenant(t, tenant.Steps, 1)
	steps := func() float64 { return float64(first.Launched() + second.Launched()) }
	rate := func() float64 {
		before, began := steps(), time.Now()
		time.Sleep(time.Second)
		return (steps() - before) / time.Since(began).Seconds()
	}
	var ratios []float64
	for range 8 {
		without := rate()
		trace := openLiveTrace(t, kernel)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				_, _, _ = trace.Read()
				time.Sleep(100 * time.Millisecond)
			}
		}()
		with := rate()
		cancel()
		time.Sleep(150 * time.Millisecond)
		trace.Close()
		ratios = append(ratios, with/((without+rate())/2))
	}
	slices.Sort(ratios)
	figure("steps with the trace / without", "%.4f", ratios)
	if median := ratios[len(ratios)/2]; median < 0.97 {
		t.Errorf("with the trace programs did %.3f of their work", median)
	}
}
