package page

import (
	"fmt"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
)

// What the results of contention have: equal containers that begin at once, by several ways.

// together are n containers of a set that run by a way.
type together struct {
	set, way string
	n        int
}

// rows are those of whole runs.
func (t together) rows(all []bench.Row) []bench.Row {
	return kept(arbitrate.Whole(all), where("set", t.set, "way", t.way, "n_tasks", t.n))
}

// tasks summarises a number of each task, seconds: the median, the least and the most of all runs.
func (t together) tasks(of func(bench.Row) float64) measured {
	return func(all []bench.Row) value {
		rows := t.rows(all)
		var v []float64
		for _, r := range rows {
			v = append(v, of(r))
		}
		return spanned(v, "s", len(runsOf(rows)))
	}
}

// runs summarises a number of each run.
func (t together) runs(unit string, of func([]bench.Row) float64) measured {
	return func(all []bench.Row) value {
		v := eachRun(t.rows(all), of)
		return spanned(v, unit, len(v))
	}
}

// Phases of a task, seconds.
func input(r bench.Row) float64   { return r.Num("launch_s") }
func kernels(r bench.Row) float64 { return r.Num("kernels_s") }
func output(r bench.Row) float64  { return r.Num("took_s") - r.Num("launch_s") - r.Num("kernels_s") }
func took(r bench.Row) float64    { return r.Num("took_s") }

// lastEnd is the time from the first start to the last end of a run.
func lastEnd(run []bench.Row) float64 {
	return bench.Max(bench.Column(run, "end", nil)) - bench.Quantile(bench.Column(run, "start", nil), 0)
}

// turnaround is the mean time of a run's tasks.
func turnaround(run []bench.Row) float64 { return bench.Mean(bench.Column(run, "took_s", nil)) }

// spread is the widest difference between the kernel times of a run, in percent of their median.
func spread(run []bench.Row) float64 { return 100 * arbitrate.KernelSpread(run) }

// loss is by how much they end later than n times one alone by default, seconds, and how many times that they take.
// Negative is a gain.
func (t together) loss(all []bench.Row) value {
	alone := float64(t.n) * bench.Median(eachRun(together{t.set, sliced, 1}.rows(all), lastEnd))
	runs := eachRun(t.rows(all), lastEnd)
	last := bench.Median(runs)
	v := number(last-alone, "s", len(runs))
	if v.text != "" {
		v.text = fmt.Sprintf("%s s, × %.3f", plus(v.at), last/alone)
	}
	return v
}

// slowdown is the mean time of a task beside n−1 others over that alone, by the same way.
func (t together) slowdown(all []bench.Row) value {
	rows := t.rows(all)
	alone := together{t.set, t.way, 1}.rows(all)
	mean := func(rows []bench.Row) float64 { return bench.Mean(bench.Column(rows, "took_s", nil)) }
	return number(mean(rows)/mean(alone), "×", len(runsOf(rows)))
}

// mean is the mean time of a task.
func (t together) mean(all []bench.Row) value {
	rows := t.rows(all)
	return number(bench.Mean(bench.Column(rows, "took_s", nil)), "s", len(runsOf(rows)))
}
