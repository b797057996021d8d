package serve

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

// rowsIn is what was measured in a window, a row for each program that answers: the requests
// that were due in it, and the steps of all trainers that ended in it.
func rowsIn(w window, seats []*seat, spans [][]program.Span) (rows []bench.Row, err error) {
	var steps [][]program.Span
	for i, p := range seats[:w.begun] {
		if p.role == trainer {
			steps = append(steps, spans[i])
		}
	}
	for i, p := range seats[:w.begun] {
		if !p.role.answers() {
			continue
		}
		row, err := rowOf(w, spans[i], steps)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		row["who"] = p.name
		rows = append(rows, row)
	}
	return rows, nil
}

// rowOf is what one program was measured to do in a window. beside counts the others.
func rowOf(w window, requests []program.Span, trainers [][]program.Span) (bench.Row, error) {
	var took []float64
	for _, r := range requests {
		if r.Began >= w.from && r.Began < w.to {
			took = append(took, r.Ended-r.Began)
		}
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("no request within %.1f s beside %d", w.to-w.from, w.begun-1)
	}
	row := bench.Row{"beside": w.begun - 1, "time": w.from, "requests": len(took), "p50_s": bench.Median(took),
		"p90_s": bench.Quantile(took, 0.9), "most_s": bench.Quantile(took, 1)}
	if p99 := bench.P99(took); !math.IsNaN(p99) { // a row stores no NaN
		row["p99_s"] = p99
	}
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

// cell is one program by one way in one place, over the runs.
type cell struct{ rows []bench.Row }

func cellOf(rows []bench.Row, who, way string, beside int) cell {
	var c cell
	for _, r := range rows {
		if r.Str("who") == who && r.Str("way") == way && r.Num("beside") == float64(beside) {
			c.rows = append(c.rows, r)
		}
	}
	return c
}

func (c cell) values(key string) []float64 { return bench.Column(c.rows, key, nil) }

// tail is how the slowest requests are told: by their 99th percentile, or by the longest one where a run has too few of them.
type tail struct{ name, key string }

var (
	byP99     = tail{"p99", "p99_s"}
	byLongest = tail{"longest", "most_s"}
)

// tailOf is the one tail by which all cells can be told. Older rows have a p99 of few requests, too.
func tailOf(cells ...cell) tail {
	for _, c := range cells {
		if slices.ContainsFunc(c.values("requests"), func(n float64) bool { return n < bench.FewestForP99 }) {
			return byLongest
		}
	}
	return byP99
}

// of is the median over the runs, seconds.
func (t tail) of(c cell) float64 { return bench.Median(c.values(t.key)) }

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

// figures compare Laxity as shipped with default, and with the same program alone without
// Laxity: a server and its trainers serve1_, serve4_; each of two servers and a trainer
// two_…; a server and trainers on streams
// of their own streams1_, streams4_; a decode loop and a trainer decode_; a server of texts text1_, text2_. A name says longest instead of p99 where a run has
// fewer than 100 requests.
func figures(rows []bench.Row) (out []bench.Figure) {
	alone := func(who string) cell { return cellOf(rows, who, timeSliced, 0) }
	if c := alone("server"); len(c.rows) > 0 {
		slow := tailOf(c)
		out = append(out, bench.Figure{Name: "serve1_alone_" + slow.name + "_ms", Value: 1000 * slow.of(c), Unit: "ms", Runs: len(c.rows)})
	}
	out = slices.Concat(out, compare("serve1", rows, "server", 1, alone("server")), compare("serve4", rows, "server", 4, alone("server")),
		compare("two_10ms", rows, "server-10ms", 2, alone("server-10ms")),
		compare("two_50ms", rows, "server-50ms", 2, alone("server-10ms")), // the same program, which is alone first
		compare("streams1", rows, "server-stream", 1, alone("server-stream")), compare("streams4", rows, "server-stream", 4, alone("server-stream")),
		compare("decode", rows, "decode", 1, alone("decode")),
		compare("text1", rows, "text", 1, alone("text")), compare("text2", rows, "text", 2, alone("text")))
	return out
}

func compare(name string, rows []bench.Row, who string, beside int, alone cell) []bench.Figure {
	base := cellOf(rows, who, timeSliced, beside)
	return append(figuresOf(name, cellOf(rows, who, laxity, beside), base, alone),
		figuresOf(name+"_xsched", cellOf(rows, who, withXSched, beside), base, alone)...)
}

// figuresOf compares what one way did with default and with the program alone.
func figuresOf(name string, c, base, alone cell) []bench.Figure {
	if len(c.rows) == 0 {
		return nil
	}
	slow := tailOf(c, base, alone)
	ratio := func(what string, other cell, key, against string) bench.Figure {
		v := bench.Median(c.against(other, key))
		return bench.Figure{Name: name + what, Value: v, Unit: "×", Against: against, Ratio: v, Runs: len(c.rows)}
	}
	return []bench.Figure{
		{Name: name + "_" + slow.name + "_ms", Value: 1000 * slow.of(c), Unit: "ms", Runs: len(c.rows), Against: timeSliced, Ratio: slow.of(c) / slow.of(base)},
		ratio("_"+slow.name+"_vs_alone", alone, slow.key, "alone"),
		ratio("_"+slow.name+"_vs_default", base, slow.key, timeSliced),
		ratio("_steps_vs_default", base, "steps_per_s", timeSliced),
	}
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"WHO", "BESIDE", "WAY", "P50 ms", "P90", "P99", "MOST", "P99 VS DEFAULT", "STEPS/s", "VS DEFAULT", "FEWEST/s", "REQUESTS", "RUNS"}}
	for _, scene := range scenes {
		for _, p := range scene.parts {
			if p.role.answers() {
				lines = append(lines, linesOf(rows, p.name, scene)...)
			}
		}
	}
	return lines
}

// linesOf is the table's part for one program.
func linesOf(rows []bench.Row, who string, in scene) (lines [][]string) {
	for _, begun := range in.begun {
		for _, way := range allWays {
			c, base := cellOf(rows, who, way, begun-1), cellOf(rows, who, timeSliced, begun-1)
			if len(c.rows) == 0 {
				continue
			}
			of := func(key string, unit float64) string { return bench.Spread(c.values(key), unit) }
			p99, slow := of(byP99.key, 1000), tailOf(c, base)
			if tailOf(c) == byLongest {
				p99 = "-"
			}
			slower := difference(c, base, slow.key)
			if slow == byLongest && slower != "-" {
				slower += " (longest)"
			}
			lines = append(lines, []string{
				who, fmt.Sprint(begun - 1), way, of("p50_s", 1000), of("p90_s", 1000), p99, of("most_s", 1000), slower,
				of("steps_per_s", 1), difference(c, base, "steps_per_s"), of("fewest_per_s", 1), bench.Number(bench.Median(c.values("requests"))), fmt.Sprint(len(c.rows)),
			})
		}
	}
	return lines
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
