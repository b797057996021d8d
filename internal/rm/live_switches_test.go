package rm_test

import (
	"context"
	"fmt"
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
	var starts, stops []time.Duration
	total, wall, count := map[int]time.Duration{}, time.Duration(0), 0
	for range 20 {
		began := time.Now()
		if err := trace.Start(); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		time.Sleep(100 * time.Millisecond)
		window := time.Since(from)
		switches, lost, err := trace.Stop()
		starts, stops = append(starts, from.Sub(began)), append(stops, time.Since(from)-window)
		if err != nil || lost {
			t.Fatalf("lost %v, %v", lost, err)
		}
		count += len(switches)
		wall += window
		for pid, d := range rm.Presence(switches, window) {
			total[pid] += d
		}
		time.Sleep(50 * time.Millisecond)
	}
	figure("the trace, on", "%s", spread(starts))
	figure("the trace, off", "%s", spread(stops))
	for _, pid := range slices.Sorted(maps.Keys(total)) {
		figure("on the GPU", "process %d: %.3f of the time, %d records in %v", pid, total[pid].Seconds()/wall.Seconds(), count, wall)
	}
	for _, run := range programs {
		if share := total[run.PID()].Seconds() / wall.Seconds(); share < 0.42 || share > 0.5 {
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
	for _, wait := range []time.Duration{0, 900 * time.Millisecond} {
		traceCosts(t, kernel, wait)
	}
}

func traceCosts(t *testing.T, kernel rm.Kernel, wait time.Duration) {
	t.Helper()
	first, _ := liveTenant(t, tenant.Steps, 1)
	second, _ := liveTenant(t, tenant.Steps, 1)
	defer first.Kill()
	defer second.Kill()
	steps := func() float64 { return float64(first.Launched() + second.Launched()) }
	rate := func() float64 {
		before, began := steps(), time.Now()
		time.Sleep(1200 * time.Millisecond)
		return (steps() - before) / time.Since(began).Seconds()
	}
	var ratios []float64
	for range 6 {
		without := rate()
		trace := openLiveTrace(t, kernel)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { // as the exporter does it, or all the time
			defer close(done)
			for ctx.Err() == nil && trace.Start() == nil {
				time.Sleep(100 * time.Millisecond)
				_, _, _ = trace.Stop()
				time.Sleep(wait)
			}
		}()
		with := rate()
		cancel()
		<-done
		trace.Close()
		ratios = append(ratios, with/((without+rate())/2))
	}
	slices.Sort(ratios)
	figure(fmt.Sprintf("steps with the trace each %v / without", wait), "%.4f", ratios)
	if median := ratios[len(ratios)/2]; median < 0.97 {
		t.Errorf("with the trace programs did %.3f of their work", median)
	}
}
