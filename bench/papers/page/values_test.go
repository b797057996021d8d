package page

import (
	"math"
	"testing"

	"github.com/laxity/laxity/bench"
)

// Contention: two containers of which each takes 22 s, beside one alone of 10 s.
func TestContended(t *testing.T) {
	task := func(way string, n, run, ways int, took, kernels float64) bench.Row {
		return bench.Row{"set": "13312", "way": way, "n_tasks": n, "run": run, "ways": ways, "start": 0.0, "end": took, "took_s": took, "launch_s": 0.5, "kernels_s": kernels}
	}
	rows := []bench.Row{
		task(sliced, 1, 1, 1, 10, 9),
		task(sliced, 2, 1, 1, 22, 20), task(sliced, 2, 1, 1, 22, 21),
		task(sliced, 2, 3, 1, 24, 30), task(sliced, 2, 3, 1, 26, 30),
		task(sliced, 2, 2, 2, 99, 99), // its run lacks a way
	}
	two, one := together{"13312", sliced, 2}, together{"13312", sliced, 1}
	for name, c := range map[string]struct {
		of   measured
		want value
	}{
		"the last end":                       {two.runs("s", lastEnd), value{24, "24 s (22 to 26)", 2}},
		"against one after another":          {two.loss, value{4, "+4 s, × 1.200", 2}},
		"kernels":                            {two.tasks(kernels), value{25.5, "25.5 s (20 to 30)", 2}},
		"output":                             {one.tasks(output), value{0.5, "0.500 s", 1}},
		"spread, a run each":                 {two.runs("%", spread), value{50 / 20.5, "2.439 % (0 to 4.878)", 2}},
		"mean turnaround":                    {two.runs("s", turnaround), value{23.5, "23.5 s (22 to 25)", 2}},
		"over the same way's alone, by mean": {two.slowdown, value{2.35, "2.350 ×", 2}},
	} {
		if got := c.of(rows); math.Abs(got.at-c.want.at) > 1e-9 || got.text != c.want.text || got.n != c.want.n {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if v := c.of(nil); v.text != "" {
			t.Errorf("%s of nothing: %q", name, v.text)
		}
	}
}

// Of our ways the worst is compared, and the mean run time is of tasks that ended.
func TestChanges(t *testing.T) {
	task := func(way, outcome string, took, use float64) bench.Row {
		return bench.Row{"way": way, "set": "unequal", "run": 1.0, "took": took, "end": took, "outcome": outcome, "memory_use": use}
	}
	rows := []bench.Row{
		task(laxity, "ended", 8, 0.6), task(adaptive, "ended", 11, 0.4),
		task(static, "ended", 10, 0.5), task(static, "out of memory", 90, 0.5), {"way": static, "set": "equal", "took": 1.0, "outcome": "ended"},
	}
	for name, c := range map[string]struct {
		of   measured
		want value
	}{
		"time":      {changes("unequal", static, "took", false), value{10, "limits -20.0 %, adaptive +10.0 %", 1}},
		"memory":    {changes("unequal", static, "memory_use", true), value{-20, "limits +20.0 %, adaptive -20.0 %", 1}},
		"ended":     {finished("unequal", static), value{1, "1 of 2", 1}},
		"last end":  {untilLast("unequal", laxity), value{8, "8 s", 1}},
		"mean time": {averaged("unequal", static, "took", 1, "s"), value{10, "10 s", 1}},
	} {
		if got := c.of(rows); math.Abs(got.at-c.want.at) > 1e-9 || got.text != c.want.text || got.n != c.want.n {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if v := c.of(rows[4:]); v.text != "" {
			t.Errorf("%s without rows of ours: %+v", name, v)
		}
	}
}

func TestCounts(t *testing.T) {
	trainings := []bench.Row{
		{"way": laxity, "run": 1, "right": true, "swapped_out": 2.0, "hit": 1.0}, {"way": laxity, "run": 1, "right": true, "swapped_out": 0.0, "hit": 0.0},
		{"way": sliced, "run": 1, "right": true}, {"way": sliced, "run": 1, "right": false},
	}
	fits := []bench.Row{
		{"way": laxity, "run": 1, "steps": 3, "outcome": "refused"}, {"way": laxity, "run": 1, "steps": 3, "outcome": "refused"}, {"way": laxity, "run": 1, "steps": 1, "outcome": "waits"},
		{"way": laxity, "run": 2, "steps": 3, "outcome": "refused"},
	}
	sees := bench.Row{"own": 1, "cuda_own": 1, "cuda_others": 0, "nvml_others": 0, "files_others": 0, "made_others": 0}
	blind := bench.Row{"own": 0, "cuda_own": 0, "cuda_others": 0, "nvml_others": 0, "files_others": 0, "made_others": 0}
	rounds := []bench.Row{{"way": laxity, "shape": "two", "ended": 2, "containers": 2}, {"way": laxity, "shape": "two", "ended": 1, "containers": 2}}
	asks := []bench.Row{
		{"way": "Prometheus", "kind": "crowded decision", "nodes": 10, "seconds": 0.002, "found": true}, {"way": "Prometheus", "kind": "crowded decision", "nodes": 10, "seconds": 0.004, "found": false},
	}
	for name, c := range map[string]struct {
		of   measured
		rows []bench.Row
		want value
	}{
		"with swaps": {trained(laxity), trainings, value{1, "2 of 2, 2 swaps", 1}}, "without": {trained(sliced), trainings, value{0.5, "1 of 2", 1}},
		"deadlines": {met(laxity), trainings, value{0.5, "1 of 2", 1}},
		"fitting":   {fitting(laxity), fits, value{1.5, "2, 1 (median 1.500)", 2}},
		"hiding":    {hiding, []bench.Row{sees, blind, {"control": true}}, value{1, "1 of 1 with some, 1 of 1 with none", 2}},
		"deadlock":  {ended("two", laxity), rounds, value{0.5, "1 of 2", 2}},
		"crowded":   {crowded("Prometheus", 10), asks, value{3, "3 ms; 1 of 2 named a node", 2}},
	} {
		if v := c.of(c.rows); v != c.want {
			t.Errorf("%s: %+v, want %+v", name, v, c.want)
		}
		if v := c.of(nil); !math.IsNaN(v.at) {
			t.Errorf("%s of nothing: %+v", name, v)
		}
	}
}
