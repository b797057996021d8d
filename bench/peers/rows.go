package peers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
)

// cell is one way with one number of containers at one interval, over the repeats.
type cell struct{ rows []bench.Row }

func cellOf(rows []bench.Row, way string, containers, every float64) cell {
	return cell{slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool {
		return r.Str("way") != way || r.Num("containers") != containers || r.Num("every_s") != every
	})}
}

func (c cell) values(key string) []float64 { return bench.Column(c.rows, key, nil) }

// columns are the distinct values of a number, in order.
func columns(rows []bench.Row, key string) []float64 {
	all := bench.Column(rows, key, nil)
	slices.Sort(all)
	return slices.Compact(all)
}

// figures compare our exporter with the leanest way of each of the others, scraped once a second.
func figures(rows []bench.Row) (out []bench.Figure) {
	for _, n := range columns(rows, "containers") {
		ours := cellOf(rows, laxity, n, 1)
		if len(ours.rows) == 0 {
			continue
		}
		for _, against := range []string{cadvisor, cadvisorLeast, nvidiaSMI, nvidiaNVML} {
			theirs := cellOf(rows, against, n, 1)
			if len(theirs.rows) == 0 {
				continue
			}
			for _, f := range []struct{ name, key, unit string }{{"cpu", "cpu_s_per_min", "CPU s a minute"}, {"rss", "rss_mib", "MiB"}} {
				v := bench.Median(ours.values(f.key))
				out = append(out, bench.Figure{
					Name:  fmt.Sprintf("peers%.0f_%s_vs_%s", n, f.name, strings.ReplaceAll(against, "-", "_")),
					Value: v, Unit: f.unit, Against: against, Ratio: v / bench.Median(theirs.values(f.key)), Runs: len(ours.rows),
				})
			}
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"CONTAINERS", "WAY", "SCRAPED EVERY s", "CPU s A MINUTE", "RSS MiB", "SCRAPE ms", "BYTES", "SERIES",
		"CONTAINERS NAMED", "GPU MEMORY", "GPU TASKS", "DEADLINE", "BY PID ONLY", "REPEATS"}}
	for _, n := range columns(rows, "containers") {
		for _, every := range columns(rows, "every_s") {
			for _, way := range allWays {
				c := cellOf(rows, way, n, every)
				if len(c.rows) == 0 {
					continue
				}
				of := func(key string, unit float64) string { return bench.Spread(c.values(key), unit) }
				told := func(key string) string {
					return fmt.Sprintf("%s of %.0f", bench.Number(bench.Median(c.values(key))), n)
				}
				lines = append(lines, []string{
					bench.Number(n), way, bench.Number(every), of("cpu_s_per_min", 1), of("rss_mib", 1), of("scrape_s", 1000),
					bench.Number(bench.Median(c.values("bytes"))), bench.Number(bench.Median(c.values("series"))),
					told("named"), told("gpu_memory"), told("gpu_tasks"), told("deadline"), told("pids"), fmt.Sprint(len(c.rows)),
				})
			}
		}
	}
	return lines
}
