package long

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/bench"
)

// quantity is one thing that must not grow.
type quantity struct {
	process, key, unit string
	bound              float64 // growth in a day that is called flat
	most               float64 // what it may fill; 0: nothing
}

// verdict of its trends. last is what there was in the end.
func (q quantity) verdict(t trends, last float64) string {
	v := t.verdict(q.bound)
	if v == grows && last <= q.most {
		return "fills, " + bench.Number(q.most) + " " + q.unit + " at most"
	}
	return v
}

// quantities and their bounds: a MiB, one descriptor, goroutine, thread or file, or ten series an
// hour are called flat. Hundreds of containers come and go in that hour, so what each of them
// leaves behind is far more.
var quantities = []quantity{
	{process: upProcess, key: "rss_mib", unit: "MiB", bound: 24},
	{process: upProcess, key: "rss_anon_mib", unit: "MiB", bound: 24},
	{process: upProcess, key: "heap_mib", unit: "MiB", bound: 24},
	{process: upProcess, key: "goroutines", unit: "", bound: 24},
	{process: upProcess, key: "descriptors", unit: "", bound: 24},
	{process: upProcess, key: "threads", unit: "", bound: 24},
	{process: upProcess, key: "children", unit: "", bound: 24},
	{process: upProcess, key: "series_exporter", unit: "", bound: 240},
	{process: upProcess, key: "series_actuator", unit: "", bound: 240},
	{process: guardianProcess, key: "rss_mib", unit: "MiB", bound: 24},
	{process: guardianProcess, key: "rss_anon_mib", unit: "MiB", bound: 24},
	{process: guardianProcess, key: "descriptors", unit: "", bound: 24},
	{process: guardianProcess, key: "threads", unit: "", bound: 24},
	{process: "decisions", key: "disk_kib", unit: "KiB", bound: 24 * 1024, most: 2 * decisionlog.MaxBytes / 1024},
	{process: "samples", key: "disk_kib", unit: "KiB", bound: 24 * 1024},
	{process: "samples", key: "files", unit: "", bound: 24},
	{process: "state", key: "disk_kib", unit: "KiB", bound: 24 * 1024},
	{process: "state", key: "files", unit: "", bound: 24},
	{process: "run", key: "disk_kib", unit: "KiB", bound: 24 * 1024},
	{process: "run", key: "files", unit: "", bound: 24},
}

// latencyOf are the latencies, in the table's order.
var latencyOf = []string{"exporter's metrics", "actuator's metrics", "actuator's state", "decision", "action"}

// series are the points of a quantity, by run.
func (q quantity) series(rows []bench.Row) [][]point {
	return byRun(rows, q.key, func(r bench.Row) bool { return r.Str("process") == q.process })
}

// byRun takes the numbers under key, by run, in the order of the rows.
func byRun(rows []bench.Row, key string, keep func(bench.Row) bool) (all [][]point) {
	place := map[float64]int{}
	for _, r := range rows {
		v := r.Num(key)
		if math.IsNaN(v) || !keep(r) {
			continue
		}
		i, ok := place[r.Num("run")]
		if !ok {
			i = len(all)
			place[r.Num("run")], all = i, append(all, nil)
		}
		all[i] = append(all[i], point{r.Num("t") / 3600, v})
	}
	return all
}

// ends are the medians over runs of the first and the last value.
func ends(runs [][]point) (first, last float64) {
	var a, b []float64
	for _, points := range runs {
		a, b = append(a, points[0].value), append(b, points[len(points)-1].value)
	}
	return bench.Median(a), bench.Median(b)
}

// quarters are the values of the first and the last quarter of each run's time.
func quarters(rows []bench.Row, of string) (first, last []float64) {
	for _, points := range byRun(rows, "ms", func(r bench.Row) bool { return r.Str("kind") == "latency" && r.Str("of") == of }) {
		from, to := points[0].hours, points[len(points)-1].hours
		for _, p := range points {
			switch part := (p.hours - from) / (to - from); {
			case part <= 0.25:
				first = append(first, p.value)
			case part >= 0.75:
				last = append(last, p.value)
			}
		}
	}
	return first, last
}

// compared says of two quarters whether the boxes of their quartiles overlap.
func compared(first, last []float64) string {
	switch {
	case len(first) < 2 || len(last) < 2:
		return noData
	case bench.Quantile(last, 0.25) > bench.Quantile(first, 0.75):
		return grows
	default:
		return flat
	}
}

