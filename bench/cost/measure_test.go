package cost

import (
	"fmt"
	"math"
	"testing"

	"github.com/laxity/laxity/bench"
)

// The passes before the window do not count.
func TestMeanPass(t *testing.T) {
	page := func(sum, count float64) []byte {
		return fmt.Appendf(nil, "laxity_exporter_poll_duration_seconds_bucket{le=\"1\"} 7\nlaxity_exporter_poll_duration_seconds_sum %v\nlaxity_exporter_poll_duration_seconds_count %v\n", sum, count)
	}
	for name, tt := range map[string]struct {
		before, after []byte
		want          float64
	}{
		"from the start":          {nil, page(0.5, 10), 0.05},
		"slow before, fast since": {page(10, 10), page(10.2, 110), 0.002},
		"no pass":                 {page(10, 10), page(10, 10), math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := meanPass(tt.before, tt.after); !(math.Abs(got-tt.want) < 1e-9) && !(math.IsNaN(got) && math.IsNaN(tt.want)) {
				t.Errorf("%v s, want %v", got, tt.want)
			}
		})
	}
}

// A p99 is of 100 scrapes at least: rows of the process are none.
func TestP99NeedsScrapes(t *testing.T) {
	rows := []bench.Row{{"way": laxity, "kind": "process", "containers": 10, "cpu_percent": 1.0}}
	for range 99 {
		rows = append(rows, bench.Row{"way": laxity, "kind": "scrape", "containers": 10, "scrape_ms": 3.0})
	}
	for _, f := range Experiment().FiguresOf(rows) {
		if f.Name == "scrape_p99_ms" {
			t.Errorf("%+v", f)
		}
	}
	if line := table(rows)[1]; line[6] != "3" || line[7] != "-" {
		t.Errorf("table: %q", line)
	}
}

// Both ways have a mean of the window. The exporter's mean since its start, which older rows have, is not compared.
func TestOlderRowsHaveNoMeanPass(t *testing.T) {
	theirs := []bench.Row{{"way": passes, "kind": "pass", "containers": 10, "pass_ms": 100}, {"way": passes, "kind": "pass", "containers": 10, "pass_ms": 200}}
	for name, tt := range map[string]struct {
		ours bench.Row
		want bench.Figure
		cell string
	}{
		"now":   {bench.Row{"pass_mean_ms": 3.0}, bench.Figure{Name: "pass_mean_ms", Value: 3, Unit: "ms", Against: passes, Ratio: 0.02, Runs: 1}, "3"},
		"older": {bench.Row{"pass_ms": 3.0}, bench.Figure{}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.ours["way"], tt.ours["kind"], tt.ours["containers"] = laxity, "process", 10
			rows := append([]bench.Row{tt.ours}, theirs...)
			var got bench.Figure
			for _, f := range Experiment().FiguresOf(rows) {
				if f.Name == tt.want.Name {
					got = f
				}
			}
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if lines := table(rows); lines[1][5] != tt.cell || lines[2][5] != "150" {
				t.Errorf("table: %q", lines)
			}
		})
	}
}
