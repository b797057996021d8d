package guard

import (
	"fmt"
	"math"

	"github.com/laxity/laxity/bench"
)

func of(rows []bench.Row, way, key string) float64 { return bench.Median(bench.Known(rows, way, key)) }

// added is what a guard adds, pair by pair of a time with it and the time without it that was measured next to it. Pairs differ by more
// than a guard costs.
type added struct{ seconds, ratios []float64 }

func addedTo(bare, with []float64) (a added) {
	for i := range min(len(bare), len(with)) {
		a.seconds, a.ratios = append(a.seconds, with[i]-bare[i]), append(a.ratios, with[i]/bare[i])
	}
	return a
}

// addedToAllocation is what a way adds to the median allocation, run by run.
func addedToAllocation(rows []bench.Row, way string) added {
	return addedTo(bench.Known(rows, without, "median"), bench.Known(rows, way, "median"))
}

// figure is a quantile of it, in a unit of which a second has so many.
func (a added) figure(name, unit string, inSecond, q float64) bench.Figure {
	return bench.Figure{Name: name, Value: inSecond * bench.Quantile(a.seconds, q), Unit: unit, Against: without, Ratio: bench.Quantile(a.ratios, q), Runs: len(a.seconds)}
}

// quartiles are its median and its quartiles.
func (a added) quartiles(name, unit string, inSecond float64) []bench.Figure {
	return bench.Quartiles(name, func(name string, q float64) bench.Figure { return a.figure(name, unit, inSecond, q) })
}

// text is its median and its quartiles for people.
func (a added) text(inSecond float64) (median, quartiles string) {
	at := func(q float64) float64 { return inSecond * bench.Quantile(a.seconds, q) }
	return fmt.Sprintf("%+.2f", at(0.5)), fmt.Sprintf("%+.2f to %+.2f", at(0.25), at(0.75))
}

func figures(rows []bench.Row) []bench.Figure {
	fits, bare := of(rows, limited, "fits"), of(rows, without, "fits")
	return append(addedToAllocation(rows, passed).quartiles("guard_alloc_us", "µs", 1e6),
		addedToAllocation(rows, granted).figure("guard_asked_us", "µs", 1e6, 0.5), addedToAllocation(rows, denied).figure("guard_denied_us", "µs", 1e6, 0.5),
		bench.Figure{Name: "guard_steps_at_1gib", Value: fits, Unit: "× 128 MiB", Against: without, Ratio: fits / bare, Runs: len(bench.Known(rows, limited, "fits"))},
	)
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
		if a := addedToAllocation(rows, way); len(a.seconds) > 0 && way != without {
			line[3], line[4] = a.text(1e6)
		}
		out = append(out, append(line, cell(of(rows, way, "fits"), 1, "%.0f")))
	}
	return out
}
