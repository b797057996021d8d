package arbitrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

// arrivalGap is between the arrivals of two tasks with deadlines: short beside
// their host phase, so that all are there before the first one computes.
const arrivalGap = 50 * time.Millisecond

// job is one task of a run.
type job struct {
	number   int     // from 1, by deadline where there are deadlines
	deadline float64 // seconds after its start; 0 without
	tenant   *tenant.Tenant
	times    times
	err      error
}

// round runs n tasks of a set once and returns a row for each.
func (m *measurement) round(ctx context.Context, s set, n, run int, way string) (rows []bench.Row, err error) {
	host, stop, err := m.prepare(ctx, way)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	jobs := make([]*job, n)
	for i := range jobs {
		jobs[i] = &job{number: i + 1}
		if s.deadlines {
			jobs[i].deadline = s.deadline(i)
		}
	}
	if s.deadlines {
		// The same order for all ways of a run, another one for the next run.
		random := rand.New(rand.NewPCG(m.env.Seed, uint64(run)))
		random.Shuffle(n, func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	}
	defer func() {
		for _, j := range jobs {
			if j.tenant != nil {
				err = errors.Join(err, j.tenant.Remove())
			}
		}
	}()
	for _, j := range jobs {
		name := fmt.Sprintf("laxity-bench-arbitrate-%d-%s-%s-%d-%d", os.Getpid(), s.name, way, run, j.number)
		if j.tenant, err = m.tenants.Create(ctx, m.spec(s, name, j.deadline, host)); err != nil {
			return nil, err
		}
	}
	if err := m.compute(ctx, s, way, jobs); err != nil {
		return nil, err
	}
	return rowsOf(s, way, run, jobs), nil
}

// spec is what one container is to be.
func (m *measurement) spec(s set, name string, deadline float64, host tenant.Spec) tenant.Spec {
	host.Name = name
	host.Args = []string{
		"--n", strconv.Itoa(m.gpu.N(s.n)), "--kernels", strconv.Itoa(s.kernels),
		"--host-seconds", fmt.Sprint(s.host), "--destroy",
	}
	// With one of our labels or they would not be acted on.
	host.Labels = map[string]string{task.LabelClass: string(task.ClassBatch)}
	if deadline > 0 {
		host.Labels = map[string]string{task.LabelDeadline: fmt.Sprintf("%.3fs", deadline)}
	}
	return host
}

// compute starts the jobs as the way says and reads their times when all have
// ended.
func (m *measurement) compute(ctx context.Context, s set, way string, jobs []*job) error {
	var all sync.WaitGroup
	for i, j := range jobs {
		run := func() {
			if j.err = j.tenant.Start(ctx); j.err == nil {
				j.err = j.tenant.Wait(ctx)
			}
		}
		if way == oneByOne {
			run()
			continue
		}
		if s.deadlines && i > 0 {
			select {
			case <-time.After(arrivalGap):
			case <-ctx.Done():
			}
		}
		all.Go(run)
	}
	all.Wait()
	var errs []error
	for _, j := range jobs {
		if j.err == nil {
			j.times, j.err = timesOf(ctx, j.tenant)
		}
		errs = append(errs, j.err)
	}
	return errors.Join(errs...)
}

// alone measures one task of the set without others; the first of three warms up.
func (m *measurement) alone(ctx context.Context, s set) (alone, error) {
	var took, kernels []float64
	for i := range 3 {
		name := fmt.Sprintf("laxity-bench-arbitrate-%d-alone-%d", os.Getpid(), i)
		j := &job{}
		var err error
		if j.tenant, err = m.tenants.Create(ctx, m.spec(s, name, 0, tenant.Spec{})); err != nil {
			return alone{}, err
		}
		err = m.compute(ctx, set{}, oneByOne, []*job{j})
		if err = errors.Join(err, j.tenant.Remove()); err != nil {
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
			at.launch = when
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
			"kernels_s": j.times.kernelsEnd - j.times.launch}
		if j.deadline > 0 {
			r["deadline_s"], r["hit"] = j.deadline, r.Num("took_s") <= j.deadline
		}
		rows[j.number-1] = r
	}
	return rows
}
