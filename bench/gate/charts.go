package gate

import (
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// charts shows what a turn costs by each way.
func charts(rows []bench.Row) []chart.Chart {
	c := chart.Bars{Log: true, Head: chart.Head{Name: "turn", Unit: "ms", Series: []string{"launch gate", "docker pause at first sight"},
		Title: "From a container's turn to its running on (less is better)"}}
	for _, g := range []struct {
		name string
		q    float64
	}{{"median", 0.5}, {"p99", 0.99}, {"longest", 1}} {
		c.Groups = append(c.Groups, chart.Group{Name: g.name, Values: []float64{
			1e3 * bench.Quantile(known(rows, "turn_to_running", gated), g.q), 1e3 * bench.Quantile(known(rows, "turn_to_running", paused), g.q)}})
	}
	return []chart.Chart{c}
}
