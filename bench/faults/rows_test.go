package faults

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestFigures(t *testing.T) {
	rows := []bench.Row{
		{"way": killed, "held": 2, "let_go": 0.1, "stuck": 0, "lost": 1, "unpaused": 0, "repaused": 1},
		{"way": killed, "held": 0, "let_go": 9.0, "stuck": 1, "lost": 0, "unpaused": 0, "repaused": 1},
		{"way": killed, "held": 1, "let_go": 0.3, "stuck": 2, "lost": 1, "unpaused": 0, "repaused": 2},
		{"way": early, "held": 2, "let_go": 9.0, "stuck": 1, "lost": 1, "unpaused": 0, "repaused": 2},
		{"way": replayed, "sent": 10, "accepted": 9, "stuck": 0, "lost": 3, "unpaused": 0, "repaused": 2},
	}
	want := map[string]float64{
		"kills": 3, "kills_while_it_starts": 1, "kills_with_somebody_held": 2, "let_go_after_kill_median_ms": 200, "let_go_after_kill_max_ms": 300, "payloads_accepted": 9,
		"containers_stuck": 4, "alerts_accepted_and_lost": 6, "wrongly_unpaused": 0, "wrongly_paused_again": 2,
	}
	for _, f := range figures(rows) {
		if d := f.Value - want[f.Name]; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s = %v, want %v", f.Name, f.Value, want[f.Name])
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if lines := table(rows); len(lines) != 4 || lines[3][1] != "10" || lines[2][1] != "1" || lines[1][2] != "3" {
		t.Errorf("%v", lines)
	}
	if lines := table(nil); lines[3][1] != "0" {
		t.Errorf("%v", lines)
	}
}
