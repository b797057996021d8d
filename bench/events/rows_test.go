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
