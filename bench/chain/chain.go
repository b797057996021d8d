// Package chain measures the time from a task's start to the pause of its container: through a stock
// Prometheus and Alertmanager, and through the stream of snapshots.
package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const about = `One container computes without end; another one repeatedly starts a GPU task and must wait. The way by
the alert: the exporter's metrics, a stock Prometheus that scrapes and evaluates
every 100 ms, a stock Alertmanager, the actuator's webhook. The fast way is the stream of snapshots,
while an arbitration is open. Either way the container is paused as soon as it uses GPU memory,
which the device lists some 0.15 s after its context is made. The clocks are the program's own, for its cuInit, and the Docker
engine's, for its pause event.`

// way is one way from a task to a pause.
type way struct {
	name      string
	arbitrate string // of the actuator
	monitored bool
}

var ways = []way{
	{"alert: Prometheus, Alertmanager", "auto", true},
	{"fast: the stream of snapshots", "always", false},
}

// Experiment is the latency of the chain.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "chain", Title: "From a task's start to its pause: by the alert, and the fast way", About: about,
		Settings: []bench.Setting{
			{Name: "samples", Means: "how many pauses of each way; 40"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	samples := 40
	if env.Quick {
		samples = 3
	}
	if samples, err = env.Number("samples", 1, samples); err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "chain", 1)
	if err != nil {
		return nil, err
	}
	defer r.Close() // what is left has a label
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	defer docker.Close() // read-only
	for i, w := range ways {
		m := &measurement{env: env, gpu: r.GPU, runner: r.Tenants, docker: docker, way: w, label: tenant.Label + "=" + r.Name}
		m.stack.dir = filepath.Join(r.Dir, strconv.Itoa(i))
		if err := os.Mkdir(m.stack.dir, 0o755); err != nil {
			return rows, err
		}
		more, err := m.run(ctx, samples)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return rows, nil
}

// measurement is one way's.
type measurement struct {
	env    bench.Env
	gpu    *bench.GPU
	runner *tenant.Runner
	docker *client.Client
	way    way
	label  string
	stack  stack
}

func (m *measurement) run(ctx context.Context, samples int) (rows []bench.Row, err error) {
	defer func() { err = errors.Join(err, m.stack.close()) }()
	if err := m.stack.reserve(ctx); err != nil {
		return nil, err
	}
	// One at a time, in the order of their starts: whoever comes second is held.
	if err := m.stack.laxity(ctx, m.gpu, m.label, "--policy=fifo", "--share=one", "--arbitrate="+m.way.arbitrate, "--hold=pause"); err != nil {
		return nil, err
	}
	if m.way.monitored {
		if err := m.stack.monitoring(ctx); err != nil {
			return nil, err
		}
	}
	resident, err := m.start(ctx, "resident", "--kernels", "100000")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resident.Remove()) }()
	m.env.Log("%s: %d samples", m.way.name, samples)
	for i := range samples + 1 {
		if err := m.quiet(ctx); err != nil {
			return rows, err
		}
		took, err := m.sample(ctx, i)
		if err != nil {
			return rows, err
		}
		if i > 0 { // Prometheus takes seconds to begin to scrape
			rows = append(rows, bench.Row{"way": m.way.name, "seconds": took.Seconds()})
		}
	}
	return rows, nil
}

// quiet waits until only the resident task is there and no alert is open.
func (m *measurement) quiet(ctx context.Context) error {
	return m.stack.until(ctx, "one task, no alert open", func(s state.State) bool {
		return len(s.GPUs) == 1 && s.GPUs[0].Tasks == 1 && len(s.Leases) == 0
	})
}

// sample starts the container that has to wait and waits for its pause.
func (m *measurement) sample(ctx context.Context, i int) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name := m.name(strconv.Itoa(i))
	messages, failed := m.docker.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", "container"), filters.Arg("container", name), filters.Arg("event", "pause"))})
	// Its host phase is long: it is paused before its launch.
	late, err := m.start(ctx, strconv.Itoa(i), "--kernels", "1", "--host-seconds", "5")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, late.Remove()) }()
	select {
	case e := <-messages:
		begin, err := m.began(ctx, late)
		return time.Unix(0, e.TimeNano).Sub(begin), err
	case err := <-failed:
		return 0, fmt.Errorf("no pause of %s was seen: %w", name, err)
	}
}

// began is the moment from which on time counts: the program's cuInit.
func (m *measurement) began(ctx context.Context, t *tenant.Tenant) (time.Time, error) {
	return m.said(ctx, t, "init")
}

// said is the moment of a program's event.
func (m *measurement) said(ctx context.Context, t *tenant.Tenant, event string) (time.Time, error) {
	all, err := t.Timeline(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for _, e := range all {
		if e.Name == event {
			return e.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("container %s did not come to its %q", t.Name, event)
}

func (m *measurement) name(suffix string) string {
	return fmt.Sprintf("laxity-bench-chain-%d-%s", os.Getpid(), suffix)
}

func (m *measurement) start(ctx context.Context, suffix string, args ...string) (*tenant.Tenant, error) {
	return m.runner.Start(ctx, tenant.Spec{
		Name: m.name(suffix), Labels: map[string]string{task.LabelDeadline: "1h"},
		Args: append([]string{"--n", strconv.Itoa(m.gpu.N(4096))}, args...),
	})
}

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for i, name := range []string{"chain_latency", "fast_latency"} {
		v := bench.Column(rows, "seconds", func(r bench.Row) bool { return r.Str("way") == ways[i].name })
		for _, q := range []struct {
			name string
			of   float64
		}{{"median", 0.5}, {"p95", 0.95}} {
			f := bench.Figure{Name: name + "_" + q.name + "_ms", Value: 1000 * bench.Quantile(v, q.of), Unit: "ms", Runs: len(v)}
			if i > 0 {
				f.Against = ways[0].name
				f.Ratio = f.Value / out[len(out)-2*i].Value
			}
			out = append(out, f)
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"WAY", "MEDIAN ms", "p95", "MAX", "SAMPLES"}}
	for _, w := range ways {
		v := bench.Column(rows, "seconds", func(r bench.Row) bool { return r.Str("way") == w.name })
		of := func(q float64) string { return bench.Number(1000 * bench.Quantile(v, q)) }
		lines = append(lines, []string{w.name, of(0.5), of(0.95), of(1), strconv.Itoa(len(v))})
	}
	return lines
}
