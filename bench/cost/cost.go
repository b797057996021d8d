// Package cost measures what watching costs: CPU and memory of the exporter and
// of the papers' monitor, the time of one pass and of a scrape, as containers
// are added (P1's Figs 4–5, P2's Figs 9–10).
package cost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const about = `The exporter and the papers' monitor (nvidia-smi and docker top, pass after pass) run as two separate
processes, while containers multiply 5120² matrices in a loop; above 20, further
ones hold a context and compute nothing. For each number of containers: CPU of the whole process
tree in percent of one core, private memory (RssAnon), the mean time of one reading of the GPUs or of
one pass (older results have ours since the exporter's start, which is not shown), and the time of a scrape, from the request to the last byte of the answer, while the
reader, which runs beside the containers, collects no garbage of its own. The exporter is measured
twice: scraped once a second, and ten times a second as the compose stack does. The
measurement is of the steady state, so it begins when the youngest task is 12 s old: the exporter
reads new containers more often.`

// settle is how long the exporter looks at a new task more often, and a little.
const settle = 12 * time.Second

const (
	laxity = "laxity"
	passes = "nvidia-smi + docker top"
	often  = "_scraped_100ms"
	busy   = 20 // containers that compute; those beyond hold a context only
)

// Experiment is P1's Figs 4–5 and P2's Figs 9–10.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "cost", Title: "What watching costs, by number of containers (P1 Figs 4–5, P2 Figs 9–10)", About: about,
		Settings: []bench.Setting{
			{Name: "counts", Means: "numbers of containers, as 1,10,20"},
			{Name: "seconds", Means: "how long each number of them is watched; 30"},
		},
		Run: run, Figures: figures, Table: table, Charts: charts,
	}
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	return measure(ctx, env, 1, add)
}

// measure takes the steps one after another, with so many processes in each
// container that start makes.
func measure(ctx context.Context, env bench.Env, processes int, start starter) (rows []bench.Row, err error) {
	steps, interval, err := settings(env)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "cost", 1)
	if err != nil {
		return nil, err
	}
	defer r.Close() // what is left has a label
	exporter, err := startExporter(ctx, r.GPU, filepath.Join(r.Dir, "state"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, exporter.Stop()) }()

	running := 0
	for _, count := range steps {
		for ; running < count; running++ {
			if err := start(ctx, r.Tenants, r.GPU, running); err != nil {
				return rows, err
			}
		}
		if err := exporter.await(ctx, count*processes); err != nil {
			return rows, err
		}
		env.Log("%d containers: the exporter for 2 × %v, after %v", count, interval, settle)
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return rows, ctx.Err()
		}
		ours, err := exporter.measure(ctx, interval, time.Second)
		if err != nil {
			return rows, err
		}
		often, err := exporter.measure(ctx, interval, 100*time.Millisecond)
		if err != nil {
			return rows, err
		}
		env.Log("%d containers: the papers' monitor for %v", count, interval)
		theirs, err := measurePapers(ctx, r.GPU, interval)
		if err != nil {
			return rows, err
		}
		for _, r := range slices.Concat(ours, often, theirs) {
			r["containers"] = float64(count)
			r["processes"] = float64(count * processes)
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// settings are the numbers of containers and the time that each way is measured.
func settings(env bench.Env) (counts []int, interval time.Duration, err error) {
	counts, interval = []int{1, 10, 20, 100}, 30*time.Second
	if env.Quick {
		counts, interval = []int{1, 5}, 3*time.Second
	}
	seconds, err := env.Number("seconds", 1, int(interval/time.Second))
	if err != nil {
		return nil, 0, err
	}
	interval = time.Duration(seconds) * time.Second
	if text := env.Args["counts"]; text != "" {
		counts = nil
		for field := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 {
				return nil, 0, fmt.Errorf("--set counts=%s: want numbers of containers, as 1,10,20", text)
			}
			counts = append(counts, n)
		}
		slices.Sort(counts)
	}
	return counts, interval, nil
}

