package faults

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestFigures(t *testing.T) {
	rows := []bench.Row{
		{"way": restart{live: true}.String(), "held": 2, "stuck": 0, "lost": 1, "unpaused": 1, "repaused": 0},
		{"way": restart{kill: true}.String(), "held": 2, "stuck": 1, "lost": 0}, // no person has a wish here
		{"way": killed, "held": 2, "let_go": 0.1, "stuck": 0, "lost": 1, "unpaused": 0, "repaused": 1},
		{"way": killed, "held": 0, "let_go": 9.0, "stuck": 1, "lost": 0, "unpaused": 0, "repaused": 0},
		{"way": killed, "held": 1, "let_go": 0.3, "stuck": 2, "lost": 1, "unpaused": 0, "repaused": 2},
		{"way": early, "held": 2, "let_go": 9.0, "stuck": 1, "lost": 1, "unpaused": 0, "repaused": 0},
		{"way": replayed, "sent": 10, "accepted": 9, "stuck": 0, "lost": 3, "unpaused": 0, "repaused": 0},
	}
	want := map[string]float64{
		"dockerd_restarts": 2, "kills": 3, "kills_while_it_starts": 1, "kills_with_somebody_held": 2, "let_go_after_kill_median_ms": 200, "let_go_after_kill_max_ms": 300, "payloads_accepted": 9,
		"containers_stuck": 5, "alerts_accepted_and_lost": 7, "wrongly_unpaused": 1, "wrongly_paused_again": 3,
	}
	for _, f := range figures(rows) {
		if f.Name == "wrongly_unpaused" && f.Runs != 6 {
			t.Errorf("%s rests on %d, want those where a person has a wish", f.Name, f.Runs)
		}
		if d := f.Value - want[f.Name]; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s = %v, want %v", f.Name, f.Value, want[f.Name])
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if lines := table(rows); len(lines) != 8 || lines[7][1] != "10" || lines[6][1] != "1" || lines[5][2] != "3" || lines[4][4] != "-" {
		t.Errorf("%v", lines)
	}
	if lines := table(nil); lines[7][1] != "0" {
		t.Errorf("%v", lines)
	}
}
