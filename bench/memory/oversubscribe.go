package memory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

const oversubscribeAbout = `A ballast container leaves 40 GiB of the card. Twelve tasks in containers of their own begin at once;
together they need three times that (10 GiB each: matrices of 8192², the rest is held). They run by
each way in turn: default side by side, laxity with limits (each task carries
laxity.gpu-memory=10.6GiB, which includes the context, and no other label), one after another; where
asked for, laxity also with the card divided (--memory-share=fair and adaptive, the same label). By
the other ways they carry no label; the ballast never does. A task that gets CUDA's out-of-memory
error ends there.
Makespan is from the first start to the last end; the run time of a task, from its start to its end,
includes its waits; with one, all tasks count as begun when the first one does. Memory
use is the mean, over the makespan, of what the tasks hold of the 40 GiB.`

// Oversubscribe is more tasks than the card has memory for.
func Oversubscribe() bench.Experiment {
	return bench.Experiment{
		Name: "oversubscribe", Title: "Three times more memory than there is (P4)", About: oversubscribeAbout,
		Settings: append([]bench.Setting{
			{Name: "repeats", Means: "runs of each way; 2"},
			{Name: "ways", Means: "some of " + strings.Join(oversubscribeWays, ",") + "; default,laxity,one"},
			{Name: "verbose", Means: "any value: the logs of exporter and actuator on the standard error"},
			{Name: "swap", Means: "off: no container is swapped out; on"},
		}, bench.Simulation...),
		Run: runOversubscribe, Figures: oversubscribeFigures, Table: oversubscribeTable,
	}
}

const (
	leftFree = 40 << 30
	// taskMemory is what one task holds besides its context.
	taskMemory = 10 << 30
	// contextMost bounds what a context takes.
	contextMost = 640 << 20
	allTimeout  = 4 * time.Minute
)

// memoryShares are the ways with Laxity, by how it divides the card.
var memoryShares = map[string]allocator.Share{laxity: allocator.ByLimit, "fair": allocator.Fair, "adaptive": allocator.Adaptive}

// oversubscribeWays are all, in the order of the table.
var oversubscribeWays = []string{without, laxity, "fair", "adaptive", oneByOne}

// waysOf returns the ways that are asked for.
func waysOf(env bench.Env) ([]string, error) {
	text, ok := env.Args["ways"]
	if !ok {
		return []string{without, laxity, oneByOne}, nil
	}
	ways := strings.Split(text, ",")
	for _, w := range ways {
		if !slices.Contains(oversubscribeWays, w) {
			return nil, fmt.Errorf("--set ways=%s: %q is none of %s", text, w, strings.Join(oversubscribeWays, ","))
		}
	}
	return ways, nil
}

