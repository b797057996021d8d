package events

import (
	"math"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// charts shows how late starts and ends were seen.
func charts(rows []bench.Row) []chart.Chart {
	late := func(way, key, release string, q float64) float64 {
		var v []float64
		for _, r := range rows {
			if x := r.Num(key); r.Str("way") == way && !math.IsNaN(x) && (release == "" || r.Str("release") == release) {
				v = append(v, math.Abs(x))
			}
		}
		return 1000 * bench.Quantile(v, q)
	}
	c := chart.Bars{Log: true, Head: chart.Head{Name: "errors", Unit: "ms", Series: []string{"Laxity", passes + " in a loop"},
		Title: "How far from the truth starts and ends of GPU tasks are seen (less is better)"}}
	for _, g := range []struct {
		name, key, release string
		q                  float64
	}{
		{"start, median", "start_error_s", "", 0.5}, {"start, p99", "start_error_s", "", 0.99},
		{"end, median", "end_error_s", "destroy", 0.5}, {"end, p99", "end_error_s", "destroy", 0.99},
		{"end with the process, p99", "end_error_s", "exit", 0.99},
	} {
		c.Groups = append(c.Groups, chart.Group{Name: g.name, Values: []float64{late(laxity, g.key, g.release, g.q), late(passes, g.key, g.release, g.q)}})
	}
	return []chart.Chart{c}
}
