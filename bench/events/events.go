// Package events measures how late starts and ends of GPU tasks are seen from outside, and whether all
// are: P1's Table 2.
package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/papers"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/workload"
)

const about = `Containers with one GPU task each start at random times, a few at once. Each task stamps the
moment before its first CUDA call and the moment after its last one; the exporter (from outside)
and the papers' monitor (nvidia-smi and docker top, pass after pass) watch the same containers in
the same run. The error is the time seen minus the time stamped: positive is late. Half of
the tasks destroy their context before they end, as P1's do; the others leave that to their exit.`

// Ways that are compared.
const (
	laxity = "laxity"
	passes = "nvidia-smi + docker top"
)

// Experiment is P1's Table 2.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "events", Title: "Start and end of GPU tasks, seen from outside (P1, Table 2)", About: about,
		Settings: []bench.Setting{
			{Name: "tasks", Means: "how many tasks; 200"},
			{Name: "sensor", Means: "which sensor of starts: auto, uprobe, fanotify or device; auto"},
		},
		Run: run, Figures: figures, Table: table, Charts: charts,
	}
}

// OnTwoGPUs is the same with tasks on two GPUs in turn: is each one's GPU the
// right one?
func OnTwoGPUs() bench.Experiment {
	e := Experiment()
	e.Name, e.Title = "events-2gpus", "The same on two GPUs: which one a task used"
	e.About += `
After them, containers of several processes, and of processes on both GPUs: each task's GPUs, and the
container's memory on each GPU, must be what the program allocates there, with a context for each process.`
	e.Run = func(ctx context.Context, env bench.Env) ([]bench.Row, error) { return measure(ctx, env, 2) }
	return e
}

// numbering has CUDA number the GPUs as NVML does.
const numbering = "CUDA_DEVICE_ORDER=PCI_BUS_ID"

// truth is one task as it tells of itself.
type truth struct {
	name       string
	destroys   bool
	start, end time.Time
	gpu        string // as the program was told to use, by index; for several GPUs
	err        error
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) { return measure(ctx, env, 1) }

func measure(ctx context.Context, env bench.Env, gpus int) ([]bench.Row, error) {
	count, atOnce := 200, 6
	if env.Quick {
		count, atOnce = 24, 4
	}
	count, err := env.Number("tasks", 1, count)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "events", gpus)
	if err != nil {
		return nil, err
	}
	defer r.Close() // what is left has a label
	watched, err := exporter.New(exporter.Options{Device: r.GPU.Device, Sensor: env.Args["sensor"], StateDir: filepath.Join(r.Dir, "state"), MaxEnded: 2*count + 10,
		Keep: r.Tenants.Made})
	if err != nil {
		return nil, err
	}

	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	watchers.Go(func() { _ = watched.Run(watchCtx) })
	<-watched.Ready()
	env.Log("sensor in use: %s %s", watched.Snapshot().Health.Sensor, watched.Snapshot().Health.SensorReason)
	baseline, err := papers.New("", r.GPU.Reader)
	if err != nil {
		return nil, err
	}
	defer baseline.Close() // likewise
	var sightings []papers.Sighting
	var took []time.Duration
	var baselineErr error
	watchers.Go(func() { sightings, took, baselineErr = baseline.Watch(watchCtx) })

	truths := tasks(ctx, env, r.Tenants, plan{count: count, atOnce: atOnce, gpus: gpus, n: r.GPU.N(1024)})
	// The last ends: the slowest watcher gets two passes more.
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	ended := watched.Snapshot()
	var shown []bench.Row
	if gpus > 1 {
		if shown, err = showShapes(ctx, env, r.Tenants, watched); err != nil {
			return nil, err
		}
	}
	stop()
	watchers.Wait()
	if baselineErr != nil {
		return nil, baselineErr
	}
	all, err := rows(truths, ended, sightings, took)
	return append(all, shown...), err
}

// plan says what the tasks are like.
type plan struct{ count, atOnce, gpus, n int }

// tasks runs all tasks and returns what they stamped.
func tasks(ctx context.Context, env bench.Env, runner *tenant.Runner, p plan) []truth {
	random := rand.New(rand.NewPCG(env.Seed, 1))
	slots := make(chan struct{}, p.atOnce)
	truths := make([]truth, p.count)
	var all sync.WaitGroup
	for i := range truths {
		wait := time.Duration(random.ExpFloat64() * float64(150*time.Millisecond))
		kernels := 1 + random.IntN(60)
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			truths[i].err = ctx.Err()
			continue
		}
		time.Sleep(wait) // random times are what the experiment is about
		all.Go(func() {
			defer func() { <-slots }()
			truths[i] = one(ctx, runner, p, i, kernels)
		})
		if (i+1)%50 == 0 {
			env.Log("%d of %d tasks", i+1, p.count)
		}
	}
	all.Wait()
	return truths
}

func one(ctx context.Context, runner *tenant.Runner, p plan, i, kernels int) truth {
	device := i % p.gpus
	t := truth{name: fmt.Sprintf("laxity-bench-events-%d-%d", os.Getpid(), i), destroys: i%2 == 0, gpu: strconv.Itoa(device)}
	args := []string{"--n", strconv.Itoa(p.n), "--kernels", strconv.Itoa(kernels), "--device", t.gpu}
	if t.destroys {
		args = append(args, "--destroy")
	}
	c, err := runner.Start(ctx, tenant.Spec{Name: t.name, Args: args,
		Env:    []string{numbering},
		Labels: map[string]string{task.LabelDeadline: "10s"}})
	if err != nil {
		t.err = err
		return t
	}
	defer c.Remove() //nolint:errcheck // the runner removes it again
	if t.err = c.Wait(ctx); t.err != nil {
		return t
	}
	var events []workload.Event
	if events, t.err = c.Timeline(ctx); t.err != nil {
		return t
	}
	for _, e := range events {
		switch e.Name {
		case "init_begin":
			t.start = e.Time
		case "exit":
			t.end = e.Time
		}
	}
	if t.start.IsZero() || t.end.IsZero() {
		t.err = fmt.Errorf("task %s did not stamp its start and end", t.name)
	}
	return t
}
