package memory

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// round sums one run of a way up. Mean is that of the run times of those that ended, seconds; memory the part
// of the 40 GiB that was in use.
type round struct{ makespan, mean, memory, oom float64 }

// rounds are the runs of a way with a set. Rows from before there were sets are of the first one.
func rounds(rows []bench.Row, set, way string) (all []round) {
	of := func(r bench.Row) float64 { // its number; older rows call it repeat
		if n := r.Num("repeat"); !math.IsNaN(n) {
			return n
		}
		return r.Num("run")
	}
	mine := func(r bench.Row) bool { return r.Str("way") == way && cmp.Or(r.Str("set"), taskSets[0].name) == set }
	var runs []float64
	for _, r := range rows {
		if mine(r) && !slices.Contains(runs, of(r)) {
			runs = append(runs, of(r))
		}
	}
	for _, run := range runs {
		keep := func(r bench.Row) bool { return mine(r) && of(r) == run }
		ended := func(r bench.Row) bool { return keep(r) && r.Str("outcome") == "ended" }
		oom := bench.Column(rows, "task", func(r bench.Row) bool { return keep(r) && r.Str("outcome") != "ended" })
		all = append(all, round{makespan: bench.Quantile(bench.Column(rows, "end", keep), 1), mean: bench.Mean(bench.Column(rows, "took", ended)),
			memory: bench.Mean(bench.Column(rows, "memory_use", keep)), oom: float64(len(oom))})
	}
	return all
}

func median(all []round, of func(round) float64) float64 {
	var v []float64
	for _, r := range all {
		v = append(v, of(r))
	}
	return bench.Median(v)
}

func oversubscribeFigures(rows []bench.Row) (out []bench.Figure) {
	for i, s := range taskSets {
		prefix := "oversubscribe_"
		if i > 0 {
			prefix += s.name + "_"
		}
		with := rounds(rows, s.name, laxity)
		figure := func(name, unit, against string, of func(round) float64) {
			v, other := median(with, of), median(rounds(rows, s.name, against), of)
			out = append(out, bench.Figure{Name: prefix + name, Value: v, Unit: unit, Against: against, Ratio: v / other, Runs: len(with)})
		}
		figure("failed", "of 12 tasks", without, func(r round) float64 { return r.oom })
		for _, against := range []string{oneByOne, static} {
			if against == static && len(rounds(rows, s.name, static)) == 0 {
				continue
			}
			suffix := map[string]string{static: "_vs_static"}[against]
			figure("makespan_s"+suffix, "s", against, func(r round) float64 { return r.makespan })
			figure("mean_run_time_s"+suffix, "s", against, func(r round) float64 { return r.mean })
			figure("memory_use"+suffix, "of 40 GiB", against, func(r round) float64 { return r.memory })
		}
	}
	return out
}

func oversubscribeTable(rows []bench.Row) [][]string {
	table := [][]string{{"SET", "WAY", "FAILED", "MAKESPAN s", "MEAN RUN TIME s", "MEMORY USED %", "RUNS"}}
	for _, s := range taskSets {
		for _, way := range oversubscribeWays {
			all := rounds(rows, s.name, way)
			if len(all) == 0 {
				continue
			}
			table = append(table, []string{s.name, way, bench.Number(median(all, func(r round) float64 { return r.oom })),
				bench.Number(median(all, func(r round) float64 { return r.makespan })), bench.Number(median(all, func(r round) float64 { return r.mean })),
				bench.Number(100 * median(all, func(r round) float64 { return r.memory })), fmt.Sprint(len(all))})
		}
	}
	return table
}
