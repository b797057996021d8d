package cost

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/pods"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
)

const aboutPods = `Two exporters at the same time, each with a simulated GPU of its own: one watches Docker's containers, the
other as many pods of a containerd of their own, made by its CRI service, with a pause container each. The tasks are the same:
the first 20 compute, further ones hold a context. In turns each exporter is scraped for a while, once a second
and then ten times a second; the CPU seconds (user and system) of its whole process are compared turn by turn.`

// The ways of rows.
const (
	inDocker = "Docker containers"
	inPods   = "containerd pods"
)

// Pods compares what watching pods costs with what watching containers of Docker costs.
func Pods() bench.Experiment {
	return bench.Experiment{
		Name: "pods", Title: "What watching pods costs beside Docker's containers (simulated GPU)", About: aboutPods,
		Settings: []bench.Setting{
			{Name: "count", Means: "how many containers, and how many pods; 100"},
			{Name: "turns", Means: "how many turns each exporter has; 8", Part: true},
			{Name: "seconds", Means: "how long it is scraped in each turn, at each of two paces; 15"},
		},
		Run: comparePods, Figures: podFigures, Table: podTable,
	}
}

func comparePods(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	if env.Device != "sim" {
		return nil, errors.New("pods watches two GPUs at once: use --device=sim")
	}
	fallback := map[string]int{"count": 100, "turns": 8, "seconds": 15}
	if env.Quick {
		fallback = map[string]int{"count": 5, "turns": 2, "seconds": 2}
	}
	n := map[string]int{}
	for name, value := range fallback {
		if n[name], err = env.Number(name, 1, value); err != nil {
			return nil, err
		}
	}
	// Contexts that are made by turns would take most of the time, and are not what is measured.
	args := map[string]string{"sim-context": "1ms"}
	maps.Copy(args, env.Args)
	env.Args = args
	watched, done, err := openBoth(ctx, env, n["count"])
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return nil, err
	}
	env.Log("all are seen; the exporters settle for %v", settle)
	if err := bench.Pass(ctx, settle); err != nil {
		return nil, err
	}
	interval := time.Duration(n["seconds"]) * time.Second
	ways := []string{inDocker, inPods}
	for turn := range n["turns"] {
		for _, way := range ways {
			for _, every := range []time.Duration{time.Second, 100 * time.Millisecond} {
				measured, err := watched[way].measure(ctx, interval, every)
				if err != nil {
					return rows, err
				}
				for _, r := range measured {
					r["way"], r["turn"], r["containers"] = way, turn, n["count"]
				}
				rows = append(rows, measured...)
			}
		}
		slices.Reverse(ways) // whoever goes second meets another machine
		env.Log("turn %d of %d", turn+1, n["turns"])
	}
	return rows, nil
}

// openBoth starts the containers and the pods, and an exporter for each that sees all of them.
// done undoes all of it, also after an error.
func openBoth(ctx context.Context, env bench.Env, count int) (watched map[string]*process, done func() error, err error) {
	var undo []func() error
	done = func() error {
		var errs []error
		for _, do := range slices.Backward(undo) {
			errs = append(errs, do())
		}
		return errors.Join(errs...)
	}
	watched = map[string]*process{}
	observe := func(way string, gpu *bench.GPU, state string, flags ...string) error {
		p, err := startExporter(ctx, gpu, state, flags...)
		if err != nil {
			return err
		}
		undo = append(undo, p.Stop)
		watched[way] = p
		return p.await(ctx, count)
	}
	r, err := rig.Open(ctx, env, "pods", 1)
	if err != nil {
		return nil, done, err
	}
	undo = append(undo, r.Close)
	for i := range count {
		if err := add(ctx, r.Tenants, r.GPU, i); err != nil {
			return nil, done, err
		}
	}
	flags := []string{"--engine=docker"}
	if env.DockerHost != "" {
		flags = append(flags, "--docker.host="+env.DockerHost)
	}
	if err := observe(inDocker, r.GPU, filepath.Join(r.Dir, "state"), flags...); err != nil {
		return nil, done, err
	}
	env.Log("%d containers of Docker run", count)

	other := filepath.Join(r.Dir, "pods")
	gpu, err := env.OpenGPU(ctx, other, 1)
	if err != nil {
		return nil, done, err
	}
	undo = append(undo, gpu.Close)
	engine, err := pods.Open(ctx)
	if err != nil {
		return nil, done, err
	}
	runner, err := tenant.New(ctx, tenant.Options{Engine: pods.Tenants{Engine: engine}, Socket: gpu.Socket, Name: r.Name})
	if err != nil {
		return nil, done, err
	}
	undo = append(undo, runner.Close)
	for i := range count {
		if err := add(ctx, runner, gpu, i); err != nil {
			return nil, done, err
		}
	}
	env.Log("%d pods run", count)
	return watched, done, observe(inPods, gpu, filepath.Join(other, "state"), engine.Flags()...)
}

// podFigures compares the ways turn by turn.
func podFigures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for _, f := range []struct{ name, key, unit string }{
		{"pods_cpu_percent", "cpu_percent", "% of a core"}, {"pods_cpu_percent_scraped_100ms", "cpu_percent" + often, "% of a core"}, {"pods_rss_mib", "rss_anon_mib", "MiB"},
	} {
		pods := bench.Known(rows, inPods, f.key)
		ratios := ratiosOf(rows, f.key)
		out = append(out, bench.Figure{Name: f.name, Value: bench.Median(pods), Unit: f.unit, Against: inDocker, Ratio: bench.Median(ratios), Runs: len(ratios)})
	}
	return out
}

// ratiosOf divides what pods cost by what containers cost, for each turn that has both.
func ratiosOf(rows []bench.Row, key string) (ratios []float64) {
	pods, docker := bench.Known(rows, inPods, key), bench.Known(rows, inDocker, key)
	for i := range min(len(pods), len(docker)) {
		ratios = append(ratios, pods[i]/docker[i])
	}
	return ratios
}

func podTable(rows []bench.Row) [][]string {
	lines := [][]string{{"CONTAINERS", "WAY", "CPU % of a core", "SCRAPED 10/s", "RssAnon MiB", "SCRAPE ms", "SERIES"}}
	number := bench.Number(bench.Quantile(bench.Column(rows, "containers", nil), 1))
	for _, way := range []string{inDocker, inPods} {
		line := []string{number, way}
		for _, key := range []string{"cpu_percent", "cpu_percent" + often, "rss_anon_mib", "scrape_ms"} {
			line = append(line, bench.Spread(bench.Known(rows, way, key), 1))
		}
		lines = append(lines, append(line, bench.Number(bench.Median(bench.Known(rows, way, "series")))))
	}
	line := []string{number, "pods ÷ containers"}
	for _, key := range []string{"cpu_percent", "cpu_percent" + often, "rss_anon_mib"} {
		line = append(line, bench.Spread(ratiosOf(rows, key), 1))
	}
	return append(lines, append(line, "", ""))
}
