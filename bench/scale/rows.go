package scale

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// of keeps the rows of one way, size and kind.
func of(way, kind string, nodes float64) func(bench.Row) bool {
	return func(r bench.Row) bool {
		return r.Str("way") == way && r.Str("kind") == kind && r.Num("nodes") == nodes
	}
}

func sizesOf(rows []bench.Row) []float64 {
	var sizes []float64
	for _, r := range rows {
		if n := r.Num("nodes"); !math.IsNaN(n) && !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// suffix of a figure's name; the embedded engine's and the server's are both
// claimed, the server's is the one that a fleet has.
var suffix = map[string]string{embedded: "_embedded", server: ""}

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	sizes := sizesOf(rows)
	for _, way := range []string{server, embedded} {
		for _, n := range sizes {
			took := bench.Column(rows, "seconds", of(way, "decision", n))
			theirs := bench.Column(rows, "seconds", of(asked, "decision", n))
			name := func(what, unit string) string { return fmt.Sprintf("%s%s_%s_%.0f", what, suffix[way], unit, n) }
			p50, p99 := 1000*bench.Median(took), 1000*bench.Quantile(took, 0.99)
			out = append(out,
				bench.Figure{Name: name("decision_median", "ms"), Value: p50, Unit: "ms", Against: asked, Ratio: p50 / 1000 / bench.Median(theirs), Runs: len(took)},
				bench.Figure{Name: name("decision_p99", "ms"), Value: p99, Unit: "ms", Against: asked, Ratio: p99 / 1000 / bench.Quantile(theirs, 0.99), Runs: len(took)})
			loaded := bench.Column(rows, "seconds", of(way, busy, n))
			out = append(out, bench.Figure{Name: name("decision_busy_p99", "ms"), Value: 1000 * bench.Quantile(loaded, 0.99), Unit: "ms", Runs: len(loaded)})
			predicted := bench.Column(rows, "seconds", of(way, predictive, n))
			out = append(out, bench.Figure{Name: name("decision_predictive_p99", "ms"), Value: 1000 * bench.Quantile(predicted, 0.99), Unit: "ms", Runs: len(predicted)})
			for _, kind := range []string{"decision", "evaluation"} {
				used := bench.Column(rows, "seconds", of(way, kind+" CPU", n))
				out = append(out, bench.Figure{Name: name(kind+"_cpu", "ms"), Value: 1000 * bench.Median(used), Unit: "ms", Runs: len(used)})
			}
			written := bench.Column(rows, "write_seconds", of(way, "decision", n))
			out = append(out, bench.Figure{Name: name("decision_write_median", "ms"), Value: 1000 * bench.Median(written), Unit: "ms", Runs: len(written)})
			rules := bench.Column(rows, "seconds", of(way, "evaluation", n))
			out = append(out, bench.Figure{Name: name("rules", "ms"), Value: 1000 * bench.Median(rules), Unit: "ms", Runs: len(rules)})
			memory := bench.Column(rows, "bytes", of(way, "memory", n))
			out = append(out, bench.Figure{Name: name("memory", "mib"), Value: bench.Median(memory) / (1 << 20), Unit: "MiB", Runs: len(memory)})
		}
		out = append(out, growth(rows, way, "decision"), growth(rows, way, "evaluation"))
		count := bench.Column(rows, "series_per_node", func(r bench.Row) bool { return r.Str("way") == way })
		out = append(out, bench.Figure{Name: "series_per_node" + suffix[way], Value: bench.Quantile(count, 1), Unit: "series", Runs: len(count)})
	}
	return out
}

// growth is the exponent by which the median grows with the number of nodes, from
// the second largest size to the largest: 1 is linear.
func growth(rows []bench.Row, way, kind string) bench.Figure {
	f := bench.Figure{Name: kind + "_growth" + suffix[way], Unit: "exponent", Value: math.NaN()}
	sizes := sizesOf(rows)
	if len(sizes) < 2 {
		return f
	}
	low, high := sizes[len(sizes)-2], sizes[len(sizes)-1]
	a := bench.Column(rows, "seconds", of(way, kind, low))
	b := bench.Column(rows, "seconds", of(way, kind, high))
	f.Value, f.Runs = math.Log(bench.Median(b)/bench.Median(a))/math.Log(high/low), len(b)
	return f
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"NODES", "WAY", "DECISION ms", "p99", "CPU ms", "WRITE ms", "BUSY ms", "p99", "PREDICTIVE ms", "p99", "CROWDED ms", "EXPLAINED ms", "RULES ms", "RULES CPU ms", "MEMORY MiB", "SERIES A NODE"}}
	ms := func(v []float64, q float64) string { return bench.Number(1000 * bench.Quantile(v, q)) }
	for _, n := range sizesOf(rows) {
		for _, way := range []string{embedded, server, asked} {
			if i := slices.IndexFunc(rows, of(way, "skipped", n)); i >= 0 {
				lines = append(lines, []string{bench.Number(n), way, rows[i].Str("reason"), "", "", "", "", "", "", "", "", "", "", "", ""})
				continue
			}
			took := bench.Column(rows, "seconds", of(way, "decision", n))
			loaded := bench.Column(rows, "seconds", of(way, busy, n))
			predicted := bench.Column(rows, "seconds", of(way, predictive, n))
			if len(took) == 0 {
				continue
			}
			explained := ms(bench.Column(rows, "seconds", of(way, "explained", n)), 0.5)
			if i := slices.IndexFunc(rows, func(r bench.Row) bool { return of(way, "explained", n)(r) && r.Str("error") != "" }); i >= 0 {
				explained = "fails"
			}
			lines = append(lines, []string{bench.Number(n), way, ms(took, 0.5), ms(took, 0.99),
				ms(bench.Column(rows, "seconds", of(way, quiet+" CPU", n)), 0.5),
				ms(bench.Column(rows, "write_seconds", of(way, "decision", n)), 0.5), ms(loaded, 0.5), ms(loaded, 0.99),
				ms(predicted, 0.5), ms(predicted, 0.99), ms(bench.Column(rows, "seconds", of(way, crowded, n)), 0.5), explained,
				ms(bench.Column(rows, "seconds", of(way, "evaluation", n)), 0.5),
				ms(bench.Column(rows, "seconds", of(way, "evaluation CPU", n)), 0.5),
				bench.Number(bench.Median(bench.Column(rows, "bytes", of(way, "memory", n))) / (1 << 20)),
				bench.Number(bench.Quantile(bench.Column(rows, "series_per_node", of(way, "series", n)), 1))})
		}
	}
	return lines
}
