package serve

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// rowOf is what was measured in a window: the requests that were due in it, and the
// steps of each trainer that ended in it.
func rowOf(w window, requests []span, trainers [][]span) (bench.Row, error) {
	var took []float64
	for _, r := range requests {
		if r.Began >= w.from && r.Began < w.to {
			took = append(took, r.Ended-r.Began)
		}
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("no request within %.1f s beside %d", w.to-w.from, w.beside)
	}
	row := bench.Row{"beside": w.beside, "time": w.from, "requests": len(took), "p50_s": bench.Median(took),
		"p90_s": bench.Quantile(took, 0.9), "p99_s": bench.Quantile(took, 0.99), "most_s": bench.Quantile(took, 1)}
	if len(trainers) == 0 {
		return row, nil
	}
	sum, fewest := 0.0, math.Inf(1)
	for _, steps := range trainers {
		n := 0.0
		for _, s := range steps {
			if s.Ended >= w.from && s.Ended < w.to {
				n++
			}
		}
		sum, fewest = sum+n, min(fewest, n)
	}
	row["steps_per_s"], row["fewest_per_s"] = sum/(w.to-w.from), fewest/(w.to-w.from)
	return row, nil
}

// cell is one way in one place, over the runs.
type cell struct{ rows []bench.Row }

func cellOf(rows []bench.Row, way string, beside int) cell {
	var c cell
	for _, r := range rows {
		if r.Str("way") == way && r.Num("beside") == float64(beside) {
			c.rows = append(c.rows, r)
		}
	}
	return c
}

func (c cell) values(key string) []float64 { return bench.Column(c.rows, key, nil) }

// p99 is the median over the runs of the 99th percentile of the latencies, seconds.
func (c cell) p99() float64 { return bench.Median(c.values("p99_s")) }

// against divides, run by run, by another cell's value of the same run.
func (c cell) against(other cell, key string) (ratios []float64) {
	for _, r := range c.rows {
		i := slices.IndexFunc(other.rows, func(o bench.Row) bool { return o.Num("run") == r.Num("run") })
		if i >= 0 {
			ratios = append(ratios, r.Num(key)/other.rows[i].Num(key))
		}
	}
	return ratios
}

// figures compare Laxity as shipped with default, and with a server alone without
// Laxity.
func figures(rows []bench.Row) []bench.Figure {
	alone := cellOf(rows, timeSliced, 0)
	out := []bench.Figure{{Name: "serve1_alone_p99_ms", Value: 1000 * alone.p99(), Unit: "ms", Runs: len(alone.rows)}}
	for _, beside := range besides[1:] {
		ours, theirs := cellOf(rows, laxity, beside), cellOf(rows, timeSliced, beside)
		name := fmt.Sprintf("serve%d_", beside)
		p99 := bench.Figure{Name: name + "p99_ms", Value: 1000 * ours.p99(), Unit: "ms", Runs: len(ours.rows),
			Against: timeSliced, Ratio: ours.p99() / theirs.p99()}
		ratio := func(what string, other cell, key, against string) bench.Figure {
			v := bench.Median(ours.against(other, key))
			return bench.Figure{Name: name + what, Value: v, Unit: "×", Against: against, Ratio: v, Runs: len(ours.rows)}
		}
		out = append(out, p99,
			ratio("p99_vs_alone", alone, "p99_s", "alone"),
			ratio("p99_vs_default", theirs, "p99_s", timeSliced),
			ratio("steps_vs_default", theirs, "steps_per_s", timeSliced))
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"BESIDE", "WAY", "P50 ms", "P90", "P99", "MOST", "P99 VS DEFAULT", "STEPS/s", "VS DEFAULT", "FEWEST/s", "RUNS"}}
	for _, beside := range besides {
		for _, way := range allWays {
			c, base := cellOf(rows, way, beside), cellOf(rows, timeSliced, beside)
			if len(c.rows) == 0 {
				continue
			}
			of := func(key string, unit float64) string { return spread(c.values(key), unit) }
			lines = append(lines, []string{
				fmt.Sprint(beside), way, of("p50_s", 1000), of("p90_s", 1000), of("p99_s", 1000), of("most_s", 1000),
				difference(c, base, "p99_s"), of("steps_per_s", 1), difference(c, base, "steps_per_s"), of("fewest_per_s", 1), fmt.Sprint(len(c.rows)),
			})
		}
	}
	return lines
}

// spread is a median with its quartiles.
func spread(values []float64, unit float64) string {
	at := func(q float64) string { return bench.Number(unit * bench.Quantile(values, q)) }
	if len(values) < 2 || math.IsNaN(bench.Median(values)) {
		return at(0.5)
	}
	return fmt.Sprintf("%s (%s–%s)", at(0.5), at(0.25), at(0.75))
}

// difference is the median ratio to default; none where the quartiles overlap.
func difference(c, base cell, key string) string {
	ours, theirs := c.values(key), base.values(key)
	v := bench.Median(c.against(base, key))
	switch {
	case math.IsNaN(v), len(c.rows) > 0 && c.rows[0].Str("way") == timeSliced:
		return "-"
	case len(ours) > 1 && bench.Quantile(ours, 0.25) <= bench.Quantile(theirs, 0.75) && bench.Quantile(theirs, 0.25) <= bench.Quantile(ours, 0.75):
		return "none"
	default:
		return fmt.Sprintf("%.2f ×", v)
	}
}
