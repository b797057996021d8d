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
			p50 := 1000 * bench.Median(took)
			out = append(out,
				bench.Figure{Name: name("decision_median", "ms"), Value: p50, Unit: "ms", Against: asked, Ratio: p50 / 1000 / bench.Median(theirs), Runs: len(took)},
				bench.Figure{Name: name("decision_p99", "ms"), Value: 1000 * bench.P99(took), Unit: "ms", Against: asked, Ratio: bench.P99(took) / bench.P99(theirs), Runs: len(took)})
			loaded := bench.Column(rows, "seconds", of(way, busy, n))
			out = append(out, bench.Figure{Name: name("decision_busy_p99", "ms"), Value: 1000 * bench.P99(loaded), Unit: "ms", Runs: len(loaded)})
			predicted := bench.Column(rows, "seconds", of(way, predictive, n))
			out = append(out, bench.Figure{Name: name("decision_predictive_p99", "ms"), Value: 1000 * bench.P99(predicted), Unit: "ms", Runs: len(predicted)})
			for _, kind := range []string{"decision", "evaluation"} {
				used := processorTimes(rows, way, kind, n)
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

// processorTimes are those of decisions or evaluations. A server's evaluation is a difference: with the rules less without. Where it
// is not above 0, what else the server does varies by more than the rules take, and nothing is known.
func processorTimes(rows []bench.Row, way, kind string, nodes float64) []float64 {
	used := bench.Column(rows, "seconds", of(way, kind+" CPU", nodes))
	if way == server && kind == "evaluation" {
		used = slices.DeleteFunc(used, func(s float64) bool { return s <= 0 })
	}
	return used
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
	lines := [][]string{{"NODES", "WAY", "DECISIONS", "DECISION ms", "p99", "CPU ms", "WRITE ms", "BUSY ms", "p99", "PREDICTIVE ms", "p99", "CROWDED ms", "EXPLAINED ms", "RULES ms", "RULES CPU ms", "MEMORY MiB", "SERIES A NODE"}}
	ms := func(seconds float64) string { return bench.Number(1000 * seconds) }
	median := func(way, key, kind string, n float64) string {
		return ms(bench.Median(bench.Column(rows, key, of(way, kind, n))))
	}
	for _, n := range sizesOf(rows) {
		for _, way := range []string{embedded, server, asked} {
			if i := slices.IndexFunc(rows, of(way, "skipped", n)); i >= 0 {
				lines = append(lines, append([]string{bench.Number(n), way, "", rows[i].Str("reason")}, make([]string, len(lines[0])-4)...))
				continue
			}
			took := bench.Column(rows, "seconds", of(way, "decision", n))
			loaded := bench.Column(rows, "seconds", of(way, busy, n))
			predicted := bench.Column(rows, "seconds", of(way, predictive, n))
			if len(took) == 0 {
				continue
			}
			explained := median(way, "seconds", "explained", n)
			if i := slices.IndexFunc(rows, func(r bench.Row) bool { return of(way, "explained", n)(r) && r.Str("error") != "" }); i >= 0 {
				explained = "fails"
			}
			lines = append(lines, []string{bench.Number(n), way, fmt.Sprint(len(took)), ms(bench.Median(took)), ms(bench.P99(took)),
				median(way, "seconds", quiet+" CPU", n), median(way, "write_seconds", quiet, n), ms(bench.Median(loaded)), ms(bench.P99(loaded)),
				ms(bench.Median(predicted)), ms(bench.P99(predicted)), median(way, "seconds", crowded, n), explained,
				median(way, "seconds", "evaluation", n), ms(bench.Median(processorTimes(rows, way, "evaluation", n))),
				bench.Number(bench.Median(bench.Column(rows, "bytes", of(way, "memory", n))) / (1 << 20)),
				bench.Number(bench.Quantile(bench.Column(rows, "series_per_node", of(way, "series", n)), 1))})
		}
	}
	return lines
}
