package inpods

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

// Each part is laid out by its own experiment, with the names of its columns.
func TestEachPartIsLaidOutByItsOwnColumns(t *testing.T) {
	rows := []bench.Row{
		{"part": "serve", "way": "default", "run": 1, "scene": "server", "who": "server", "beside": 0, "p50_s": 0.001, "p90_s": 0.002, "p99_s": 0.003, "most_s": 0.004},
		{"part": "serve", "way": "laxity", "run": 1, "scene": "server", "who": "server", "beside": 0, "p50_s": 0.001, "p90_s": 0.002, "p99_s": 0.003, "most_s": 0.004},
	}
	got := table(rows)
	if len(got) != 3 || got[0][0] != "PART" || got[1][0] != "serve" {
		t.Fatalf("%q", got)
	}
	if want := "WHO server, BESIDE 0, WAY default, P50 ms 1, "; len(got[1][1]) < len(want) || got[1][1][:len(want)] != want {
		t.Errorf("%q, want %q and more", got[1][1], want)
	}
	for _, f := range figures(rows) {
		if f.Name[:5] != "pods_" {
			t.Errorf("figure %q", f.Name)
		}
	}
}

// The settings of a part must be those that its experiment has.
func TestPartsHaveTheirSettings(t *testing.T) {
	for _, p := range parts() {
		known := map[string]bool{}
		for _, s := range p.Settings {
			known[s.Name] = true
		}
		for name := range p.args {
			if !known[name] {
				t.Errorf("%s has no setting %q", p.name, name)
			}
		}
		if !known[p.runs] || !known["engine"] || !known["verbose"] {
			t.Errorf("%s lacks %q, engine or verbose", p.name, p.runs)
		}
	}
}