func runOversubscribe(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	repeats, count := 2, 12
	if env.Quick {
		repeats = 1
	}
	if repeats, err = env.Number("repeats", 1, repeats); err != nil {
		return nil, err
	}
	ways, err := waysOf(env)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, env, "oversubscribe", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	total, err := r.smallestGPU(ctx, 1)
	if err != nil {
		return nil, err
	}
	if total > leftFree+contextMost+1<<30 {
		ballast, err := r.start(ctx, nil, "--context-only", "--alloc-extra", mib(total-leftFree-contextMost), "--hold", "100000")
		if err != nil {
			return nil, err
		}
		defer ballast.Remove() //nolint:errcheck // the runner's Close tries again
		if err := r.awaitUsed(ctx, total-leftFree-contextMost); err != nil {
			return nil, err
		}
	}
	for repeat := range repeats {
		for _, way := range ways {
			more, err := r.oversubscribeRound(ctx, count, way, repeat)
			if err != nil {
				return rows, err
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

// awaitUsed waits until so much of the card is in use.
func (r *rig) awaitUsed(ctx context.Context, bytes uint64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d, err := r.open()
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		reading, err := d.Read(ctx)
		if err != nil {
			return err
		}
		if reading.GPUs[0].MemoryUsed >= bytes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the ballast does not hold its memory: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// oversubscribeRound runs all tasks by a way and returns a row for each.
func (r *rig) oversubscribeRound(ctx context.Context, count int, way string, repeat int) (rows []bench.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	if share, ok := memoryShares[way]; ok {
		stop, err := r.laxity(ctx, config.Config{Arbitrate: config.Always, MemoryWait: allTimeout, MemoryShare: share})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	base, err := r.used(ctx)
	if err != nil {
		return nil, err
	}
	stopWatching, mean := r.watch(ctx, base)
	tasks := make([]oversubscribed, count)
	var wait sync.WaitGroup
	for i := range tasks {
		if tasks[i].tenant, err = r.task(ctx, way); err != nil {
			break
		}
		if way == oneByOne {
			tasks[i].finish(ctx)
		} else {
			wait.Go(func() { tasks[i].finish(ctx) })
		}
	}
	wait.Wait()
	stopWatching()
	if err != nil {
		return nil, err
	}
	return r.oversubscribeRows(tasks, way, repeat, mean()), nil
}

// task starts one task.
func (r *rig) task(ctx context.Context, way string) (*tenant.Tenant, error) {
	n := r.GPU.N(8192)
	matrices := uint64(3 * n * n * 4)
	labels := map[string]string{}
	if _, ok := memoryShares[way]; ok {
		labels["laxity.gpu-memory"] = strconv.Itoa(taskMemory + contextMost)
	}
	return r.start(ctx, labels, "--n", strconv.Itoa(n), "--kernels", "8", "--host-seconds", "0.3",
		"--alloc-extra", mib(taskMemory-matrices))
}

// oversubscribed is one task and how it fared.
type oversubscribed struct {
	tenant     *tenant.Tenant
	start, end time.Time
	err        error
}

func (o *oversubscribed) finish(ctx context.Context) {
	defer o.tenant.Remove() //nolint:errcheck // the runner's Close tries again
	o.err = o.tenant.Wait(ctx)
	events, err := o.tenant.Timeline(ctx)
	o.err = errors.Join(o.err, err)
	for _, e := range events {
		switch e.Name {
		case "start":
			o.start = e.Time
		default:
			o.end = e.Time
		}
	}
}

func (r *rig) oversubscribeRows(tasks []oversubscribed, way string, repeat int, memory float64) (rows []bench.Row) {
	first := tasks[0].start
	for _, t := range tasks {
		if t.start.Before(first) {
			first = t.start
		}
	}
	oom, last := 0, 0.0
	for i, t := range tasks {
		began := t.start
		if way == oneByOne {
			began = first
		}
		row := bench.Row{"way": way, "repeat": repeat, "task": i, "end": t.end.Sub(first).Seconds(), "took": t.end.Sub(began).Seconds(),
			"outcome": "ended", "memory_use": memory}
		if t.err != nil {
			row["outcome"] = "failed"
			if strings.Contains(strings.ToLower(t.err.Error()), "memory") {
				row["outcome"] = "out of memory"
				oom++
			}
			r.env.Log("%s: task %d: %v", way, i, t.err)
		}
		last = max(last, row.Num("end"))
		rows = append(rows, row)
	}
	r.env.Log("%s, repeat %d: makespan %.1fs, %d of %d out of memory, %.0f %% of the memory used", way, repeat, last, oom, len(tasks), 100*memory)
	return rows
}

// used is what is in use of the card.
func (r *rig) used(ctx context.Context) (uint64, error) {
	reading, err := r.read(ctx)
	if err != nil {
		return 0, err
	}
	return reading.GPUs[0].MemoryUsed, nil
}

// watch samples the card's memory until stop; mean is then the share of what was
// left that was in use.
func (r *rig) watch(ctx context.Context, base uint64) (stop func(), mean func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan float64, 1)
	go func() {
		sum, n := 0.0, 0
		d, err := r.open()
		if err == nil {
			defer d.Close()
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for err == nil {
			select {
			case <-ctx.Done():
				done <- sum / float64(n)
				return
			case <-tick.C:
			}
			if reading, rerr := d.Read(ctx); rerr == nil {
				sum, n = sum+float64(reading.GPUs[0].MemoryUsed-min(reading.GPUs[0].MemoryUsed, base))/leftFree, n+1
			}
		}
		done <- math.NaN()
	}()
	return cancel, func() float64 { return <-done }
}

// round sums one repeat of a way up.
type round struct{ makespan, mean, memory, oom float64 }

func rounds(rows []bench.Row, way string) (all []round) {
	for repeat := range 100 {
		keep := func(r bench.Row) bool { return r.Str("way") == way && r.Num("repeat") == float64(repeat) }
		ended := func(r bench.Row) bool { return keep(r) && r.Str("outcome") == "ended" }
		ends := bench.Column(rows, "end", keep)
		if len(ends) == 0 {
			return all
		}
		oom := bench.Column(rows, "task", func(r bench.Row) bool { return keep(r) && r.Str("outcome") != "ended" })
		all = append(all, round{makespan: bench.Quantile(ends, 1), mean: bench.Mean(bench.Column(rows, "took", ended)),
			memory: bench.Mean(bench.Column(rows, "memory_use", keep)), oom: float64(len(oom))})
	}
	return all
}

func median(all []round, of func(round) float64) float64 {
	var v []float64
	for _, r := range all {
		v = append(v, of(r))
	}
	return bench.Median(v)
}

func oversubscribeFigures(rows []bench.Row) []bench.Figure {
	with, one, before := rounds(rows, laxity), rounds(rows, oneByOne), rounds(rows, without)
	figure := func(name, unit, against string, other []round, of func(round) float64) bench.Figure {
		v := median(with, of)
		return bench.Figure{Name: name, Value: v, Unit: unit, Against: against, Ratio: v / median(other, of), Runs: len(with)}
	}
	return []bench.Figure{
		figure("oversubscribe_failed", "of 12 tasks", without, before, func(r round) float64 { return r.oom }),
		figure("oversubscribe_makespan_s", "s", oneByOne, one, func(r round) float64 { return r.makespan }),
		figure("oversubscribe_mean_run_time_s", "s", oneByOne, one, func(r round) float64 { return r.mean }),
		figure("oversubscribe_memory_use", "of 40 GiB", oneByOne, one, func(r round) float64 { return r.memory }),
	}
}

func oversubscribeTable(rows []bench.Row) [][]string {
	table := [][]string{{"WAY", "FAILED", "MAKESPAN s", "MEAN RUN TIME s", "MEMORY USED %", "REPEATS"}}
	for _, way := range oversubscribeWays {
		all := rounds(rows, way)
		if len(all) == 0 {
			continue
		}
		table = append(table, []string{way, bench.Number(median(all, func(r round) float64 { return r.oom })),
			bench.Number(median(all, func(r round) float64 { return r.makespan })), bench.Number(median(all, func(r round) float64 { return r.mean })),
			bench.Number(100 * median(all, func(r round) float64 { return r.memory })), fmt.Sprint(len(all))})
	}
	return table
}
