package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/bench"
)

// decisions asks where to place containers, as the actuator does, and gives the
// places back. While scrapes and evaluations go on (kind busy) the questions are
// spread over two intervals, so that some meet them; else a last row has the
// processor time of one decision in these processes.
func decisions(ctx context.Context, env bench.Env, s sizing, source *prometheus.Source, kind string, pids ...int) (rows []bench.Row, err error) {
	dir, err := os.MkdirTemp("", "laxity-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary folder
	l, _, err := reservation.Open(filepath.Join(dir, "placements.db"), time.Now())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	method, pause := placement.Paper, time.Millisecond
	switch kind {
	case busy:
		pause = 2 * s.interval / time.Duration(s.decisions)
	case predictive:
		method = placement.Predictive
	}
	p, err := placer.New(placer.Options{Source: source, Reservations: l, Method: method})
	if err != nil {
		return nil, err
	}
	gap := time.NewTicker(pause)
	defer gap.Stop()
	before, err := cpu(pids)
	if err != nil {
		return nil, err
	}
	defer func() {
		after, cerr := cpu(pids)
		err = errors.Join(err, cerr)
		if n := len(rows); n > 0 && kind != busy {
			rows = append(rows, bench.Row{"kind": kind + " CPU", "seconds": (after - before).Seconds() / float64(n)})
		}
	}()
	for _, req := range requests(env.Seed, s.decisions) {
		row := bench.Row{"kind": kind}
		if err := decide(ctx, p, req, row); err != nil {
			return rows, err
		}
		rows = append(rows, row)
		select {
		case <-gap.C:
		case <-ctx.Done():
			return rows, ctx.Err()
		}
	}
	return rows, nil
}

// decide times one decision, and what giving the place back takes: a write to disk
// and nothing else, as the reservation is.
func decide(ctx context.Context, p *placer.Placer, req placement.Request, row bench.Row) error {
	begin := time.Now()
	placed, _, err := p.Place(ctx, placer.Request{Request: req})
	row["seconds"] = time.Since(begin).Seconds()
	var room *placer.NoRoomError
	if errors.As(err, &room) {
		row["found"] = false
		return nil
	}
	if err != nil {
		return err
	}
	row["found"], row["node"] = true, placed[0].Node
	begin = time.Now()
	err = p.Release(ctx, placed[0].ID)
	row["write_seconds"] = time.Since(begin).Seconds()
	return err
}

// crowdedDecisions asks as the placer does when no GPU is without work. What a server at rest knows of the nodes runs out:
// wake renews it, and the question that named none is asked again, thrice at most. Without a wake nothing runs out.
func crowdedDecisions(ctx context.Context, env bench.Env, s sizing, source *prometheus.Source, wake func(context.Context) error) ([]bench.Row, error) {
	var rows []bench.Row
	woken := 0 // since a question named a node
	for all := requests(env.Seed, min(s.decisions, 30)); len(rows) < len(all); {
		req := all[len(rows)]
		req.Estimate = req.Deadline / 3
		begin := time.Now()
		facts, err := source.Facts(ctx, placer.Ask{List: &placer.List{Method: placement.Predictive, For: req, Limit: 64, Busy: true}})
		if err != nil {
			return rows, fmt.Errorf("crowded: %w", err)
		}
		ranking := placement.Predictive.Rank(facts.Nodes, req, time.Now())
		if _, ok := ranking.Best(); ok {
			rows, woken = append(rows, bench.Row{"kind": crowded, "seconds": time.Since(begin).Seconds(), "found": ok}), 0
			continue
		}
		if wake == nil || woken == 3 {
			return rows, fmt.Errorf("crowded: no node was found after %d questions: %s", len(rows), ranking.Summary())
		}
		woken++
		if err := wake(ctx); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// cpu is what the processes have used.
func cpu(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		u, err := bench.ReadUsage(pid)
		if err != nil {
			return 0, err
		}
		sum += u.CPU
	}
	return sum, nil
}
