package arbitrate

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

// A lone task of kind k takes (deadline - 1) / 4 s, of which 2 are kernels.
func TestIdealHits(t *testing.T) {
	task := func(start, deadline float64) bench.Row {
		return bench.Row{"kind": "k", "start": start, "deadline_s": deadline}
	}
	for name, tt := range map[string]struct {
		run  []bench.Row
		want int
	}{
		"nobody":                       {nil, 0},
		"one":                          {[]bench.Row{task(0, 13)}, 1}, // 1 s of host, 2 of kernels
		"six at once fit":              {[]bench.Row{task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13)}, 6},
		"of seven at once the last":    {[]bench.Row{task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13)}, 6},
		"a later one with less time":   {[]bench.Row{task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(0, 13), task(4, 9)}, 6}, // before others, and one of them is late
		"after a pause it begins anew": {[]bench.Row{task(0, 13), task(100, 13)}, 2},
	} {
		if got := idealHits(tt.run, map[string]float64{"k": 2}); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestIdealIsOfTimeSlicedRuns(t *testing.T) {
	var rows []bench.Row
	for _, way := range []string{timeSliced, edf} {
		for run := 1; run <= 2; run++ {
			for i := range 7 {
				rows = append(rows, bench.Row{"set": "mixed", "way": way, "run": run, "kind": "k", "n_tasks": 7, "task": i + 1, "start": 0.0, "end": 9.0,
					"took_s": 9.0, "kernels_s": float64(2 + i), "deadline_s": 13.0, "hit": true})
			}
		}
	}
	if share, tasks, runs := idealOf(rows); share != 12.0/14 || tasks != 14 || runs != 2 {
		t.Errorf("%v of %d tasks in %d runs, want 12/14 of 14 in 2", share, tasks, runs)
	}
	if lines := mixedTable(rows); len(lines) != 1+2+1 || lines[3][2] != ideal || lines[3][6] != "85.7 %" {
		t.Errorf("%v", lines)
	}
}
