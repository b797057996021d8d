package cost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const aboutGrowth = `The same for containers of ten processes each, of which every one holds a context: up to 1,000
processes. No GPU has room for so many contexts, so the GPU is simulated; the processes, their
containers and everything that the exporter asks of the kernel and of Docker are real.`

// each is the number of processes in a container.
const each = 10

// Growth is cost with a thousand processes.
func Growth() bench.Experiment {
	return bench.Experiment{
		Name: "growth", Title: "What watching costs, by number of processes (simulated GPU)", About: aboutGrowth,
		Settings: []bench.Setting{
			{Name: "counts", Means: "numbers of containers, ten processes each, as 1,10,100"},
			{Name: "seconds", Means: "how long each number of them is watched; 15"},
		},
		Run: grow, Figures: growthFigures, Table: table,
	}
}

func grow(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	if env.Device != "sim" {
		return nil, errors.New("growth needs room for 1,000 contexts: use --device=sim")
	}
	// Contexts that are made by turns would take most of the time, and are not what is
	// measured.
	args := map[string]string{"sim-context": "1ms"}
	if !env.Quick {
		args["counts"], args["seconds"] = "1,10,100", "15"
	}
	maps.Copy(args, env.Args)
	env.Args = args
	env.SimulatedMemory = 1 << 40 // a context takes half a GiB
	return measure(ctx, env, each, func(ctx context.Context, runner *tenant.Runner, _ *bench.GPU, i int) error {
		_, err := runner.Start(ctx, tenant.Spec{
			Name:   fmt.Sprintf("laxity-bench-growth-%d-%d", os.Getpid(), i),
			Args:   []string{"--context-only", "--hold", "3600", "--processes", strconv.Itoa(each)},
			Labels: map[string]string{task.LabelDeadline: "1h"},
		})
		return err
	})
}

func growthFigures(rows []bench.Row) []bench.Figure {
	most := bench.Quantile(bench.Column(rows, "processes", nil), 1)
	of := func(key string) []float64 {
		return bench.Column(rows, key, func(r bench.Row) bool { return r.Str("way") == laxity && r.Num("processes") == most })
	}
	figure := func(name, key, unit string) bench.Figure {
		return bench.Figure{Name: name, Value: bench.Median(of(key)), Unit: unit, Runs: count(of(key))}
	}
	return []bench.Figure{
		{Name: "growth_processes", Value: most, Unit: "processes", Runs: 1},
		figure("growth_cpu_percent", "cpu_percent", "% of a core"),
		figure("growth_rss_mib", "rss_anon_mib", "MiB"),
		figure("growth_scrape_median_ms", "scrape_ms", "ms"),
	}
}
