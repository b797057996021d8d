package shares

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

// rowsIn is what was measured in a window, a row for each container: the steps that ended in it, and their
// part of those of all.
func rowsIn(w window, way string, members []member, spans [][]program.Span) (rows []bench.Row) {
	all := 0
	for i, m := range members {
		steps := 0
		for _, s := range spans[i] {
			if s.Ended >= w.from && s.Ended < w.to {
				steps++
			}
		}
		all += steps
		rows = append(rows, bench.Row{"way": way, "window": w.name, "time": w.from, "who": m.who, "share": m.share, "steps": steps})
	}
	for _, r := range rows {
		r["part"], r["all_per_s"] = r.Num("steps")/float64(max(all, 1)), float64(all)/(w.to-w.from)
	}
	return rows
}

// loneRow is a turn of the container that is alone: its steps that lie within it.
func loneRow(w window, turn int, spans []program.Span) (bench.Row, error) {
	var took []float64
	for _, s := range spans {
		if s.Began >= w.from && s.Ended < w.to {
			took = append(took, s.Ended-s.Began)
		}
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("no step within a turn of %v: make turns longer (--set turn)", time.Duration((w.to-w.from)*float64(time.Second)).Round(time.Millisecond))
	}
	row := bench.Row{"way": timeSliced, "window": alone, "time": w.from, "who": alone, "turn": turn, "steps": len(took),
		"step_s": bench.Median(took), "step_low_s": bench.Quantile(took, 0.25), "step_high_s": bench.Quantile(took, 0.75)}
	if turn%2 == 1 {
		row["way"] = laxity
	}
	return row, nil
}

// of keeps the rows of a way in a window.
func of(rows []bench.Row, way, window string) (some []bench.Row) {
	for _, r := range rows {
		if r.Str("way") == way && r.Str("window") == window {
			some = append(some, r)
		}
	}
	return some
}

// each computes something of the rows of each run, in the order of the runs.
func each(rows []bench.Row, what func(run []bench.Row) float64) (values []float64) {
	for _, n := range runs(rows) {
		values = append(values, what(slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Num("run") != n })))
	}
	return values
}

func runs(rows []bench.Row) []float64 {
	all := bench.Column(rows, "run", nil)
	slices.Sort(all)
	return slices.Compact(all)
}

// resting reports whether a row is of the one that is idle.
func resting(r bench.Row) bool {
	return r.Str("window") == oneIdle && r.Num("share") == float64(asked[len(asked)-1])/100
}

// furthest is the largest difference between the part of one that wants the GPU and what the shares of
// those that want it say, points.
func furthest(run []bench.Row) (points float64) {
	sum := 0.0
	for _, r := range run {
		if !resting(r) {
			sum += r.Num("share")
		}
	}
	for _, r := range run {
		if !resting(r) {
			points = max(points, 100*math.Abs(r.Num("part")-r.Num("share")/sum))
		}
	}
	return points
}

// short is what one that wants the GPU lacks to its share, at most, points.
func short(run []bench.Row) (points float64) {
	for _, r := range run {
		if !resting(r) {
			points = max(points, 100*(r.Num("share")-r.Num("part")))
		}
	}
	return points
}

// perSecond are the steps of all of a run's containers.
func perSecond(run []bench.Row) float64 { return run[0].Num("all_per_s") }

// againstDefault are the steps of all of each run's containers, over those by default in the same run.
func againstDefault(rows []bench.Row, way, window string) (ratios []float64) {
	theirs := of(rows, timeSliced, window)
	return each(of(rows, way, window), func(run []bench.Row) float64 {
		same := slices.DeleteFunc(slices.Clone(theirs), func(r bench.Row) bool { return r.Num("run") != run[0].Num("run") })
		if len(same) == 0 {
			return math.NaN()
		}
		return perSecond(run) / perSecond(same)
	})
}

