package events

import (
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// charts shows how late starts and ends were seen.
func charts(rows []bench.Row) []chart.Chart {
	c := chart.Bars{Log: true, Head: chart.Head{Name: "errors", Unit: "ms", Series: []string{"Laxity", passes + " in a loop"},
		Title: "How far from the truth starts and ends of GPU tasks are seen (less is better)"}}
	for _, g := range []struct {
		name, key, release string
		of                 func([]float64) float64
	}{
		{"start, median", "start_error_s", "", bench.Median}, {"start, p99", "start_error_s", "", bench.P99},
		{"end, median", "end_error_s", "destroy", bench.Median}, {"end, p99", "end_error_s", "destroy", bench.P99},
		{"end with the process, p99", "end_error_s", "exit", bench.P99},
	} {
		c.Groups = append(c.Groups, chart.Group{Name: g.name, Values: []float64{1000 * g.of(sizes(rows, laxity, g.key, g.release)), 1000 * g.of(sizes(rows, passes, g.key, g.release))}})
	}
	return []chart.Chart{c}
}
