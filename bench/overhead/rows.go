package overhead

import (
	"fmt"

	"github.com/laxity/laxity/bench"
)

// kinds of step, in the order in which they are shown.
var kinds = []string{"small", "large", "paced"}

// rowsOf arranges the steps by blocks. A step counts for the block that holds all of
// it; a block without one is an error.
func rowsOf(release string, blocks []block, taken []steps) ([]bench.Row, error) {
	var rows []bench.Row
	for i, b := range blocks {
		for _, kind := range taken {
			if kind.Phase != b.phase {
				continue
			}
			var seconds []float64
			for _, s := range kind.Steps {
				if s[0] >= b.began && s[1] <= b.end {
					seconds = append(seconds, s[1]-s[0])
				}
			}
			if len(seconds) == 0 {
				return nil, fmt.Errorf("no step %q is within a block of %.1f s: make blocks longer (--set ms)", kind.Loop, b.end-b.began)
			}
			row := bench.Row{"release": release, "way": without, "block": float64(i), "loop": kind.Loop, "launches": kind.Launches,
				"steps": float64(len(seconds)), "step_s": bench.Median(seconds), "step_low_s": bench.Quantile(seconds, 0.1)}
			if b.watched {
				row["way"], row["tasks_seen"] = release, float64(b.tasks)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// pair is a watched block and one beside it that was not, of the same process.
type pair struct {
	watched, without blockSteps
	launches         float64 // in a step
}

// blockSteps are the lower decile and the median of a block's steps, seconds.
type blockSteps struct{ low, median float64 }

func stepsOf(r bench.Row) blockSteps { return blockSteps{r.Num("step_low_s"), r.Num("step_s")} }

// pairs of adjacent blocks for one way of watching and one kind of step.
func pairs(rows []bench.Row, way, loop string) []pair {
	type place struct{ container, block float64 }
	at := map[place]bench.Row{}
	for _, r := range rows {
		if r.Str("release") == way && r.Str("loop") == loop {
			at[place{r.Num("container"), r.Num("block")}] = r
		}
	}
	var out []pair
	for _, r := range rows {
		p := place{r.Num("container"), r.Num("block")}
		if r.Str("way") != way || r.Str("loop") != loop {
			continue
		}
		for _, beside := range []float64{-1, 1} {
			if other, ok := at[place{p.container, p.block + beside}]; ok && other.Str("way") == without {
				out = append(out, pair{stepsOf(r), stepsOf(other), r.Num("launches")})
			}
		}
	}
	return out
}

// of computes something of each pair.
func of(pairs []pair, what func(pair) float64) []float64 {
	var out []float64
	for _, p := range pairs {
		out = append(out, what(p))
	}
	return out
}

func (p pair) ratio() float64 { return p.watched.low / p.without.low }

func (p pair) lowWatched() float64 { return p.watched.low }

// perLaunch is what being watched adds to a launch, microseconds.
func (p pair) perLaunch() float64 { return 1e6 * (p.watched.low - p.without.low) / p.launches }

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for _, loop := range kinds {
		for _, way := range releases {
			all := pairs(rows, way, loop)
			out = append(out,
				bench.Figure{Name: loop + "_step_" + way, Value: 1000 * bench.Median(of(all, pair.lowWatched)), Unit: "ms",
					Against: "without Laxity", Ratio: bench.Median(of(all, pair.ratio)), Runs: len(all)},
				bench.Figure{Name: loop + "_per_launch_" + way + "_us", Value: bench.Median(of(all, pair.perLaunch)), Unit: "µs", Runs: len(all)})
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"LOOP", "WAY", "STEP ms", "WITHOUT ms", "RATIO", "25–75 %", "µs PER LAUNCH", "MEDIAN ms", "WITHOUT ms", "TASKS SEEN", "PAIRS"}}
	for _, loop := range kinds {
		for _, way := range releases {
			all := pairs(rows, way, loop)
			if len(all) == 0 {
				continue
			}
			ms := func(what func(pair) float64) string { return bench.Number(1000 * bench.Median(of(all, what))) }
			ratios := of(all, pair.ratio)
			seen := bench.Median(bench.Column(rows, "tasks_seen", func(r bench.Row) bool { return r.Str("way") == way && r.Str("loop") == loop }))
			lines = append(lines, []string{loop, way,
				ms(pair.lowWatched),
				ms(func(p pair) float64 { return p.without.low }),
				fmt.Sprintf("%.4f", bench.Median(ratios)),
				fmt.Sprintf("%.4f–%.4f", bench.Quantile(ratios, 0.25), bench.Quantile(ratios, 0.75)),
				fmt.Sprintf("%+.3f", bench.Median(of(all, pair.perLaunch))),
				ms(func(p pair) float64 { return p.watched.median }),
				ms(func(p pair) float64 { return p.without.median }),
				bench.Number(seen), fmt.Sprint(len(all))})
		}
	}
	return lines
}
