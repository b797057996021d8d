// Package overhead measures what a tenant pays for being watched: the step time
// of a PyTorch loop without Laxity, and with it for both kinds of release.
package overhead

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/task"
)

const about = `A PyTorch program in a container times its own steps: 1,000 launches of a kernel on 16 numbers and
a synchronisation (bound by launching), and 40 multiplications of 4096² bf16 matrices. It runs
without Laxity, watched with laxity.release=process, and watched with laxity.release=busy, in turn,
several times; the figure of a way is the median over its runs of each run's median step.`

// ways in the order in which they take turns.
var ways = []string{"without", "process", "busy"}

//go:embed loop.py
var loop []byte

// Experiment needs a real GPU and PyTorch.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "overhead", Title: "What a tenant pays for being watched", About: about, NeedsGPU: true,
		Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	repeats, steps := 5, "300"
	if env.Quick {
		repeats, steps = 1, "50"
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	dir, err := os.MkdirTemp("", "laxity-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "loop.py")
	if err := os.WriteFile(script, loop, 0o644); err != nil {
		return nil, err
	}
	runner, err := tenant.New(ctx, tenant.Options{Name: fmt.Sprintf("overhead-%d", os.Getpid())})
	if err != nil {
		return nil, err
	}
	defer runner.Close() // what is left has a label
	for i := range repeats {
		for j := range ways {
			way := ways[(i+j)%len(ways)] // no way is always first
			env.Log("run %d of %d: %s", i+1, repeats, way)
			found, err := one(ctx, env, runner, way, []string{python, script, steps}, dir)
			if err != nil {
				return rows, err
			}
			for _, r := range found {
				r["run"] = float64(i)
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

// one runs the program once, watched or not.
func one(ctx context.Context, env bench.Env, runner *tenant.Runner, way string, program []string, dir string) ([]bench.Row, error) {
	labels := map[string]string{}
	tasks := func() int { return 0 }
	if way != "without" {
		labels[task.LabelRelease], labels[task.LabelDeadline] = way, "1s"
		watched, err := exporter.New(exporter.Options{Device: env.Device, MaxEnded: 5000, Keep: runner.Made})
		if err != nil {
			return nil, err
		}
		watchCtx, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = watched.Run(watchCtx) }()
		defer func() { stop(); <-ended }()
		<-watched.Ready()
		tasks = func() int { return len(watched.Snapshot().Ended) + len(watched.Snapshot().Tasks) }
	}
	name := fmt.Sprintf("laxity-bench-overhead-%d", os.Getpid())
	c, err := runner.StartHost(ctx, tenant.Spec{Name: name, Args: program, Labels: labels}, dir)
	if err != nil {
		return nil, err
	}
	defer c.Remove() //nolint:errcheck // the runner removes it again
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	seen := tasks()
	text, err := c.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		var l struct {
			Loop     string
			Launches float64
			Steps    []float64
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return rows, fmt.Errorf("%w in %q", err, lines.Text())
		}
		rows = append(rows, bench.Row{"way": way, "loop": l.Loop, "launches": l.Launches, "steps": float64(len(l.Steps)),
			"step_s": bench.Median(l.Steps), "tasks_seen": float64(seen)})
	}
	return rows, nil
}

// step is the median step of a way, seconds, and the number of runs.
func step(rows []bench.Row, way, loop string) (seconds, launches float64, runs int) {
	keep := func(r bench.Row) bool { return r.Str("way") == way && r.Str("loop") == loop }
	v := bench.Column(rows, "step_s", keep)
	return bench.Median(v), bench.Median(bench.Column(rows, "launches", keep)), len(v)
}

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for _, loop := range []string{"small", "large"} {
		base, _, _ := step(rows, "without", loop)
		for _, way := range ways[1:] {
			s, launches, n := step(rows, way, loop)
			out = append(out,
				bench.Figure{Name: loop + "_step_" + way, Value: 1000 * s, Unit: "ms", Against: "without Laxity", Ratio: s / base, Runs: n},
				bench.Figure{Name: loop + "_per_launch_" + way + "_us", Value: 1e6 * (s - base) / launches, Unit: "µs", Runs: n})
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"LOOP", "WAY", "STEP ms", "RATIO", "µs PER LAUNCH", "TASKS SEEN", "RUNS"}}
	for _, loop := range []string{"small", "large"} {
		base, _, _ := step(rows, "without", loop)
		for _, way := range ways {
			s, launches, n := step(rows, way, loop)
			seen := bench.Median(bench.Column(rows, "tasks_seen", func(r bench.Row) bool { return r.Str("way") == way && r.Str("loop") == loop }))
			lines = append(lines, []string{loop, way, bench.Number(1000 * s), fmt.Sprintf("%.4f", s/base),
				fmt.Sprintf("%+.3f", 1e6*(s-base)/launches), bench.Number(seen), fmt.Sprint(n)})
		}
	}
	return lines
}
