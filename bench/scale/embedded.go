package scale

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/bench"
)

func measureEmbedded(ctx context.Context, env bench.Env, f *fleetOf) (rows []bench.Row, err error) {
	if env.NewEvaluator == nil {
		return nil, skipped("this program has no rule evaluator; use laxity-bench")
	}
	before, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		return nil, err
	}
	targets := make([]bench.EvaluatorTarget, f.nodes)
	for i := range targets {
		targets[i] = bench.EvaluatorTarget{Gatherer: f.gatherer(i), Job: "laxity-exporter", Instance: nodeName(i), Node: nodeName(i)}
	}
	evaluator, err := env.NewEvaluator(targets)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, evaluator.Close()) }()
	// The first evaluation makes the series, which no later one does again.
	for i := range f.evaluations + 1 {
		used, err := cpu([]int{os.Getpid()})
		if err != nil {
			return rows, err
		}
		ingest, rules, err := evaluator.Evaluate(ctx)
		if err != nil {
			return rows, err
		}
		now, err := cpu([]int{os.Getpid()})
		if err != nil {
			return rows, err
		}
		if i > 0 {
			rows = append(rows, bench.Row{"kind": "evaluation", "seconds": rules.Seconds(), "ingest_seconds": ingest.Seconds()},
				bench.Row{"kind": "evaluation CPU", "seconds": (now - used).Seconds()})
		}
	}
	debug.FreeOSMemory()
	after, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		return rows, err
	}
	rows = append(rows, bench.Row{"kind": "memory", "bytes": after.RSSAnon - before.RSSAnon})
	count, err := series(ctx, evaluator)
	if err != nil {
		return rows, err
	}
	rows = append(rows, count)

	source := prometheus.NewSource(evaluator)
	for _, measure := range []func() ([]bench.Row, error){
		func() ([]bench.Row, error) { return decisions(ctx, env, f.sizing, source, quiet, os.Getpid()) },
		func() ([]bench.Row, error) { return decisions(ctx, env, f.sizing, source, predictive, os.Getpid()) },
		func() ([]bench.Row, error) { return crowdedDecisions(ctx, env, f.sizing, source, nil) },
		func() ([]bench.Row, error) { return explanations(ctx, f.sizing, source) },
		func() ([]bench.Row, error) {
			defer evaluating(ctx, evaluator, f.interval)()
			return decisions(ctx, env, f.sizing, source, busy, os.Getpid())
		},
	} {
		more, err := measure()
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// evaluating evaluates by interval until stop is called.
func evaluating(ctx context.Context, evaluator bench.Evaluator, interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			_, _, _ = evaluator.Evaluate(ctx) // it only has to be busy
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); running.Wait() }
}
