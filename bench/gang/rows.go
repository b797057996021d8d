package gang

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// of are a job's rows of cycles; of all jobs with "".
func of(rows []bench.Row, job string) (out []bench.Row) {
	for _, r := range rows {
		if (job == "" || r.Str("job") == job) && r["end"] == nil {
			out = append(out, r)
		}
	}
	return out
}

// known are the numbers under keys that were measured.
func known(rows []bench.Row, keys ...string) (all []float64) {
	for _, key := range keys {
		all = append(all, slices.DeleteFunc(bench.Column(rows, key, nil), math.IsNaN)...)
	}
	return all
}

func sum(rows []bench.Row, key string) (total float64, runs int) {
	all := known(rows, key)
	for _, v := range all {
		total += v
	}
	return total, len(all)
}

func figures(rows []bench.Row) (out []bench.Figure) {
	for _, job := range append([]string{""}, allJobs...) {
		skews := known(of(rows, job), "off_skew_s", "on_skew_s")
		if len(skews) == 0 {
			continue
		}
		name := "gang_skew"
		if job != "" {
			name = "gang_" + job + "_skew"
		}
		for _, q := range []struct {
			name string
			of   func([]float64) float64
		}{{"median", bench.Median}, {"p99", bench.P99}, {"max", bench.Max}} {
			out = append(out, bench.Figure{Name: name + "_" + q.name + "_ms", Value: 1e3 * q.of(skews), Unit: "ms", Runs: len(skews)})
		}
	}
	for _, c := range []struct{ name, key, unit string }{
		{"gang_calls_failed", "failed", "cycles"}, {"gang_stuck", "stuck", "cycles"}, {"gang_moved_while_off", "moved", "cycles"},
		{"gang_wrong", "wrong", "results"}, {"gang_ended_badly", "ended_badly", "jobs"},
	} {
		if n, runs := sum(rows, c.key); runs > 0 {
			out = append(out, bench.Figure{Name: c.name, Value: n, Unit: c.unit, Runs: runs})
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"JOB", "MEASURED", "N", "MEDIAN ms", "P99 ms", "MAX ms"}}
	for _, job := range allJobs {
		cycles := of(rows, job)
		for _, m := range []struct {
			what string
			keys []string
		}{
			{"skew, off", []string{"off_skew_s"}}, {"skew, on", []string{"on_skew_s"}}, {"skew, both", []string{"off_skew_s", "on_skew_s"}},
			{"decision → off everywhere", []string{"off_call_s"}}, {"decision → on everywhere", []string{"on_call_s"}},
		} {
			v := known(cycles, m.keys...)
			if len(v) == 0 {
				continue
			}
			ms := func(seconds float64) string { return bench.Number(1e3 * seconds) }
			out = append(out, []string{job, m.what, fmt.Sprint(len(v)), ms(bench.Median(v)), ms(bench.P99(v)), ms(bench.Max(v))})
		}
		for _, r := range rows {
			if r.Str("job") != job || r["end"] == nil {
				continue
			}
			failed, _ := sum(cycles, "failed")
			stuck, _ := sum(cycles, "stuck")
			moved, _ := sum(cycles, "moved")
			out = append(out, []string{job, fmt.Sprintf("%.0f steps: %.0f wrong results; %.0f cycles whose calls failed, %.0f in which it moved while off, %.0f after which it stood",
				r.Num("steps"), r.Num("wrong"), failed, moved, stuck), "", "", "", ""})
		}
		for _, r := range rows {
			if why := r.Str("error"); r.Str("job") == job && why != "" {
				out = append(out, []string{job, "error: " + why, "", "", "", ""})
			}
		}
	}
	return out
}
