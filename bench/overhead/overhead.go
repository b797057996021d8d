// Package overhead measures what an exporter costs a tenant: the step time of a PyTorch program with
// and without an exporter, in the same process.
package overhead

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter/task"
)

const about = `A PyTorch program in a container takes steps and times them itself: in turn 1,000 launches of a kernel
on 16 numbers and a synchronisation (small: bound by launching), and 40 multiplications of 4096² bf16
matrices (large); later, every 60 ms, 100 launches (paced: so few a second that each launch is watched,
see laxity.release=busy). Meanwhile an exporter is started and stopped, so that blocks with it and without it take
turns. Processes differ by some percent, more than the effect measured here, so a block is compared only with its
neighbours in the same process, and the thread that takes the steps stays on one core. Other load on the machine only makes
steps longer, so the fast steps of a block count: the lower decile. The ratio is the median over all pairs of adjacent
blocks of the ratio of their lower deciles. Medians are shown, too. The steps during which an exporter
starts or stops belong to no block. Several containers are watched with laxity.release=process, and as
many with laxity.release=busy, one after another; all are there from the start, and wait. An exporter
reads a new task more often than an old one, so this measures the most expensive part of a task's life.`

// without is the way of the blocks that nobody watches; the others are kinds of release.
const without = "without"

// releases are the ways in which a container is watched.
var releases = []string{string(task.ReleaseProcess), string(task.ReleaseBusy)}

// phases are those of the program that tell something of a way: with the first of them
// alone launches are not watched, however few they are.
func phases(release string) int {
	if release == string(task.ReleaseBusy) {
		return 2
	}
	return 1
}

// Experiment needs a real GPU and PyTorch.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "overhead", Title: "What a tenant pays for being watched", About: about, NeedsGPU: true,
		Settings: []bench.Setting{
			{Name: "containers", Means: "containers of each kind of release; 3"},
			{Name: "blocks", Means: "blocks of each container and phase, the first of them not watched; 5"},
			{Name: "ms", Means: "how long a block is, milliseconds; 2000"},
			{Name: "settle", Means: "how long an exporter has followed the program when a block begins, milliseconds; 200"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

//go:embed steps.py
var torchSteps []byte

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	containers, plan, err := settings(env)
	if err != nil {
		return nil, err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	r, err := rig.Open(ctx, env, "overhead", 1)
	if err != nil {
		return nil, err
	}
	defer r.Close() // what is left has a label
	program, err := writeProgram(r.Dir, python, torchSteps)
	if err != nil {
		return nil, err
	}
	env.Log("%d containers start", containers*len(releases))
	subjects, err := program.startAll(ctx, r.Tenants, containers)
	if err != nil {
		return nil, err
	}
	for i, s := range subjects {
		container := i / len(releases)
		env.Log("container %d of %d: %s", container+1, containers, s.release)
		watch := func(ctx context.Context) (watch, error) { return watchWith(ctx, r, s.ID, s.release) }
		found, err := s.measure(ctx, plan, watch)
		for _, row := range found {
			row["container"] = float64(container)
			rows = append(rows, row)
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func settings(env bench.Env) (containers int, p plan, err error) {
	containers, p = 3, plan{blocks: 5, length: 2 * time.Second, settle: 200 * time.Millisecond}
	if env.Quick {
		containers, p.blocks, p.length = 1, 3, 500*time.Millisecond
	}
	if containers, err = env.Number("containers", 1, containers); err != nil {
		return 0, p, err
	}
	if p.blocks, err = env.Number("blocks", 2, p.blocks); err != nil {
		return 0, p, err
	}
	for name, d := range map[string]*time.Duration{"ms": &p.length, "settle": &p.settle} {
		ms, err := env.Number(name, 1, int(*d/time.Millisecond))
		if err != nil {
			return 0, p, err
		}
		*d = time.Duration(ms) * time.Millisecond
	}
	return containers, p, nil
}
