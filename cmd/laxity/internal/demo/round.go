package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/exporter/task"
)

// names of the three tenants: the first has the earliest deadline.
var names = [tasks]string{"red", "green", "blue"}

// seenWithin is how long the exporter may take to see the end of tasks that have ended.
var seenWithin = 10 * time.Second

// round runs the three tasks at once and returns their results, as the exporter saw them.
func (d *demo) round(ctx context.Context, title string, arbitrate config.Arbitration, z size) (Round, error) {
	d.say.line("\n%s", title)
	d.config <- config.Config{Policy: d.o.Policy, Arbitrate: arbitrate}
	if err := d.stack.Actuator.Reload(ctx); err != nil {
		return Round{}, err
	}
	prefix := d.name(string(arbitrate)) + "-"
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	ours := func(name string) bool { return strings.HasPrefix(name, prefix) }
	d.say.begin(prefix)
	printed, ended := d.report(watchCtx, ours)

	deadlines := map[string]task.Seconds{}
	var all []*tenant.Tenant // created before the first one starts, so that they overlap
	for i, name := range names {
		// Enough for the work of the tasks before it, and a third more.
		deadline := time.Duration((float64(i) + 1.3) * z.alone * float64(time.Second)).Round(100 * time.Millisecond)
		deadlines[name] = task.SecondsOf(deadline)
		t, err := d.runner.Create(ctx, tenant.Spec{
			Name: prefix + name, Args: d.args(z.kernels),
			Labels: map[string]string{task.LabelDeadline: deadline.String()},
		})
		if err != nil {
			return Round{}, err
		}
		defer t.Remove() //nolint:errcheck // Close removes it again
		all = append(all, t)
	}
	var running errgroup.Group
	for _, t := range all {
		if err := t.Start(ctx); err != nil {
			return Round{}, err
		}
		running.Go(func() error { return t.Wait(ctx) })
	}
	if err := running.Wait(); err != nil {
		return Round{}, err
	}
	select {
	case <-ended: // the exporter has seen all three end
	case <-time.After(seenWithin):
		return Round{}, errors.New("the exporter has not seen the end of all tasks; start with --log.level=debug to see why")
	case <-ctx.Done():
		return Round{}, context.Cause(ctx)
	}
	d.rank(ctx, "Ranking of the nodes after it")
	stop()
	<-printed
	return newRound(title, d.stack.Exporter.Snapshot(), prefix, deadlines)
}

// report prints what happens to our tasks until ctx ends. ended is closed when as many tasks as
// there are tenants have ended and none is unfinished.
func (d *demo) report(ctx context.Context, ours func(string) bool) (printed, ended chan struct{}) {
	printed, ended = make(chan struct{}), make(chan struct{})
	snapshots := d.stack.Exporter.Watch(ctx)
	first := d.stack.Actuator.Decisions()
	past, _ := first.Last(0)
	var last uint64
	if len(past) > 0 {
		last = past[len(past)-1].Sequence
	}
	decisions := first.Watch(ctx, last)
	go func() {
		defer close(printed)
		var teller event.Teller
		ranked, done := false, false
		for snapshots != nil || decisions != nil {
			select {
			case s, ok := <-snapshots:
				if !ok {
					snapshots = nil
					continue
				}
				for _, e := range teller.See(s, time.Now()) {
					if ours(e.Container) {
						d.say.happened(e.Time, e.Container, e.Text)
					}
				}
				unfinished, finished := count(s, ours)
				if !ranked && unfinished == tasks {
					ranked = true
					d.rank(ctx, "Ranking of the nodes meanwhile")
				}
				if !done && unfinished == 0 && finished == tasks {
					done = true
					close(ended)
				}
			case x, ok := <-decisions:
				if !ok {
					decisions = nil
					continue
				}
				if ours(x.Container) {
					d.say.decided(x)
				}
			}
		}
	}()
	return printed, ended
}

func count(s *task.Snapshot, ours func(string) bool) (unfinished, finished int) {
	for _, t := range s.Tasks {
		if ours(t.Container) {
			unfinished++
		}
	}
	for _, t := range s.Ended {
		if ours(t.Container) {
			finished++
		}
	}
	return unfinished, finished
}

// rank prints the ranking, with a query that a person can type.
func (d *demo) rank(ctx context.Context, title string) {
	const query = "sort_desc(max by (node) (gpu_memory_free_bytes))"
	now := time.Now()
	if err := d.stack.Engine.Evaluate(ctx); err != nil {
		d.say.line("  ranking: %v", err)
		return
	}
	scores, err := d.stack.Engine.Query(ctx, query, now)
	if err != nil {
		d.say.line("  ranking: %v", err)
		return
	}
	for i, s := range scores {
		node := string(s.Metric["node"])
		value := func(series string) float64 {
			v, err := d.stack.Engine.Query(ctx, fmt.Sprintf("max(%s{node=%q})", series, node), now)
			if err != nil || len(v) != 1 {
				return -1
			}
			return float64(v[0].Value)
		}
		d.say.line("  %s: %d. %s  open %v, memory free %.1f GiB, work that is due %.1fs", title, i+1, node,
			value("gpu_open") == 1, float64(s.Value)/(1<<30), value("gpu_demand_seconds"))
	}
}
