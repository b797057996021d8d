package arbitrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/exporter/task"
)

// job is one task of a run.
type job struct {
	number int // from 1, by deadline in the set deadlines
	kind
	deadline float64 // seconds after its start; 0 without
	after    float64 // seconds after the first moment at which it begins, with a deadline
	tenant   *tenant.Tenant
	times    times
	err      error
}

// round runs n tasks of a set once and returns a row for each.
func (m *measurement) round(ctx context.Context, s set, n, run int, way string) (rows []bench.Row, err error) {
	host, stop, err := m.prepare(ctx, s, way)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	jobs := s.jobs(n, rand.New(rand.NewPCG(m.env.Seed, uint64(run))))
	begin, err := m.newSignal()
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, inParallel(jobs, func(j *job) error {
			if j.tenant == nil {
				return nil
			}
			return j.tenant.Remove()
		}))
	}()
	err = inParallel(jobs, func(j *job) (err error) {
		name := fmt.Sprintf("laxity-bench-arbitrate-%d-%s-%s-%d-%d", os.Getpid(), s.name, way, run, j.number)
		spec := m.spec(j.kind, name, j.deadline, host)
		if s.due != nil {
			begin.to(&spec, j.after)
		}
		j.tenant, err = m.Tenants.Create(ctx, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	switch {
	case way == oneByOne:
		for _, j := range jobs {
			j.run(ctx)
		}
	case s.due != nil:
		err = startOnTime(ctx, jobs, begin)
	default:
		startTogether(ctx, jobs)
	}
	if err = errors.Join(err, readTimes(ctx, jobs)); err != nil {
		return nil, err
	}
	return rowsOf(s, way, run, jobs), nil
}

// simInit is how long cuInit takes on a simulated GPU, seconds.
const simInit = "0.15"

// spec is what one container is to be.
func (m *measurement) spec(k kind, name string, deadline float64, host tenant.Spec) tenant.Spec {
	host.Name = name
	host.Mounts, host.Env = slices.Clone(host.Mounts), slices.Clone(host.Env)
	host.Args = []string{
		"--n", strconv.Itoa(m.GPU.N(k.n)), "--kernels", strconv.Itoa(k.kernels),
		"--host-seconds", fmt.Sprint(k.host), "--repeat", strconv.Itoa(max(1, k.repeat)), "--destroy",
	}
	if k.syncEach {
		host.Args = append(host.Args, "--sync-each")
	}
	if m.GPU.Simulated() {
		host.Env = append(host.Env, cuda.EnvInitSeconds+"="+simInit)
	}
	// With one of our labels or they would not be acted on.
	host.Labels = map[string]string{task.LabelClass: string(task.ClassBatch)}
	if deadline > 0 {
		host.Labels = map[string]string{task.LabelDeadline: fmt.Sprintf("%.3fs", deadline)}
	}
	return host
}

// readTimes reads the times of jobs that have ended.
func readTimes(ctx context.Context, jobs []*job) error {
	var errs []error
	for _, j := range jobs {
		if j.err == nil {
			j.times, j.err = timesOf(ctx, j.tenant)
		}
		errs = append(errs, j.err)
	}
	return errors.Join(errs...)
}

// alone measures one task of a kind without others; the first of three warms up.
func (m *measurement) alone(ctx context.Context, k kind) (alone, error) {
	var took, kernels []float64
	for i := range 3 {
		name := fmt.Sprintf("laxity-bench-arbitrate-%d-alone%s-%d", os.Getpid(), k.name, i)
		j := &job{}
		var err error
		if j.tenant, err = m.Tenants.Create(ctx, m.spec(k, name, 0, tenant.Spec{})); err != nil {
			return alone{}, err
		}
		j.run(ctx)
		if err = errors.Join(readTimes(ctx, []*job{j}), j.tenant.Remove()); err != nil {
			return alone{}, err
		}
		if i > 0 {
			took, kernels = append(took, j.times.exit-j.times.start), append(kernels, j.times.kernelsEnd-j.times.launch)
		}
	}
	return alone{bench.Median(took), bench.Median(kernels)}, nil
}

// times are the moments of a task that its program stamped, Unix seconds.
type times struct{ start, launch, kernelsEnd, exit float64 }

func timesOf(ctx context.Context, t *tenant.Tenant) (times, error) {
	events, err := t.Timeline(ctx)
	if err != nil {
		return times{}, err
	}
	var at times
	for _, e := range events {
		when := float64(e.Time.UnixMicro()) / 1e6
		switch e.Name {
		case "start":
			at.start = when
		case "launch":
			if at.launch == 0 { // the first round's
				at.launch = when
			}
		case "kernels_end":
			at.kernelsEnd = when
		case "exit":
			at.exit = when
		}
	}
	if at.start == 0 || at.launch == 0 || at.kernelsEnd == 0 || at.exit == 0 {
		return at, fmt.Errorf("container %s: its time line lacks a phase", t.Name)
	}
	return at, nil
}

// rowsOf returns a row for each job, by number.
func rowsOf(s set, way string, run int, jobs []*job) []bench.Row {
	begin := jobs[0].times.start
	for _, j := range jobs {
		begin = min(begin, j.times.start)
	}
	rows := make([]bench.Row, len(jobs))
	for _, j := range jobs {
		start := j.times.start
		if way == oneByOne {
			start = begin // it has waited since then
		}
		r := bench.Row{"way": way, "set": s.name, "n_tasks": len(jobs), "run": run, "task": j.number,
			"start": start, "end": j.times.exit, "took_s": j.times.exit - start,
			"launch_s": j.times.launch - start, "kernels_s": j.times.kernelsEnd - j.times.launch}
		if j.name != "" {
			r["kind"] = j.name
		}
		if s.filled {
			r["kernels"] = j.kernels
		}
		if j.deadline > 0 {
			r["deadline_s"], r["hit"] = j.deadline, r.Num("took_s") <= j.deadline
		}
		rows[j.number-1] = r
	}
	return rows
}
