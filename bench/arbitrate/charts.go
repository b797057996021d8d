package arbitrate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// inChart says what the ways are called, Laxity's first.
var inChart = []struct{ way, name string }{
	{laxity, "Laxity"}, {mps, "MPS"}, {timeSliced, "time slicing (default)"}, {"p3", "the paper's, by docker pause"}, {"one", "one after another"},
	{edf, "Laxity, EDF"}, {llf, "Laxity, LLF"},
}

// charts shows when the tasks of each set end, by each way.
func charts(rows []bench.Row) []chart.Chart {
	var out []chart.Chart
	rows = measured(rows)
	all := cells(rows)
	for _, set := range []struct{ name, title string }{
		{"large", "large tasks that start together on one GPU: from start to end, first run"},
		{"deadlines", "large tasks with deadlines on one GPU: from start to end, first run"},
	} {
		if n := most(all, set.name); n > 0 {
			out = append(out, timeline(rows, set.name, n, fmt.Sprintf("%d %s", n, set.title)))
		}
	}
	for _, m := range []struct {
		name, title string
		of          func(cell) float64
	}{
		{"makespan", "From the first start to the last end (less is better)", cell.makespan},
		{"turnaround", "Mean time from start to end of a task (less is better)", cell.turnaround},
	} {
		if c := bars(all, m.of); len(c.Groups) > 0 {
			c.Name, c.Title, c.Unit = m.name, m.title, "s"
			out = append(out, c)
		}
	}
	return out
}

// most is the largest number of tasks of a set.
func most(all []cell, set string) (n int) {
	for _, c := range all {
		if c.set == set {
			n = max(n, c.n)
		}
	}
	return n
}

// timeline shows each way's first run of a set.
func timeline(rows []bench.Row, set string, n int, title string) chart.Chart {
	t := chart.Timeline{Head: chart.Head{Name: "timeline-" + set, Title: title, Unit: "s"}}
	for _, w := range inChart {
		run := math.NaN()
		for _, r := range rows {
			if r.Str("set") == set && r.Str("way") == w.way && int(r.Num("n_tasks")) == n && !(r.Num("run") > run) {
				run = r.Num("run")
			}
		}
		var spans []chart.Span
		for _, r := range rows {
			if r.Str("set") == set && r.Str("way") == w.way && int(r.Num("n_tasks")) == n && r.Num("run") == run {
				spans = append(spans, chart.Span{Name: fmt.Sprintf("task %.0f", r.Num("task")), From: r.Num("start"), To: r.Num("end")})
			}
		}
		if len(spans) == 0 {
			continue
		}
		slices.SortFunc(spans, func(a, b chart.Span) int { return cmp.Compare(a.To, b.To) })
		began := slices.MinFunc(spans, func(a, b chart.Span) int { return cmp.Compare(a.From, b.From) }).From
		for i := range spans {
			spans[i].From, spans[i].To = spans[i].From-began, spans[i].To-began
		}
		t.Series, t.Spans = append(t.Series, w.name), append(t.Spans, spans)
	}
	return t
}

// bars has a group for each set and a bar for each way that some set has.
func bars(all []cell, of func(cell) float64) (c chart.Bars) {
	var ways []string
	for _, w := range inChart {
		if slices.ContainsFunc(all, func(c cell) bool { return c.way == w.way }) {
			ways, c.Series = append(ways, w.way), append(c.Series, w.name)
		}
	}
	for _, s := range sets() {
		n := most(all, s.name)
		if n == 0 {
			continue
		}
		g := chart.Group{Name: fmt.Sprintf("%s, %d at once", s.name, n)}
		for _, way := range ways {
			v := math.NaN()
			if i := slices.IndexFunc(all, func(c cell) bool { return c.set == s.name && c.way == way && c.n == n }); i >= 0 {
				v = of(all[i])
			}
			g.Values = append(g.Values, v)
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}
