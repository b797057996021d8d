package guard

import (
	"fmt"
	"math"

	"github.com/laxity/laxity/bench"
)

func of(rows []bench.Row, way, key string) float64 { return bench.Median(bench.Known(rows, way, key)) }

// beside compares times with a guard with those without it that were measured next to them: what the guard adds, seconds, and
// the ratio, pair by pair. Pairs differ by more than a guard costs.
func beside(bare, with []float64) (more, ratios []float64) {
	for i := range min(len(bare), len(with)) {
		more, ratios = append(more, with[i]-bare[i]), append(ratios, with[i]/bare[i])
	}
	return more, ratios
}

// allocations compares the median allocation of a way with that without a guard, run by run.
func allocations(rows []bench.Row, way string) (more, ratios []float64) {
	return beside(bench.Known(rows, without, "median"), bench.Known(rows, way, "median"))
}

// added is a figure of what a guard adds: a quantile of the pairs of beside, in a unit of so many a second.
func added(name, unit string, aSecond float64, more, ratios []float64, q float64) bench.Figure {
	return bench.Figure{Name: name, Value: aSecond * bench.Quantile(more, q), Unit: unit, Against: without, Ratio: bench.Quantile(ratios, q), Runs: len(more)}
}

func figures(rows []bench.Row) []bench.Figure {
	cost := func(name, way string, q float64) bench.Figure {
		more, ratios := allocations(rows, way)
		return added(name, "µs", 1e6, more, ratios, q)
	}
	fits, bare := of(rows, limited, "fits"), of(rows, without, "fits")
	return []bench.Figure{
		cost("guard_alloc_us", passed, 0.5), cost("guard_alloc_us_q1", passed, 0.25), cost("guard_alloc_us_q3", passed, 0.75),
		cost("guard_asked_us", granted, 0.5), cost("guard_denied_us", denied, 0.5),
		{Name: "guard_steps_at_1gib", Value: fits, Unit: "× 128 MiB", Against: without, Ratio: fits / bare, Runs: len(bench.Known(rows, limited, "fits"))},
	}
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"WAY", "ALLOCATION µs, MEDIAN", "P99", "MORE THAN WITHOUT, µs", "25–75 %", "STEPS OF 128 MiB THAT FIT"}}
	for _, way := range allWays {
		cell := func(v, unit float64, format string) string {
			if math.IsNaN(v) { // it was not measured in this way
				return "-"
			}
			return fmt.Sprintf(format, unit*v)
		}
		line := []string{way, cell(of(rows, way, "median"), 1e6, "%.2f"), cell(of(rows, way, "p99"), 1e6, "%.2f"), "-", "-"}
		if more, _ := allocations(rows, way); len(more) > 0 && way != without {
			line[3] = fmt.Sprintf("%+.2f", 1e6*bench.Median(more))
			line[4] = fmt.Sprintf("%+.2f to %+.2f", 1e6*bench.Quantile(more, 0.25), 1e6*bench.Quantile(more, 0.75))
		}
		out = append(out, append(line, cell(of(rows, way, "fits"), 1, "%.0f")))
	}
	return out
}
