package placement

import (
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// qualityCharts shows the share of deadlines met as the load rises.
func qualityCharts(rows []bench.Row) []chart.Chart {
	c := chart.Lines{XName: "load (1: as much work as all GPUs can do)",
		Head: chart.Head{Name: "hits", Title: "Deadlines met, by how nodes are chosen (simulated; more is better)", Unit: "%", Series: choices}}
	for _, way := range choices {
		var points []chart.Point
		for _, load := range loads {
			if v, runs := share(rows, way, load); runs > 0 {
				points = append(points, chart.Point{X: load, Y: 100 * v})
			}
		}
		c.Points = append(c.Points, points)
	}
	return []chart.Chart{c}
}
