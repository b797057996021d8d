package cost

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// charts shows what watching costs as the containers become more.
func charts(rows []bench.Row) []chart.Chart {
	var numbers []float64
	for _, r := range rows {
		if n := r.Num("containers"); !math.IsNaN(n) && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	slices.SortFunc(numbers, cmp.Compare[float64])
	bars := func(name, title, unit, key string, log bool) chart.Chart {
		c := chart.Bars{Log: log, Head: chart.Head{Name: name, Title: title, Unit: unit, Series: []string{"Laxity's exporter", passes + " in a loop"}}}
		for _, n := range numbers {
			median := func(way string) float64 {
				return bench.Median(bench.Column(rows, key, func(r bench.Row) bool { return r.Str("way") == way && r.Num("containers") == n }))
			}
			if g := (chart.Group{Name: fmt.Sprintf("containers: %.0f", n), Values: []float64{median(laxity), median(passes)}}); !math.IsNaN(g.Values[0]) {
				c.Groups = append(c.Groups, g)
			}
		}
		return c
	}
	return []chart.Chart{
		bars("cpu", "CPU that watching costs, by number of containers (less is better)", "% of a core", "cpu_percent", true),
		bars("memory", "Memory that watching costs, by number of containers (less is better)", "MiB", "rss_anon_mib", false),
	}
}
