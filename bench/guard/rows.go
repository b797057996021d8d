package guard

import (
	"fmt"
	"math"

	"github.com/laxity/laxity/bench"
)

func of(rows []bench.Row, way, key string) float64 {
	return bench.Median(bench.Column(rows, key, func(r bench.Row) bool { _, ok := r[key]; return ok && r.Str("way") == way }))
}

func figures(rows []bench.Row) []bench.Figure {
	base, runs := of(rows, without, "median"), 0
	for _, r := range rows {
		if _, ok := r["fits"]; ok && r.Str("way") == limited {
			runs++
		}
	}
	cost := func(name, way string) bench.Figure {
		m := of(rows, way, "median")
		return bench.Figure{Name: name, Value: 1e6 * (m - base), Unit: "µs", Against: without, Ratio: m / base, Runs: runs}
	}
	return []bench.Figure{
		cost("guard_alloc_us", passed), cost("guard_asked_us", granted), cost("guard_denied_us", denied),
		{
			Name: "guard_steps_at_1gib", Value: of(rows, limited, "fits"), Unit: "× 128 MiB", Against: without,
			Ratio: of(rows, limited, "fits") / of(rows, without, "fits"), Runs: runs,
		},
	}
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"WAY", "ALLOCATION µs, MEDIAN", "P99", "STEPS OF 128 MiB THAT FIT"}}
	for _, way := range []string{without, passed, granted, denied, limited} {
		cell := func(key string, unit float64, format string) string {
			if v := of(rows, way, key); !math.IsNaN(v) { // else it was not measured in this way
				return fmt.Sprintf(format, unit*v)
			}
			return "-"
		}
		out = append(out, []string{way, cell("median", 1e6, "%.2f"), cell("p99", 1e6, "%.2f"), cell("fits", 1, "%.0f")})
	}
	return out
}