// starter starts the i-th tenant.
type starter func(ctx context.Context, runner *tenant.Runner, gpu *bench.GPU, i int) error

// add starts tenants of which the first compute.
func add(ctx context.Context, runner *tenant.Runner, gpu *bench.GPU, i int) error {
	_, err := runner.Start(ctx, tenant.Spec{
		Name: fmt.Sprintf("laxity-bench-cost-%d-%d", os.Getpid(), i), Args: work(gpu, i),
		Labels: map[string]string{task.LabelDeadline: "1h"},
	})
	return err
}

// work is what the i-th tenant does.
func work(gpu *bench.GPU, i int) []string {
	if i >= busy {
		return []string{"--context-only", "--hold", "3600"}
	}
	return []string{"--n", strconv.Itoa(gpu.N(5120)), "--kernels", "1", "--repeat", "0"}
}

func figures(rows []bench.Row) []bench.Figure {
	at := func(way, key string, containers int) []float64 {
		return bench.Column(rows, key, func(r bench.Row) bool {
			return r.Str("way") == way && int(r.Num("containers")) == containers
		})
	}
	most := int(bench.Quantile(bench.Column(rows, "containers", nil), 1))
	loaded := min(busy, most)
	var out []bench.Figure
	compare := func(name, unit string, ours, theirs []float64, of func([]float64) float64) {
		f := bench.Figure{Name: name, Value: of(ours), Unit: unit, Runs: count(ours)}
		if t := of(theirs); count(theirs) > 0 {
			f.Against, f.Ratio = passes, f.Value/t
		}
		out = append(out, f)
	}
	add := func(name, unit, key string, containers int, of func([]float64) float64) {
		compare(name, unit, at(laxity, key, containers), at(passes, strings.TrimSuffix(key, often), containers), of)
	}
	add("exporter_cpu_percent", "% of a core", "cpu_percent", loaded, bench.Median)
	add("exporter_cpu_percent_scraped_100ms", "% of a core", "cpu_percent"+often, loaded, bench.Median)
	add("exporter_rss_mib", "MiB", "rss_anon_mib", loaded, bench.Median)
	add("exporter_cpu_percent_most", "% of a core", "cpu_percent", most, bench.Median)
	add("exporter_rss_mib_most", "MiB", "rss_anon_mib", most, bench.Median)
	compare("pass_mean_ms", "ms", at(laxity, passKeys[laxity], min(10, most)), at(passes, passKeys[passes], min(10, most)), bench.Mean)
	add("scrape_p99_ms", "ms", "scrape_ms", most, bench.P99)
	return out
}

// passKeys are the columns of a way's passes: ours is the mean of a window, theirs one pass. Older rows have pass_ms of
// the exporter, too: the mean since its start, which is not compared.
var passKeys = map[string]string{laxity: "pass_mean_ms", passes: "pass_ms"}

// count is how many of the values are numbers.
func count(values []float64) int {
	n := 0
	for _, v := range values {
		if v == v { // not NaN
			n++
		}
	}
	return n
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"CONTAINERS", "WAY", "CPU % of a core", "SCRAPED 10/s", "RssAnon MiB", "ONE PASS, MEAN ms", "SCRAPE p50 ms", "SCRAPE p99 ms", "SERIES"}}
	var steps []float64
	for _, r := range rows {
		if n := r.Num("containers"); !slices.Contains(steps, n) {
			steps = append(steps, n)
		}
	}
	for _, n := range steps {
		for _, way := range []string{laxity, passes} {
			values := func(key string) []float64 {
				return bench.Column(rows, key, func(r bench.Row) bool { return r.Str("way") == way && r.Num("containers") == n })
			}
			median := func(key string) string { return bench.Number(bench.Median(values(key))) }
			lines = append(lines, []string{bench.Number(n), way, median("cpu_percent"), median("cpu_percent" + often), median("rss_anon_mib"),
				bench.Number(bench.Mean(values(passKeys[way]))), median("scrape_ms"), bench.Number(bench.P99(values("scrape_ms"))), median("series")})
		}
	}
	return lines
}
