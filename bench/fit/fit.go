// Package fit measures how many containers with a limit of GPU memory fit beside each other (P5).
package fit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/workload"
)

const about = `A ballast container leaves 5 GiB of the card, as much as the paper's K20m has. Containers begin one after another: a program makes a
context, asks for 128 MiB again and again (--set every; the paper: 10 s) until it is refused, and keeps what it has. The next one begins once
the one before is refused, or waits. A container fits if it got one step at least and was refused, so that it waits for nothing; at the first that does not, the
count ends. That is how we read "two more containers fit" in P5's poster. Default is without Laxity and without limits. With laxity each carries laxity.gpu-memory=1GiB, of
which the context takes a part; a container whose context has room, and whose limit has none, is not refused but waits. Then the first container ends,
and it is seen whether the one that did not fit gets its steps now. Exporter and actuator run without alerts and without arbitration: of Laxity the memory guard alone.`

// The ways that are compared.
const (
	without = "default"
	laxity  = "laxity"
)

var allWays = []string{without, laxity}

const step = 128 << 20

// Experiment is how many containers fit.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "fit", Title: "Containers with a limit of GPU memory that fit beside each other (P5)", About: about,
		Settings: []bench.Setting{
			{Name: "runs", Means: "how often each way is taken; 3", Part: true},
			{Name: "card", Means: "MiB that the ballast leaves; 5120"},
			{Name: "limit", Means: "MiB, the limit of each container; 1024"},
			{Name: "every", Means: "from one step to the next, as 10s in the paper; 200ms"},
			{Name: "quiet", Means: "how long a container that waits says nothing, beyond a step; 5s"},
			{Name: "containers", Means: "the most that begin; 12"},
			rig.Engine,
			{Name: "verbose", Means: "any value: the logs of exporter and actuator on the standard error", Part: true},
		},
		Portions: true, Run: run, Figures: figures, Table: table,
	}
}

// settings are what --set says.
type settings struct {
	runs, card, limit, containers int
	every, quiet                  time.Duration
}

func parse(env bench.Env) (s settings, err error) {
	s = settings{runs: 3, card: 5120, limit: 1024, containers: 12, every: 200 * time.Millisecond, quiet: 5 * time.Second}
	if env.Quick {
		s.runs, s.quiet = 1, 2*time.Second
	}
	for name, to := range map[string]*int{"runs": &s.runs, "card": &s.card, "limit": &s.limit, "containers": &s.containers} {
		if *to, err = env.Number(name, 1, *to); err != nil {
			return s, err
		}
	}
	for name, to := range map[string]*time.Duration{"every": &s.every, "quiet": &s.quiet} {
		if *to, err = env.Duration(name, *to); err != nil {
			return s, err
		}
	}
	return s, nil
}

//go:embed src/grow.c
var source []byte

// measurement is what all runs use.
type measurement struct {
	*rig.Rig
	env     bench.Env
	how     settings
	program string
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	how, err := parse(env)
	if err != nil {
		return nil, err
	}
	program, err := cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "grow", Source: source, Flags: []string{"-ldl"}})
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "fit", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Ballast(ctx, uint64(how.card)<<20); err != nil { //nolint:gosec // it is from 1 on
		return nil, err
	}
	args := map[string]string{"swap": "off"} // who waits is to wait
	maps.Copy(args, env.Args)
	env.Args = args
	m := &measurement{r, env, how, program}
	return env.Repeat(how.runs, func(number int) (found []bench.Row, err error) {
		for _, way := range allWays {
			more, err := m.count(ctx, number, way)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
		return found, nil
	})
}

// count starts containers by a way until one does not fit.
func (m *measurement) count(ctx context.Context, number int, way string) (rows []bench.Row, err error) {
	var all []*grower
	defer func() {
		for _, g := range all {
			err = errors.Join(err, g.Remove())
		}
	}()
	if way == laxity {
		stop, err := m.Guard(ctx, m.env, config.Config{Arbitrate: config.Never})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	reading, err := m.Read(ctx)
	if err != nil {
		return nil, err
	}
	free := float64(reading.GPUs[0].MemoryTotal - reading.GPUs[0].MemoryUsed)
	fit := 0
	for len(all) == fit && fit < m.how.containers {
		g, err := m.start(ctx, number, way, fit)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
		if err := g.follow(ctx, m.how.every+m.how.quiet); err != nil {
			return nil, err
		}
		if g.fits() {
			fit++
		}
		rows = append(rows, bench.Row{"way": way, "run": number, "container": len(rows), "steps": g.steps, "outcome": g.outcome, "free": free})
	}
	if last := all[len(all)-1]; !last.fits() && len(all) > 1 {
		before := last.steps
		if err := all[0].Remove(); err != nil {
			return nil, err
		}
		if err := last.follow(ctx, m.how.every+m.how.quiet); err != nil {
			return nil, err
		}
		rows[len(rows)-1]["later"] = last.steps - before
	}
	m.env.Log("run %d, %s: %d fit in %.0f MiB, steps of each: %s", number, way, fit, free/(1<<20), stepsOf(rows))
	return rows, nil
}

// grower is a container with the program.
type grower struct {
	*tenant.Tenant
	steps   int
	outcome string
}

func (g *grower) fits() bool { return fits(g.steps, g.outcome) }

// fits reports whether a container with so many steps has what it may have, and waits for nothing.
func fits(steps int, outcome string) bool { return steps > 0 && outcome == refused }

// The outcomes.
const (
	refused   = "refused"
	noContext = "no context" // that alone was refused
	waits     = "waits"      // it has said nothing for long
)

func (m *measurement) start(ctx context.Context, number int, way string, i int) (*grower, error) {
	spec := tenant.Spec{
		Name: fmt.Sprintf("laxity-bench-fit-%d-%d-%s-%d", os.Getpid(), number, way, i), Program: m.program, Labels: map[string]string{},
		Args: []string{strconv.Itoa(step), strconv.FormatFloat(m.how.every.Seconds(), 'g', -1, 64)},
	}
	if way == laxity {
		spec.Labels[task.LabelGPUMemory] = strconv.Itoa(m.how.limit << 20)
	}
	t, err := m.Tenants.Start(ctx, spec)
	return &grower{Tenant: t}, err
}

// follow returns when the container is refused, or has got nothing for so long.
func (g *grower) follow(ctx context.Context, quiet time.Duration) error {
	seen, last := 0, time.Now()
	return bench.Until(ctx, time.Hour, func() (bool, error) {
		events, err := g.Timeline(ctx)
		if err != nil {
			return false, err
		}
		if len(events) > seen {
			seen, last = len(events), time.Now()
		}
		g.steps, g.outcome = readEvents(events)
		if g.outcome == waits && time.Since(last) >= quiet {
			_, err := g.PID(ctx) // a program that has ended does not wait
			return true, err
		}
		return g.outcome != waits, nil
	})
}

// readEvents reads how many steps the program got, and what became of it.
func readEvents(events []workload.Event) (steps int, outcome string) {
	context := false
	for _, e := range events {
		switch e.Name {
		case "context":
			context = true
		case "step":
			steps++
		case refused:
			if context {
				return steps, refused
			}
			return steps, noContext
		}
	}
	return steps, waits
}
