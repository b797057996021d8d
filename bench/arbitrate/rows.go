package arbitrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// failedRow is what a way has of a run that it did not get done.
func failedRow(s set, way string, n, run int, err error) bench.Row {
	return bench.Row{"set": s.name, "way": way, "n_tasks": n, "run": run, "failed": err.Error()}
}

func failed(r bench.Row) bool { return r.Str("failed") != "" }

// measured are the rows of tasks.
func measured(rows []bench.Row) []bench.Row { return slices.DeleteFunc(slices.Clone(rows), failed) }

// summary is what one run came to. Times are in seconds.
type summary struct {
	makespan, turnaround float64
	spread               float64 // see KernelSpread
	hits                 int
}

// summarise sums up the rows of one run.
func summarise(rows []bench.Row) summary {
	s := summary{turnaround: bench.Mean(bench.Column(rows, "took_s", nil)), spread: KernelSpread(rows)}
	first, last := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		first, last = min(first, r.Num("start")), max(last, r.Num("end"))
		if r.Num("hit") == 1 {
			s.hits++
		}
	}
	s.makespan = last - first
	return s
}

// KernelSpread is the most minus the least kernel time of a run's tasks, in parts of their median; NaN without any. It is
// of one run: runs may differ by more than the tasks of one.
func KernelSpread(run []bench.Row) float64 {
	kernels := bench.Column(run, "kernels_s", nil)
	return (bench.Max(kernels) - bench.Quantile(kernels, 0)) / bench.Median(kernels)
}

// cell is all runs of one way with one number of tasks.
type cell struct {
	set, way string
	n        int
	runs     []summary
	failed   int // runs
}

func makespanOf(s summary) float64   { return s.makespan }
func turnaroundOf(s summary) float64 { return s.turnaround }
func spreadOf(s summary) float64     { return s.spread }

func (c cell) makespan() float64   { return bench.Median(c.each(makespanOf)) }
func (c cell) turnaround() float64 { return bench.Median(c.each(turnaroundOf)) }

// each is a value of each run.
func (c cell) each(of func(summary) float64) (values []float64) {
	for _, s := range c.runs {
		values = append(values, of(s))
	}
	return values
}

// hits is the number of deadlines that were met in the worst run; NaN without
// runs.
func (c cell) hits() float64 {
	least := math.NaN()
	for _, s := range c.runs {
		if h := float64(s.hits); math.IsNaN(least) || h < least {
			least = h
		}
	}
	return least
}

// hitShare is the share of all deadlines that were met, in all runs; NaN without
// runs.
func (c cell) hitShare() float64 {
	hit := 0
	for _, s := range c.runs {
		hit += s.hits
	}
	return float64(hit) / float64(c.n*len(c.runs))
}

// cells puts the rows together, in the order in which they were first seen.
func cells(rows []bench.Row) []cell {
	type key struct {
		set, way string
		n        float64
	}
	var keys []key
	runs := map[key]map[float64][]bench.Row{}
	for _, r := range rows {
		k := key{r.Str("set"), r.Str("way"), r.Num("n_tasks")}
		if runs[k] == nil {
			keys = append(keys, k)
			runs[k] = map[float64][]bench.Row{}
		}
		runs[k][r.Num("run")] = append(runs[k][r.Num("run")], r)
	}
	var out []cell
	for _, k := range keys {
		c := cell{set: k.set, way: k.way, n: int(k.n)}
		for _, run := range runs[k] {
			tasks := measured(run)
			if len(tasks) > 0 {
				c.runs = append(c.runs, summarise(tasks))
			}
			c.failed += len(run) - len(tasks)
		}
		out = append(out, c)
	}
	return out
}

// find returns the cell of a way; with n = 0 that with the most tasks. Without
// one its medians are NaN.
func find(all []cell, set, way string, n int) cell {
	var best cell
	for _, c := range all {
		if c.set == set && c.way == way && (n == 0 && c.n >= best.n || c.n == n && n > 0) {
			best = c
		}
	}
	return best
}

func figures(rows []bench.Row) []bench.Figure {
	all := cells(rows)
	ratio := func(name, set, way, against string, of func(cell) float64) bench.Figure {
		ours := find(all, set, way, 0)
		v := of(ours) / of(find(all, set, against, ours.n))
		return bench.Figure{Name: name, Value: v, Unit: "×", Against: against, Ratio: v, Runs: len(ours.runs)}
	}
	hits := func(name, way string) bench.Figure {
		ours := find(all, "deadlines", way, 0)
		others := find(all, "deadlines", timeSliced, ours.n)
		return bench.Figure{Name: name, Value: ours.hits(), Unit: fmt.Sprintf("of %d", ours.n), Against: timeSliced,
			Ratio: ours.hits() / others.hits(), Runs: len(ours.runs)}
	}
	return []bench.Figure{
		ratio("large_makespan_vs_default", "large", laxity, timeSliced, cell.makespan),
		ratio("large_makespan_vs_mps", "large", laxity, mps, cell.makespan),
		ratio("middle_makespan_vs_default", "middle", laxity, timeSliced, cell.makespan),
		ratio("middle_makespan_vs_mps", "middle", laxity, mps, cell.makespan),
		ratio("small_makespan_vs_default", "small", laxity, timeSliced, cell.makespan),
		ratio("small_makespan_vs_mps", "small", laxity, mps, cell.makespan),
		ratio("idle_makespan_vs_default", "idle", laxity, timeSliced, cell.makespan),
		ratio("turnaround_vs_default", "deadlines", edf, timeSliced, cell.turnaround),
		hits("edf_hits", edf),
		hits("llf_hits", llf),
	}
}

func table(rows []bench.Row) [][]string {
	all := cells(rows)
	lines := [][]string{{"SET", "N", "WAY", "MAKESPAN s", "× DEFAULT", "MEAN TURNAROUND s", "HITS", "RUNS", "FAILED"}}
	var names []string
	for _, s := range append(sets(), mixedSet()) {
		names = append(names, s.name)
	}
	shown := slices.Clone(all)
	slices.SortStableFunc(shown, func(a, b cell) int {
		for _, d := range []int{slices.Index(names, a.set) - slices.Index(names, b.set), a.n - b.n, slices.Index(allWays, a.way) - slices.Index(allWays, b.way)} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	for _, c := range shown {
		hits := "-"
		switch c.set {
		case "deadlines":
			hits = fmt.Sprintf("%.0f of %d", c.hits(), c.n)
		case "mixed":
			hits = fmt.Sprintf("%.1f %%", 100*c.hitShare())
		}
		lines = append(lines, []string{c.set, fmt.Sprint(c.n), c.way, bench.Number(c.makespan()),
			bench.Number(c.makespan() / find(all, c.set, timeSliced, c.n).makespan()),
			bench.Number(c.turnaround()), hits, fmt.Sprint(len(c.runs)), fmt.Sprint(c.failed)})
	}
	return lines
}
