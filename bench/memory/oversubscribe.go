package memory

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench"
	benchrig "github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
)

const oversubscribeAbout = `A ballast container leaves 40 GiB of the card. Twelve tasks in containers of their own begin at once;
together they need three times that: in the set equal 10 GiB each and 8 kernels, in the set unequal 5, 10 or 15 GiB and 4, 8 or 12 kernels
(matrices of 8192², the rest is held). They run by each way in turn, in an order that changes from run to run; all containers of a way
are made before the first one starts, and removed after the last end. Ways: default side by side, laxity with limits (each task carries
laxity.gpu-memory, what it needs and 640 MiB for the context, and no other label), one after another; where
asked for, laxity also with the card divided (--memory-share=fair and adaptive, the same label), and static: the 40 GiB in equal parts, as many as
the largest task fits into, a task for each, and the next one begins when a part is free; this is how we read P4's static fair share, of which we
have the abstract only. By the other ways they carry no label; the ballast never does. A task that gets CUDA's out-of-memory
error ends there.
Makespan is from the first start to the last end; the run time of a task, from its start to its end,
includes its waits; with one and static, all tasks count as begun when the first one does. Memory
use is the mean, over the makespan, of what the tasks hold of the 40 GiB. The mean run time is of those that ended: where tasks failed, of the few
that had the card to themselves.`

// Oversubscribe is more tasks than the card has memory for.
func Oversubscribe() bench.Experiment {
	return bench.Experiment{
		Name: "oversubscribe", Title: "Three times more memory than there is (P4)", About: oversubscribeAbout,
		Settings: append([]bench.Setting{
			{Name: "repeats", Means: "runs of each way; 2", Part: true},
			{Name: "sets", Means: "equal, unequal or both; equal", Part: true},
			{Name: "ways", Means: "some of " + strings.Join(oversubscribeWays, ",") + "; default,laxity,one"},
			{Name: "verbose", Means: "any value: the logs of exporter and actuator on the standard error"},
			{Name: "swap", Means: "off: no container is swapped out; on"},
		}, bench.Simulation...),
		Portions: true, Run: runOversubscribe, Figures: oversubscribeFigures, Table: oversubscribeTable,
	}
}

const (
	leftFree   = 40 << 30
	allTimeout = 4 * time.Minute
)

// memoryShares are the ways with Laxity, by how it divides the card.
var memoryShares = map[string]allocator.Share{laxity: allocator.ByLimit, "fair": allocator.Fair, "adaptive": allocator.Adaptive}

// oversubscribeWays are all, in the order of the table.
var oversubscribeWays = []string{without, static, laxity, "fair", "adaptive", oneByOne}

// waysOf returns the ways that are asked for.
func waysOf(env bench.Env) ([]string, error) {
	return env.Some("ways", oversubscribeWays, []string{without, laxity, oneByOne})
}

func runOversubscribe(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	repeats := 2
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
	sets, err := setsOf(env)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, env, "oversubscribe", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Ballast(ctx, leftFree); err != nil {
		return nil, err
	}
	first := env.FirstRun()
	for repeat := range repeats {
		for _, s := range sets {
			var all []bench.Row // of the ways together, or of none
			for _, way := range bench.Turned(ways, first+repeat) {
				more, err := r.oversubscribeRound(ctx, s, way, first+repeat)
				if err != nil {
					return rows, err
				}
				all = append(all, more...)
			}
			rows = append(rows, all...)
		}
	}
	return rows, nil
}

// oversubscribeRound runs all tasks of a set by a way and returns a row for each.
func (r *rig) oversubscribeRound(ctx context.Context, s taskSet, way string, run int) (rows []bench.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	if share, ok := memoryShares[way]; ok {
		stop, err := r.Guard(ctx, r.env, config.Config{Arbitrate: config.Always, MemoryWait: allTimeout, MemoryShare: share})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	tasks := make([]oversubscribed, len(s.jobs))
	defer func() {
		for _, t := range tasks {
			if t.tenant != nil {
				t.tenant.Remove() //nolint:errcheck // the runner's Close tries again
			}
		}
	}()
	for i := range tasks {
		if tasks[i].tenant, err = r.task(ctx, s.jobs[i], way); err != nil {
			return nil, err
		}
	}
	watched, err := r.WatchMemory(ctx)
	if err != nil {
		return nil, err
	}
	slots := make(chan struct{}, s.atOnce(way))
	var wait sync.WaitGroup
	for i := range tasks {
		slots <- struct{}{}
		if err = tasks[i].tenant.Start(ctx); err != nil {
			break
		}
		wait.Go(func() {
			tasks[i].err = tasks[i].tenant.Wait(ctx)
			<-slots
		})
	}
	wait.Wait()
	use := watched().Mean / leftFree
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		tasks[i].read(ctx)
	}
	return r.oversubscribeRows(tasks, s, way, run, use), nil
}

// task makes the container of one task.
func (r *rig) task(ctx context.Context, j job, way string) (*tenant.Tenant, error) {
	n := r.GPU.N(8192)
	matrices := uint64(3 * n * n * 4)
	labels := map[string]string{}
	if _, ok := memoryShares[way]; ok {
		labels["laxity.gpu-memory"] = strconv.FormatUint(j.memory+benchrig.ContextMost, 10)
	}
	return r.create(ctx, labels, "--n", strconv.Itoa(n), "--kernels", strconv.Itoa(j.kernels), "--host-seconds", "0.3",
		"--alloc-extra", mib(j.memory-matrices))
}

// oversubscribed is one task and how it fared.
type oversubscribed struct {
	tenant     *tenant.Tenant
	start, end time.Time
	err        error
}

// read reads when a task that has ended began and ended.
func (o *oversubscribed) read(ctx context.Context) {
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

func (r *rig) oversubscribeRows(tasks []oversubscribed, s taskSet, way string, run int, memory float64) (rows []bench.Row) {
	var first time.Time
	for _, t := range tasks {
		if !t.start.IsZero() && (first.IsZero() || t.start.Before(first)) {
			first = t.start
		}
	}
	oom, last := 0, 0.0
	for i, t := range tasks {
		began := t.start
		if way == oneByOne || way == static {
			began = first
		}
		row := bench.Row{"way": way, "set": s.name, "run": run, "task": i, "outcome": "ended", "memory_use": memory}
		if !t.start.IsZero() { // otherwise it failed before it could say anything
			row["end"], row["took"] = t.end.Sub(first).Seconds(), t.end.Sub(began).Seconds()
			last = max(last, row.Num("end"))
		}
		if t.err != nil {
			row["outcome"] = "failed"
			if strings.Contains(strings.ToLower(t.err.Error()), "memory") {
				row["outcome"] = "out of memory"
				oom++
			}
			r.env.Log("%s: task %d: %v", way, i, t.err)
		}
		rows = append(rows, row)
	}
	r.env.Log("%s, %s, run %d: makespan %.1fs, %d of %d out of memory, %.0f %% of the memory used", s.name, way, run, last, oom, len(tasks), 100*memory)
	return rows
}
