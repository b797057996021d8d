package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const aboutShipped = `A container of class batch multiplies 4096² matrices without end, and waits for each kernel. Tasks of 60 such kernels,
with a deadline of 1.3 × the time of one alone + 0.3 s, come one after another. default: nobody orders them. as shipped: exporter, guardian and
actuator as programs of their own with their default flags, and a stock Prometheus and Alertmanager, which scrape, evaluate and notify as compose/
does; an alert opens the arbitration. pauses: the same with --hold=pause. One way follows the other. Times are from before the task's cuInit, by its
own clock, to what the actuator's state, read every 5 ms, says first: that an alert has opened an arbitration, and that somebody is ordered (has a
slice, is off the GPU, or waits). Let go is from the task's end until nobody is ordered any more.`

// The ways of the chain as shipped.
const (
	alone     = "alone"
	byDefault = "default"
	asShipped = "as shipped"
	byPauses  = "pauses"
)

// Shipped is the chain of programs as shipped, from a task's start to its end.
func Shipped() bench.Experiment {
	return bench.Experiment{
		Name: "chain-shipped", Title: "The chain as shipped: a task's start, its alert, its order and its end", About: aboutShipped,
		Settings: []bench.Setting{
			{Name: "samples", Means: "how many tasks of each way; 20"},
			{Name: "kernels", Means: "products of 4096² a task; 60"},
		},
		Run: runShipped, Figures: shippedFigures, Table: shippedTable,
	}
}

// trial is one way's tasks.
type trial struct {
	*measurement
	kernels  int
	deadline time.Duration
	number   int // of tasks that were started
}

