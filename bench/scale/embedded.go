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
	if env.NewEngine == nil {
		return nil, skipped("this program has no rules engine; use laxity bench")
	}
	before, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		return nil, err
	}
	targets := make([]bench.EngineTarget, f.nodes)
	for i := range targets {
		targets[i] = bench.EngineTarget{Gatherer: f.gatherer(i), Job: "laxity-exporter", Instance: nodeName(i), Node: nodeName(i)}
	}
	engine, err := env.NewEngine(targets)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	// The first evaluation makes the series, which no later one does again.
	for i := range f.evaluations + 1 {
		ingest, rules, err := engine.Evaluate(ctx)
		if err != nil {
			return rows, err
		}
		if i > 0 {
			rows = append(rows, bench.Row{"kind": "evaluation", "seconds": rules.Seconds(), "ingest_seconds": ingest.Seconds()})
		}
	}
	debug.FreeOSMemory()
	after, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		return rows, err
	}
	rows = append(rows, bench.Row{"kind": "memory", "bytes": after.RSSAnon - before.RSSAnon})
	count, err := series(ctx, engine)
	if err != nil {
		return rows, err
	}
	rows = append(rows, count)

	busy, stop := context.WithCancel(ctx)
	var evaluating sync.WaitGroup
	evaluating.Go(func() {
		tick := time.NewTicker(f.interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _, _ = engine.Evaluate(busy) // it only has to be busy
			case <-busy.Done():
				return
			}
		}
	})
	decided, err := decisions(ctx, env, f.sizing, prometheus.NewSource(engine))
	stop()
	evaluating.Wait()
	return append(rows, decided...), err
}
