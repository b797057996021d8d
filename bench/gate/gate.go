// Package gate measures the launch gate: whether a kernel slips through, and how
// long holding and letting go take.
package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
)

const about = `Containers with several short GPU tasks each, some at once, under the launch gate with a bare
"first come, first served, one at a time". Each launch is stopped, seen stopped by another process,
and let go in turn. A kernel slipped through if a launch was not stopped, or if its synchronising
call returned sooner after its admission than half of what the kernel takes alone. The alternative
in the same run pauses each container through Docker at first sight in the exporter, keeps it for a
moment and unpauses it.`

// Ways that are compared.
const (
	gated  = "launch gate"
	paused = "docker pause at first sight"
	alone  = "alone"
)

// Experiment is the launch gate.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "gate", Title: "The launch gate: slips, and the time it takes to hold and to let go", About: about,
		Settings: []bench.Setting{
			{Name: "processes", Means: "how many processes each way; 25"},
		},
		Run: run, Figures: figures, Table: table, Charts: charts,
	}
}

// setup is what all ways use.
type setup struct {
	env     bench.Env
	dir     string
	gpu     *bench.GPU
	tenants *tenant.Runner
	proc    container.Proc
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	if _, err := gate.Check(); err != nil {
		return nil, fmt.Errorf("this machine cannot gate: %w", err)
	}
	processes, repeats, pauses, atOnce := 25, 8, 20, 4
	if env.Quick {
		processes, pauses = 5, 5
	}
	processes, err := env.Number("processes", 1, processes)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "gate", 1)
	if err != nil {
		return nil, err
	}
	defer r.Close() // what is left has a label
	s := &setup{env: env, dir: r.Dir, gpu: r.GPU, tenants: r.Tenants, proc: "/proc"}
	kernel, rows, err := s.alone(ctx, repeats)
	if err != nil {
		return rows, err
	}
	env.Log("a kernel alone takes %.1f ms", 1e3*kernel)
	more, err := s.gated(ctx, processes, repeats, atOnce, kernel)
	rows = append(rows, more...)
	if err != nil {
		return rows, err
	}
	more, err = s.paused(ctx, pauses)
	return append(rows, more...), err
}

// args of the workload: one kernel of about 25 ms a task.
func (s *setup) args(repeats int) []string {
	return []string{"--n", strconv.Itoa(s.gpu.N(4096)), "--kernels", "1", "--repeat", strconv.Itoa(repeats), "--gap", "0.01"}
}

// alone measures the kernel without anybody else.
func (s *setup) alone(ctx context.Context, repeats int) (kernel float64, rows []bench.Row, err error) {
	t, err := s.tenants.Start(ctx, tenant.Spec{Name: fmt.Sprintf("laxity-bench-gate-%d-alone", os.Getpid()), Args: s.args(repeats)})
	if err != nil {
		return 0, nil, err
	}
	defer t.Remove() //nolint:errcheck // Close tries again
	if err := t.Wait(ctx); err != nil {
		return 0, nil, err
	}
	events, err := t.Timeline(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, p := range pair(events) {
		rows = append(rows, bench.Row{"way": alone, "kernel": p.end.Sub(p.launch).Seconds()})
	}
	return bench.Median(bench.Column(rows, "kernel", nil)), rows, nil
}

// gated lets processes queue at the gate.
func (s *setup) gated(ctx context.Context, processes, repeats, atOnce int, kernel float64) (rows []bench.Row, err error) {
	name := gate.Name(s.dir)
	var mu sync.Mutex
	g, err := gate.New(gate.Options{Name: name, Container: s.proc.OfPID, Attached: func(_ int, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		rows = append(rows, bench.Row{"way": gated, "attach": took.Seconds()})
	}})
	if err != nil {
		return nil, err
	}
	gateCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(gateCtx) }()
	queue := newQueue(g)
	served := make(chan struct{})
	go func() { defer close(served); queue.serve(gateCtx) }()
	defer func() {
		cancel()
		<-served
		_, lerr := gate.LetGo(context.WithoutCancel(ctx), gate.LetGoOptions{Name: name})
		err = errors.Join(err, <-ended, lerr, gate.Forget(name))
	}()

	slots := make(chan struct{}, atOnce)
	var failed []error
	var wait sync.WaitGroup
	for i := range processes {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			more, terr := s.one(ctx, queue, i, repeats, kernel)
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, more...)
			if terr != nil {
				failed = append(failed, terr)
			}
		})
	}
	wait.Wait()
	return rows, errors.Join(failed...)
}

// one is one container at the gate.
func (s *setup) one(ctx context.Context, q *queue, number, repeats int, kernel float64) ([]bench.Row, error) {
	t, err := s.tenants.Start(ctx, tenant.Spec{Name: fmt.Sprintf("laxity-bench-gate-%d-%d", os.Getpid(), number), Args: s.args(repeats)})
	if err != nil {
		return nil, err
	}
	defer t.Remove() //nolint:errcheck // Close tries again
	q.add(ctx, t)
	defer q.remove(t.ID)
	if err := t.Wait(ctx); err != nil {
		return nil, err
	}
	events, err := t.Timeline(ctx)
	if err != nil {
		return nil, err
	}
	return compare(pair(events), q.stays(t.ID), kernel), nil
}

// paused pauses containers at first sight.
func (s *setup) paused(ctx context.Context, count int) (rows []bench.Row, err error) {
	e, err := exporter.New(exporter.Options{Device: s.gpu.Device, Keep: s.tenants.Made})
	if err != nil {
		return nil, err
	}
	exporterCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(exporterCtx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	j, err := journal.Open(filepath.Join(s.dir, "journal"))
	if err != nil {
		return nil, err
	}
	engine, err := docker.Dial("")
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	pauser, err := docker.New(docker.Options{Engine: engine, Journal: j})
	if err != nil {
		return nil, err
	}
	for i := range count {
		row, err := s.pauseOne(ctx, e, pauser, i)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