// count is how many rows of a kind there are, and how many of them failed.
func count(rows []bench.Row, kind string) (all, failed int) {
	for _, r := range rows {
		if r.Str("kind") == kind {
			all++
			if r.Num("failed") == 1 {
				failed++
			}
		}
	}
	return all, failed
}

// restarts is how often a process was another one than before.
func restarts(rows []bench.Row, process string) (n int) {
	for _, points := range byRun(rows, "pid", func(r bench.Row) bool { return r.Str("process") == process }) {
		for i, p := range points[1:] {
			if p.value != points[i].value {
				n++
			}
		}
	}
	return n
}

// measured is the time that the runs took together, hours.
func measured(rows []bench.Row) (hours float64) {
	longest := map[float64]float64{}
	for _, r := range rows {
		if t := r.Num("t"); t > longest[r.Num("run")] {
			longest[r.Num("run")] = t
		}
	}
	for _, t := range longest {
		hours += t / 3600
	}
	return hours
}

func figures(rows []bench.Row) []bench.Figure {
	if len(rows) == 0 {
		return nil
	}
	containers, failed := count(rows, "container")
	persons, refused := count(rows, "person")
	scrapes, _ := count(rows, "latency")
	_, unanswered := count(rows, "scrape")
	grown, known := 0, 0
	var slopes []bench.Figure
	for _, q := range quantities {
		series := q.series(rows)
		if len(series) == 0 {
			continue
		}
		t := trendsOf(series)
		_, last := ends(series)
		if v := q.verdict(t, last); v != noData {
			known++
			if v == grows {
				grown++
			}
		}
		if slices.Contains([]string{"rss_mib", "descriptors", "disk_kib", "goroutines"}, q.key) {
			n := 0
			for _, points := range series {
				n += len(points)
			}
			name := map[string]string{upProcess: "up", guardianProcess: "guardian"}[q.process]
			if name == "" {
				name = q.process
			}
			slopes = append(slopes, bench.Figure{Name: "long_" + name + "_" + q.key + "_per_hour", Value: t.whole.slope, Unit: q.unit + "/h", Runs: n})
		}
	}
	out := []bench.Figure{
		{Name: "long_hours", Value: measured(rows), Unit: "h", Runs: 1},
		{Name: "long_grows", Value: float64(grown), Unit: fmt.Sprintf("of %d quantities", known), Runs: known},
	}
	out = append(out, slopes...)
	for _, of := range latencyOf[:4] {
		first, last := quarters(rows, of)
		name := map[string]string{"exporter's metrics": "scrape", "actuator's metrics": "actuator_scrape", "actuator's state": "state", "decision": "decision"}[of]
		before := bench.Median(first)
		out = append(out, bench.Figure{Name: "long_" + name + "_last_quarter_ms", Value: bench.Median(last), Unit: "ms", Against: "the first quarter", Ratio: bench.Median(last) / before, Runs: len(last)})
	}
	return append(out,
		bench.Figure{Name: "long_containers", Value: float64(containers), Unit: "containers", Runs: containers},
		bench.Figure{Name: "long_containers_failed", Value: float64(failed), Unit: "containers", Runs: containers},
		bench.Figure{Name: "long_wishes_failed", Value: float64(refused), Unit: "wishes of a person", Runs: persons},
		bench.Figure{Name: "long_scrapes_failed", Value: float64(unanswered), Unit: "scrapes", Runs: scrapes},
		bench.Figure{Name: "long_restarts", Value: float64(restarts(rows, upProcess) + restarts(rows, guardianProcess)), Unit: "processes", Runs: 2})
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"OF", "WHAT", "FIRST", "LAST", "PER HOUR", "95 % INTERVAL", "IN THE SECOND HALF", "BOUND PER DAY", "VERDICT"}}
	for _, q := range quantities {
		series := q.series(rows)
		if len(series) == 0 {
			continue
		}
		t := trendsOf(series)
		first, last := ends(series)
		lines = append(lines, []string{q.process, q.key, bench.Number(first), bench.Number(last), bench.Number(t.whole.slope),
			t.whole.interval(), t.second.interval(), bench.Number(q.bound) + " " + q.unit, q.verdict(t, last)})
	}
	for _, of := range latencyOf {
		first, last := quarters(rows, of)
		if len(first)+len(last) > 0 {
			lines = append(lines, []string{of, "ms, quarters", bench.Spread(first, 1), bench.Spread(last, 1), "", "", "", "", compared(first, last)})
		}
	}
	return lines
}
