package placement

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/laxity/laxity/bench"
)

const aboutQuality = `Simulated: tasks arrive at random at 20 nodes with 2 GPUs of 80 GiB each, for 10 minutes. A task runs 0.5–30 s
(log-normal, mean about 4 s), holds 4–30 GiB, and is due 1.5–6 times its run time after it was submitted.
Every GPU works on one task at a time, earliest deadline first, with every way of placing. The placer knows
the facts of the last scrape (1 s) and its own promises since; estimates are 20 % off (log-normal). A task that is
refused asks again every 0.5 s; if it is not done by its deadline, it missed. Load 1 is as much work
as all GPUs can do. The same tasks for every way; five seeds. Paper is P2's Algorithm 2, which knows of a
container (its last miss, its float) until that is removed: at its task's end, or (kept) never.`

// Ways of choosing. P2 frees what it knows of a container when that is removed: paper
// removes each once its task has ended, paperKept none.
const (
	kept      = ", containers kept"
	paperKept = "paper" + kept
)

var choices = []string{"predictive", "paper", paperKept, "least-loaded", "random"}

var loads = []float64{0.3, 0.5, 0.7, 0.9, 1.1}

// Quality is the experiment of the rankings.
func Quality() bench.Experiment {
	return bench.Experiment{
		Name: "quality", Title: "Deadlines hit, by how nodes are chosen (simulated)", About: aboutQuality,
		Run: runQuality, Figures: qualityFigures, Table: qualityTable, Charts: qualityCharts,
	}
}

func runQuality(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	seeds, length := 5, 600.0
	if env.Quick {
		seeds, length = 1, 60
	}
	var rows []bench.Row
	for _, load := range loads {
		env.Log("load %v", load)
		for i := range seeds {
			seed := env.Seed + uint64(i)
			work := arrivals(seed, load, length)
			for _, way := range choices {
				if err := ctx.Err(); err != nil {
					return rows, err
				}
				r := simulate(slices.Clone(work), way, seed)
				rows = append(rows, bench.Row{"way": way, "load": load, "seed": float64(seed),
					"tasks": float64(r.tasks), "hits": float64(r.hits), "never_placed": float64(r.refused)})
			}
		}
	}
	return rows, nil
}

func share(rows []bench.Row, way string, load float64) (hits float64, runs int) {
	var done, all float64
	for _, r := range rows {
		if r.Str("way") == way && (load == 0 || r.Num("load") == load) {
			done, all, runs = done+r.Num("hits"), all+r.Num("tasks"), runs+1
		}
	}
	if all == 0 {
		return math.NaN(), 0
	}
	return done / all, runs
}

func qualityFigures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for _, load := range append([]float64{0}, loads...) {
		name := "placement_hits_predictive"
		if load > 0 {
			name += "_load_" + strconv.FormatFloat(load, 'f', -1, 64)
		}
		v, runs := share(rows, "predictive", load)
		for _, against := range choices[1:] {
			other, _ := share(rows, against, load)
			out = append(out, bench.Figure{Name: name, Value: v, Unit: "ratio", Against: against, Ratio: v / other, Runs: runs})
		}
	}
	return out
}

func qualityTable(rows []bench.Row) [][]string {
	head := []string{"LOAD"}
	lines := [][]string{append(head, choices...)}
	for _, load := range loads {
		line := []string{strconv.FormatFloat(load, 'f', -1, 64)}
		for _, way := range choices {
			v, runs := share(rows, way, load)
			if runs == 0 {
				line = append(line, "-")
				continue
			}
			line = append(line, fmt.Sprintf("%.1f %%", 100*v))
		}
		lines = append(lines, line)
	}
	return lines
}
