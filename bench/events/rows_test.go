package events

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

// A p99 is of 100 tasks at least, and so is what it is compared with: a task that was not seen has no error.
func TestP99NeedsTasks(t *testing.T) {
	var rows []bench.Row
	for i := range 100 {
		ours := bench.Row{"way": laxity, "kind": "task", "release": "destroy", "tasks": 1.0, "start_error_s": -0.001, "end_error_s": 0.001}
		theirs := bench.Row{"way": passes, "kind": "task", "release": "destroy", "tasks": 0.0}
		if i > 0 {
			theirs["start_error_s"] = 0.2
		} else {
			delete(ours, "end_error_s")
		}
		rows = append(rows, ours, theirs)
	}
	for _, f := range Experiment().FiguresOf(rows) {
		if f.Name == "end_error_p99_ms" || f.Name == "start_error_p99_ms" && (f.Value != 1 || f.Against != "") {
			t.Errorf("%+v", f)
		}
	}
	lines := table(rows)
	if lines[1][4] != "1" || lines[2][4] != "-" || lines[2][5] != "1" || lines[5][4] != "-" {
		t.Errorf("table: %q", lines)
	}
}

// Who is early by more than the bound is outside it, too; a start without a bound is not counted.
func TestStartsOutsideTheirBound(t *testing.T) {
	start := func(way string, err, bound float64) bench.Row {
		r := bench.Row{"way": way, "kind": "task", "release": "exit", "tasks": 1.0, "start_error_s": err}
		if bound > 0 {
			r["start_bound_s"] = bound
		}
		return r
	}
	rows := []bench.Row{start(laxity, 5e-5, 5e-5), start(laxity, 6e-5, 5e-5), start(laxity, -6e-5, 5e-5), start(laxity, 1, 0), start(passes, 1, 5e-5)}
	for _, f := range Experiment().FiguresOf(rows) {
		if f.Name == "starts_outside_their_bound" && (f.Value != 2 || f.Runs != 3) {
			t.Errorf("%v of %d starts, want 2 of 3", f.Value, f.Runs)
		}
	}
}