// loneRatios are the steps of each turn with Laxity over those of the turns before and after it.
func loneRatios(rows []bench.Row) (ratios []float64) {
	without := of(rows, timeSliced, alone)
	for _, r := range of(rows, laxity, alone) {
		var beside []float64
		for _, o := range without {
			if o.Num("run") == r.Num("run") && math.Abs(o.Num("turn")-r.Num("turn")) == 1 {
				beside = append(beside, o.Num("step_s"))
			}
		}
		if len(beside) == 2 {
			ratios = append(ratios, r.Num("step_s")/bench.Mean(beside))
		}
	}
	return ratios
}

func figures(rows []bench.Row) []bench.Figure {
	ours, theirs, idle := of(rows, laxity, allWant), of(rows, timeSliced, allWant), of(rows, laxity, oneIdle)
	against := func(name string, ratios []float64) bench.Figure {
		v := bench.Median(ratios)
		return bench.Figure{Name: name, Value: v, Unit: "×", Against: timeSliced, Ratio: v, Runs: len(ratios)}
	}
	points := bench.Median(each(ours, furthest))
	lone := against("lone_step_ratio", loneRatios(rows))
	lone.Against = "without Laxity"
	return []bench.Figure{
		{Name: "share_error_points", Value: points, Unit: "points", Against: timeSliced, Ratio: points / bench.Median(each(theirs, furthest)), Runs: len(runs(ours))},
		against("shares_steps_vs_default", againstDefault(rows, laxity, allWant)),
		{Name: "shares_idle_error_points", Value: bench.Median(each(idle, furthest)), Unit: "points", Runs: len(runs(idle))},
		{Name: "shares_idle_short_points", Value: bench.Median(each(idle, short)), Unit: "points", Runs: len(runs(idle))},
		against("shares_idle_steps_vs_default", againstDefault(rows, laxity, oneIdle)),
		lone,
	}
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"WINDOW", "WHO", "WAY", "PART %", "FURTHEST, POINTS", "ALL STEPS/s", "VS DEFAULT", "STEP ms", "RUNS"}}
	for _, window := range []string{allWant, oneIdle} {
		for _, percent := range asked {
			who := fmt.Sprintf("%d%%", percent)
			for _, way := range allWays {
				some := of(rows, way, window)
				parts := bench.Column(some, "part", func(r bench.Row) bool { return r.Str("who") == who })
				if len(parts) == 0 {
					continue
				}
				line := []string{window, who, way, bench.Spread(parts, 100), "", "", "", "", fmt.Sprint(len(parts))}
				if percent == asked[0] { // once for all of them
					copy(line[4:], []string{bench.Spread(each(some, furthest), 1), bench.Spread(each(some, perSecond), 1), difference(rows, way, window)})
				}
				lines = append(lines, line)
			}
		}
	}
	for _, way := range allWays {
		some := of(rows, way, alone)
		if len(some) == 0 {
			continue
		}
		ratio := "-"
		if ratios := loneRatios(rows); way == laxity && len(ratios) > 0 {
			at := func(q float64) float64 { return bench.Quantile(ratios, q) }
			ratio = fmt.Sprintf("%.4f (%.4f–%.4f) ×", at(0.5), at(0.25), at(0.75))
		}
		lines = append(lines, []string{alone, "30%", way, "", "", "", ratio, bench.Spread(bench.Column(some, "step_s", nil), 1000), fmt.Sprintf("%d, %d turns", len(runs(some)), len(some))})
	}
	return lines
}

// difference is the median ratio of steps to default; none where the quartiles overlap.
func difference(rows []bench.Row, way, window string) string {
	ours, theirs := each(of(rows, way, window), perSecond), each(of(rows, timeSliced, window), perSecond)
	v := bench.Median(againstDefault(rows, way, window))
	switch {
	case way == timeSliced, math.IsNaN(v):
		return "-"
	case len(ours) > 1 && bench.Quantile(ours, 0.25) <= bench.Quantile(theirs, 0.75) && bench.Quantile(theirs, 0.25) <= bench.Quantile(ours, 0.75):
		return "none"
	default:
		return fmt.Sprintf("%.2f ×", v)
	}
}
