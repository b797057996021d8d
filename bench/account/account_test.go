package account

import (
	"math"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
)

// Real containers on a simulated GPU, the smallest run: what is given out adds up, and who draws more is known.
func TestOnTheSimulatedGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 50 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range table(rows) {
		t.Log(line)
	}
	joules := map[string]float64{}
	for _, r := range rows {
		switch {
		case !isProgram(r):
			if off := off(r, "given_j", "counter_j"); !(math.Abs(off) <= 0.01) {
				t.Errorf("%s: what is given out is %.1f %% off the counter", r.Str("phase"), 100*off)
			}
		case r.Str("phase") == both:
			joules[r.Str("program")] = r.Num("j")
		}
	}
	// So short a run, on a machine that has other things to do, cannot be exact: who draws three times
	// as much is to be told.
	if ratio := joules[heavy] / joules[light]; !(ratio > 1.5 && ratio < 8) {
		t.Errorf("heavy has %.0f J, light %.0f", joules[heavy], joules[light])
	}
}

// Drawn phases whose figures are known.
func TestRows(t *testing.T) {
	at := func(seconds, counter, heavyS, heavyJ, lightS, lightJ, idle float64) reading {
		return reading{at: seconds, counter: counter, unattributed: map[string]float64{"idle": idle}, uses: map[string]task.Use{
			heavy: {GPUSeconds: heavyS, Energy: &heavyJ}, light: {GPUSeconds: lightS, Energy: &lightJ},
		}}
	}
	batches := func(from, to, each float64) (all []program.Span) {
		for began := from; began < to-each/2; began += each {
			all = append(all, program.Span{Began: began, Ended: began + each})
		}
		return all
	}
	phases := []phase{
		{resting, at(0, 0, 0, 0, 0, 0, 0), at(10, 1000, 0, 0, 0, 0, 1000)},                               // 100 W
		{heavy, at(10, 1000, 0, 0, 0, 0, 1000), at(20, 7000, 10, 5000, 0, 0, 2000)},                      // 500 W more
		{light, at(20, 7000, 10, 5000, 0, 0, 2000), at(30, 9500, 10, 5000, 10, 1500, 3000)},              // 150 W more
		{both, at(30, 9500, 10, 5000, 10, 1500, 3000), at(50, 9500+8500, 19, 9500, 21, 3500, 3000+2000)}, // 10 s each
	}
	rows, err := rowsOf(phases, map[string][]program.Span{
		heavy: append(batches(10, 20, 0.1), batches(30, 50, 0.2)...), // 100 batches of 0.1 s, shared
		light: append(batches(20, 30, 0.05), batches(30, 50, 0.1)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"account_both_gpu_seconds_error": 0.1, // 9 of 10, 11 of 10
		"account_both_energy_error":      1.0 / 3,
		"account_sum_error":              0,
		"account_truth_seconds":          1,
		"account_truth_energy_error":     0,
	}
	for _, f := range figures(rows) {
		if w, ok := want[f.Name]; !ok || math.Abs(f.Value-w) > 1e-6 {
			t.Errorf("%s = %v, want %v (known: %v)", f.Name, f.Value, w, ok)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if rows, err := rowsOf(phases, nil); err == nil {
		t.Errorf("programs that computed nothing: %v", rows)
	}
}

func TestSettings(t *testing.T) {
	for _, args := range []map[string]string{{"alone": "x"}, {"together": "-1s"}} {
		if s, err := read(bench.Env{Args: args}); err == nil {
			t.Errorf("%v: %v", args, s)
		}
	}
}
