package guard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

// What is trained.
const (
	normal  = "training step"
	noCache = "training step, PYTORCH_NO_CUDA_MEMORY_CACHING=1"
)

// apart is added where each way has a process of its own.
const apart = ", a process for each way"

// roomy is a limit that nobody reaches, bytes.
const roomy = 64 * limit

const (
	turn = 2 * time.Second
	// settled is how long after a change of ways steps belong to neither: probes are
	// put on and taken off meanwhile.
	settled = 500 * time.Millisecond
)

// phase is a time in which the guard was on or off.
type phase struct {
	way        string
	begin, end time.Time
}

// costs measures what training pays.
func (b *bed) costs(parent context.Context) (rows []bench.Row) {
	for _, c := range []struct {
		name, env string
		turns     int // with and without the guard, one after another in one process
		processes int // for each way, where each has its own
	}{{normal, "", 40, 5}, {noCache, "PYTORCH_NO_CUDA_MEMORY_CACHING=1", 10, 2}} {
		if b.env.Quick {
			c.turns, c.processes = 2, 1
		}
		b.env.Log("cost: %s", c.name)
		ctx, cancel := context.WithTimeout(parent, caseTime+time.Duration(c.turns)*turn)
		found, err := b.cost(ctx, c.name, c.env, c.turns)
		cancel()
		rows = append(rows, b.orError(c.name, found, err)...)
		if b.hami != "" {
			found, err := b.costApart(parent, c.name+apart, c.env, c.processes)
			rows = append(rows, b.orError(c.name+apart, found, err)...)
		}
	}
	return rows
}

// orError adds a row that says what failed.
func (b *bed) orError(name string, rows []bench.Row, err error) []bench.Row {
	if err == nil {
		return rows
	}
	b.env.Log("%s: %v", name, err)
	return append(rows, bench.Row{"subject": name, "error": err.Error()})
}

// costApart measures training in a process for each way, one after another, as often as repeats says.
func (b *bed) costApart(ctx context.Context, name, env string, repeats int) (rows []bench.Row, err error) {
	ways := []string{without, guarded, hamiCore}
	for i := range max(1, repeats) {
		for _, way := range bench.Turned(ways, i) {
			b.env.Log("cost, %s: %s, %d of %d", name, way, i+1, repeats)
			found, err := b.train(ctx, name, way, env)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", way, err)
			}
			rows = append(rows, found...)
		}
	}
	return rows, nil
}

// train runs a training in one way, and returns its row.
func (b *bed) train(ctx context.Context, name, way, env string) ([]bench.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*caseTime)
	defer cancel()
	t, pid, err := b.start(ctx, []string{b.python, filepath.Join(b.dir, "train.py"), fmt.Sprint((2 * turn).Seconds())}, way, roomy, env)
	if err != nil {
		return nil, err
	}
	defer t.Remove() //nolint:errcheck // the runner removes it again
	if way == guarded {
		b.guard.Cover([]memory.Target{{ID: t.ID, PID: pid, GPUs: []string{b.gpu}, Limit: roomy}})
		defer b.guard.Cover(nil)
	}
	if err := t.Wait(ctx); err != nil {
		return nil, err
	}
	text, err := t.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	always := []phase{{way, time.Unix(0, 0), time.Now().Add(time.Hour)}}
	rows, err := stepTimes(text, name, always)
	if err == nil && len(rows) == 0 {
		err = errors.New("it made no step")
	}
	return rows, err
}

func (b *bed) cost(ctx context.Context, name, env string, turns int) ([]bench.Row, error) {
	length := time.Duration(turns)*turn + settled
	t, pid, err := b.start(ctx, []string{b.python, filepath.Join(b.dir, "train.py"), fmt.Sprint(length.Seconds())}, guarded, roomy, env)
	if err != nil {
		return nil, err
	}
	defer t.Remove() //nolint:errcheck // the runner removes it again
	if err := ready(ctx, t); err != nil {
		return nil, err
	}
	defer b.guard.Cover(nil)
	var phases []phase
	for i := range turns {
		p := phase{without, time.Now(), time.Time{}}
		b.guard.Cover(nil)
		if i%2 == 1 {
			p.way = guarded
			b.guard.Cover([]memory.Target{{ID: t.ID, PID: pid, GPUs: []string{b.gpu}, Limit: roomy}})
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(turn):
		}
		if report := b.guard.Report()[t.ID]; p.way == guarded && len(report.PIDs) == 0 {
			return nil, fmt.Errorf("the program is not guarded: %+v", report)
		}
		p.begin, p.end = p.begin.Add(settled), time.Now()
		phases = append(phases, p)
	}
	if err := t.Wait(ctx); err != nil {
		return nil, err
	}
	text, err := t.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	return stepTimes(text, name, phases)
}

// ready waits for the program to have warmed up.
func ready(ctx context.Context, t *tenant.Tenant) error {
	for {
		text, err := t.Stdout(ctx)
		if err != nil || strings.Contains(text, "ready\n") {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), t.Wait(context.WithoutCancel(ctx)))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stepTimes sorts the steps that train.py told by the phases they fell into: a row
// for each phase.
func stepTimes(text, name string, phases []phase) (rows []bench.Row, err error) {
	took := make([][]float64, len(phases))
	for line := range strings.Lines(text) {
		if line == "ready\n" {
			continue
		}
		var began, seconds float64
		if _, err := fmt.Sscan(line, &began, &seconds); err != nil {
			return nil, fmt.Errorf("%w in %q", err, line)
		}
		begin := time.Unix(0, int64(began*1e9))
		for i, p := range phases {
			if begin.After(p.begin) && begin.Add(time.Duration(seconds*1e9)).Before(p.end) {
				took[i] = append(took[i], seconds)
			}
		}
	}
	for i, p := range phases {
		if len(took[i]) > 0 {
			rows = append(rows, bench.Row{"way": p.way, "subject": name, "step_s": bench.Median(took[i]), "steps": len(took[i])})
		}
	}
	return rows, nil
}