func runShipped(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	samples, kernels := 20, 60
	if env.Quick {
		samples = 2
	}
	if samples, err = env.Number("samples", 1, samples); err != nil {
		return nil, err
	}
	if kernels, err = env.Number("kernels", 1, kernels); err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "chain-shipped", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := trial{kernels: kernels, deadline: time.Hour, measurement: &measurement{env: env, gpu: r.GPU, runner: r.Tenants, label: tenant.Label + "=" + r.Name}}
	t.way.name = byDefault
	var lone []float64
	for range 3 {
		row, err := t.task(ctx)
		if err != nil {
			return rows, err
		}
		row["way"] = alone
		rows, lone = append(rows, row), append(lone, row.Num("took_s"))
	}
	t.deadline = time.Duration((1.3*bench.Median(lone) + 0.3) * float64(time.Second)).Round(time.Millisecond)
	for i, name := range []string{byDefault, asShipped, byPauses} {
		t.way.name, t.stack = name, stack{dir: filepath.Join(r.Dir, strconv.Itoa(i))}
		if err := os.Mkdir(t.stack.dir, 0o755); err != nil {
			return rows, err
		}
		more, err := t.beside(ctx, samples)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows, nil
}

// ordered says whether Laxity runs.
func (t *trial) ordered() bool { return t.way.name != byDefault }

func (t *trial) beside(ctx context.Context, samples int) (rows []bench.Row, err error) {
	defer func() { err = errors.Join(err, t.stack.close()) }()
	if t.ordered() {
		if err := t.programs(ctx); err != nil {
			return nil, err
		}
	}
	resident, err := t.runner.Start(ctx, tenant.Spec{Name: t.name("resident"), Labels: map[string]string{"laxity.class": "batch"},
		Args: []string{"--n", strconv.Itoa(t.gpu.N(4096)), "--kernels", "1000000", "--sync-each"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resident.Remove()) }()
	t.env.Log("%s: %d tasks, deadline %v", t.way.name, samples, t.deadline)
	for i := range samples + 1 {
		if t.ordered() {
			if err := t.quiet(ctx); err != nil {
				return rows, err
			}
		}
		row, err := t.task(ctx)
		if err != nil {
			return rows, err
		}
		if i > 0 { // Prometheus takes seconds to begin to scrape
			row["way"] = t.way.name
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// programs starts what a node and its monitoring run.
func (t *trial) programs(ctx context.Context) error {
	flags := []string{"--device=" + t.gpu.Device, "--guardian=require"}
	if t.way.name == byPauses {
		flags = append(flags, "--hold=pause")
	}
	if err := t.stack.reserve(ctx); err != nil {
		return err
	}
	if err := t.stack.guardian(ctx, t.gpu); err != nil {
		return err
	}
	if err := t.stack.laxity(ctx, t.gpu, t.label, flags...); err != nil {
		return err
	}
	return t.stack.monitoring(ctx)
}

// task runs one task with a deadline, and says when what happened to it.
func (t *trial) task(ctx context.Context) (bench.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	t.number++
	labels := map[string]string{task.LabelDeadline: t.deadline.String()}
	late, err := t.runner.Start(ctx, tenant.Spec{Name: t.name(strconv.Itoa(t.number)), Labels: labels,
		Args: []string{"--n", strconv.Itoa(t.gpu.N(4096)), "--kernels", strconv.Itoa(t.kernels), "--sync-each"}})
	if err != nil {
		return nil, err
	}
	row, err := t.watch(ctx, late)
	return row, errors.Join(err, late.Remove())
}

func (t *trial) watch(ctx context.Context, late *tenant.Tenant) (bench.Row, error) {
	ended := make(chan error, 1)
	go func() { ended <- late.Wait(ctx) }()
	var opened, first, last time.Time // the arbitration, and the first and last moment of somebody's order
	var over bool
	for !over || t.ordered() && last.IsZero() {
		select {
		case err := <-ended:
			if err != nil {
				return nil, err
			}
			over = true
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is ordered until the end: %w", late.Name, ctx.Err())
		}
		if !t.ordered() {
			continue
		}
		s, err := t.stack.state(ctx)
		if err != nil {
			return nil, err
		}
		if opened.IsZero() && len(s.Leases) > 0 {
			opened = time.Now()
		}
		switch {
		case someoneOrdered(s):
			last = time.Time{}
			if first.IsZero() {
				first = time.Now()
			}
		case over:
			last = time.Now()
		}
	}
	began, err := t.said(ctx, late, "init_begin")
	if err != nil {
		return nil, err
	}
	end, err := t.said(ctx, late, "exit")
	if err != nil {
		return nil, err
	}
	took := end.Sub(began)
	row := bench.Row{"took_s": took.Seconds(), "deadline_s": t.deadline.Seconds(), "hit": took <= t.deadline}
	if !t.ordered() {
		return row, nil
	}
	if !opened.IsZero() {
		row["alert_s"] = opened.Sub(began).Seconds()
	}
	if !first.IsZero() {
		row["order_s"], row["let_go_s"] = first.Sub(began).Seconds(), last.Sub(end).Seconds()
	}
	return row, nil
}

// someoneOrdered: somebody has a slice, is off the GPU, or waits.
func someoneOrdered(s state.State) bool {
	for _, c := range s.Containers {
		if c.Off || c.SliceSeconds != 0 || c.Waits != "" {
			return true
		}
	}
	return false
}

func shippedFigures(rows []bench.Row) (out []bench.Figure) {
	for _, way := range []struct{ is, name string }{{asShipped, "shipped"}, {byPauses, "pauses"}} {
		took, base := bench.Known(rows, way.is, "took_s"), bench.Known(rows, byDefault, "took_s")
		if len(took) == 0 {
			continue
		}
		for _, what := range []struct{ key, name string }{{"alert_s", "alert"}, {"order_s", "order"}, {"let_go_s", "let_go"}} {
			v := bench.Known(rows, way.is, what.key)
			out = append(out, bench.Figure{Name: way.name + "_" + what.name + "_median_ms", Value: 1000 * bench.Median(v), Unit: "ms", Runs: len(v)})
		}
		out = append(out,
			bench.Figure{Name: way.name + "_task_median_s", Value: bench.Median(took), Unit: "s", Against: byDefault, Ratio: bench.Median(took) / bench.Median(base), Runs: len(took)},
			bench.Figure{Name: way.name + "_in_time", Value: float64(hits(rows, way.is)), Unit: "tasks", Runs: len(took)})
	}
	return out
}

func hits(rows []bench.Row, way string) (n int) {
	for _, r := range rows {
		if r.Str("way") == way && r["hit"] == true {
			n++
		}
	}
	return n
}

func shippedTable(rows []bench.Row) [][]string {
	lines := [][]string{{"WAY", "START TO ALERT ms", "START TO ORDER ms", "MOST", "END TO LET GO ms", "MOST", "TASK s", "IN TIME"}}
	for _, way := range []string{alone, byDefault, asShipped, byPauses} {
		took, order, let := bench.Known(rows, way, "took_s"), bench.Known(rows, way, "order_s"), bench.Known(rows, way, "let_go_s")
		if len(took) == 0 {
			continue
		}
		inTime := fmt.Sprintf("%d of %d", hits(rows, way), len(took))
		if way == alone {
			inTime = "-" // its deadline comes from it
		}
		lines = append(lines, []string{way, bench.Spread(bench.Known(rows, way, "alert_s"), 1000), bench.Spread(order, 1000), bench.Number(1000 * bench.Max(order)),
			bench.Spread(let, 1000), bench.Number(1000 * bench.Max(let)), bench.Spread(took, 1), inTime})
	}
	return lines
}
