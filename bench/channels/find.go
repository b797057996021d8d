package channels

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
)

// Whose channels are found.
const (
	newOne   = "new"
	again    = "again"
	oldOne   = "old, after a restart"
	oldOnes  = "old, at once, after a restart"
	findMost = time.Minute
)

// finding finds the channels of new processes, and those of some of them after a restart.
func (m *measurement) finding(ctx context.Context) (rows []bench.Row, err error) {
	var old []*subject
	defer func() {
		for _, s := range old {
			err = errors.Join(err, s.close())
		}
	}()
	d, calls, err := m.openDriver()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(m.how.limit)
	for i := 0; (i < m.how.news || len(old) < m.how.old) && time.Now().Before(until); i++ {
		s, more, err := m.findNew(ctx, d, calls)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
		if old = append(old, s); len(old) > m.how.old {
			err = errors.Join(m.finish(ctx, old[0]), old[0].close())
			if old = old[1:]; err != nil {
				return rows, err
			}
		}
	}
	if len(old) == 0 {
		return rows, nil
	}
	for _, batch := range []struct {
		way      string
		subjects []*subject
	}{{oldOne, old[:1]}, {oldOnes, old}} {
		more, err := m.findOld(ctx, batch.way, batch.subjects)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	for _, s := range old {
		err = errors.Join(err, m.finish(ctx, s))
	}
	return rows, err
}

// findNew starts a container, and finds its channels as soon as it has a context; then again.
func (m *measurement) findNew(ctx context.Context, d driver, calls *atomic.Int64) (_ *subject, rows []bench.Row, err error) {
	if err := d.Mark(ctx); err != nil {
		return nil, nil, err
	}
	s, err := m.create(ctx, work{name: "found", kernel: shortWork, kernels: endless})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.begin(ctx); err != nil {
		return nil, nil, err
	}
	if err := m.until(ctx, startLimit, func() bool { return s.Context.Load() != 0 || s.gone() }); err != nil {
		return nil, nil, err
	}
	before, asked := count64(calls), time.Now()
	for {
		groups, err := d.Find(ctx, s.process)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, s.said())
		}
		if len(groups) > 0 {
			break
		}
		if time.Since(asked) > findMost {
			return nil, nil, fmt.Errorf("the channels of %s are not found", s.Name)
		}
		if err := bench.Pass(ctx, poll); err != nil {
			return nil, nil, err
		}
	}
	rows = append(rows, withCalls(bench.Row{"way": newOne, "find_s": (channels.Now() - time.Duration(s.Context.Load())).Seconds(), //nolint:gosec // nanoseconds since boot
		"search_s": time.Since(asked).Seconds()}, calls, before))
	before, asked = count64(calls), time.Now()
	if _, err := d.Find(ctx, s.process); err != nil {
		return nil, rows, err
	}
	rows = append(rows, withCalls(bench.Row{"way": again, "find_s": time.Since(asked).Seconds()}, calls, before))
	return s, rows, m.until(ctx, startLimit, func() bool { return s.Done.Load() > 0 })
}

// findOld finds those of processes that ran before: the driver is one that knows nothing.
func (m *measurement) findOld(ctx context.Context, way string, old []*subject) ([]bench.Row, error) {
	d, calls, err := m.openDriver()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findMost)
	defer cancel()
	rows := make([]bench.Row, len(old))
	began := time.Now()
	var all sync.WaitGroup
	for i, s := range old {
		all.Go(func() {
			groups, err := d.Find(ctx, s.process)
			rows[i] = bench.Row{"way": way, "find_s": time.Since(began).Seconds(), "missed": err != nil || len(groups) == 0}
			if err != nil {
				rows[i]["error"] = err.Error()
			}
		})
	}
	all.Wait()
	if n := count64(calls); calls != nil { // all of them together
		rows[0]["calls"] = int(n)
	}
	return rows, nil
}

func count64(n *atomic.Int64) int64 {
	if n == nil {
		return 0
	}
	return n.Load()
}

func withCalls(r bench.Row, calls *atomic.Int64, before int64) bench.Row {
	if calls != nil {
		r["calls"] = int(calls.Load() - before)
	}
	return r
}
