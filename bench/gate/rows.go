package gate

import (
	"fmt"
	"math"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/workload"
)

// task is one launch as the program tells of it.
type task struct{ launch, end time.Time }

func pair(events []workload.Event) (tasks []task) {
	for _, e := range events {
		switch e.Name {
		case "launch":
			tasks = append(tasks, task{launch: e.Time})
		case "kernels_end":
			if len(tasks) > 0 {
				tasks[len(tasks)-1].end = e.Time
			}
		}
	}
	return tasks
}

// compare puts each launch beside its stop at the gate.
func compare(tasks []task, stays []stay, kernel float64) (rows []bench.Row) {
	next := 0
	for _, t := range tasks {
		// The stay of this launch lies between its launch and its end.
		for next < len(stays) && stays[next].turn.Before(t.launch) {
			next++
		}
		if next >= len(stays) || stays[next].turn.After(t.end) {
			rows = append(rows, bench.Row{"way": gated, "slip": true})
			continue
		}
		s := stays[next]
		next++
		rows = append(rows, bench.Row{
			"way": gated, "slip": t.end.Sub(s.turn).Seconds() < kernel/2,
			"launch_to_held": s.held.Sub(t.launch).Seconds(), "waited": s.turn.Sub(s.held).Seconds(),
			"letting_go": s.let.Sub(s.turn).Seconds(), "turn_to_running": s.running.Sub(s.turn).Seconds(),
			"turn_to_end": t.end.Sub(s.turn).Seconds(),
		})
	}
	return rows
}

func figures(rows []bench.Row) []bench.Figure {
	slips, starts := 0.0, 0
	for _, r := range rows {
		if _, ok := r["slip"]; ok && r.Str("way") == gated {
			slips += r.Num("slip")
			starts++
		}
	}
	all := []bench.Figure{{Name: "gate_slips", Value: slips, Unit: "kernels", Runs: starts}}
	add := func(name, key string, q float64, against bool) {
		ours := known(rows, key, gated)
		f := bench.Figure{Name: name, Value: 1e3 * bench.Quantile(ours, q), Unit: "ms", Runs: len(ours)}
		if theirs := known(rows, key, paused); against && len(theirs) > 0 {
			f.Against, f.Ratio = paused, f.Value/(1e3*bench.Quantile(theirs, q))
		}
		all = append(all, f)
	}
	add("gate_launch_to_held_median_ms", "launch_to_held", 0.5, false)
	add("gate_launch_to_held_p99_ms", "launch_to_held", 0.99, false)
	add("gate_letting_go_p99_ms", "letting_go", 0.99, false)
	add("gate_turn_to_running_median_ms", "turn_to_running", 0.5, true)
	add("gate_turn_to_running_p99_ms", "turn_to_running", 0.99, true)
	add("gate_attach_median_ms", "attach", 0.5, false)
	add("gate_attach_max_ms", "attach", 1, false)
	return all
}

// known are the numbers of one way that were measured.
func known(rows []bench.Row, key, way string) (values []float64) {
	for _, v := range bench.Column(rows, key, bench.Way(way)) {
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"MEASURED", "WAY", "N", "MEDIAN ms", "P99 ms", "MAX ms"}}
	for _, line := range []struct{ title, key, way string }{
		{"launch tried → seen stopped", "launch_to_held", gated},
		{"letting go (the call)", "letting_go", gated},
		{"turn → seen running", "turn_to_running", gated},
		{"turn → seen running", "turn_to_running", paused},
		{"first CUDA call → paused", "seen_to_held", paused},
		{"pausing (the call)", "pausing", paused},
		{"probes on a process", "attach", gated},
		{"turn → kernel's end", "turn_to_end", gated},
		{"kernel alone", "kernel", alone},
	} {
		v := known(rows, line.key, line.way)
		if len(v) == 0 {
			continue
		}
		ms := func(q float64) string { return fmt.Sprintf("%.3f", 1e3*bench.Quantile(v, q)) }
		out = append(out, []string{line.title, line.way, fmt.Sprint(len(v)), ms(0.5), ms(0.99), ms(1)})
	}
	return out
}
