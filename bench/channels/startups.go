package channels

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
)

// Ways of a start-up beside a kernel.
const (
	switched   = "beside switching"
	unswitched = "without switching"
)

// shortWork is what each of the containers that start does: three kernels of 20 ms.
const shortWork = 20 * time.Millisecond

// startups lets containers start beside a kernel that is switched, and beside one that is not.
func (m *measurement) startups(ctx context.Context) (rows []bench.Row, err error) {
	a, err := m.long(ctx, min(m.how.kernel, 2*time.Second))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	w := m.follow(a)
	defer w.end()
	for i, until := 0, time.Now().Add(m.how.limit); i < m.how.rounds && time.Now().Before(until); i++ {
		ways := []string{unswitched, switched}
		if i%2 == 1 {
			ways[0], ways[1] = ways[1], ways[0]
		}
		for _, way := range ways {
			more, err := m.startAll(ctx, way, a, w)
			for _, r := range more {
				r["run"] = i + 1
			}
			rows = append(rows, more...)
			if err != nil {
				return rows, err
			}
		}
		m.progress("start-ups", i+1, m.how.rounds)
	}
	return rows, m.finish(ctx, a)
}

// startAll starts containers at once, by one way. Rows are one for each start-up and one for
// each cycle.
func (m *measurement) startAll(ctx context.Context, way string, a *subject, w *watch) (rows []bench.Row, err error) {
	starting := make([]*subject, 0, m.how.starting)
	defer func() {
		for _, s := range starting {
			err = errors.Join(err, s.close())
		}
	}()
	for range m.how.starting {
		s, err := m.create(ctx, work{name: "starts", kernel: shortWork, kernels: 3, mib: 1024})
		if err != nil {
			return nil, err
		}
		starting = append(starting, s)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	var cycleErr error
	go func() {
		defer close(done)
		for way == switched {
			select {
			case <-stop:
				return
			default:
			}
			r, err := m.cycle(ctx, a, w)
			if err != nil {
				cycleErr = fmt.Errorf("off and on while containers start: %w", err)
				return
			}
			r["way"] = way
			rows = append(rows, r)
		}
	}()
	errs := make([]error, len(starting))
	var all sync.WaitGroup
	for i, s := range starting {
		all.Go(func() {
			if errs[i] = s.begin(ctx); errs[i] == nil {
				errs[i] = m.until(ctx, startLimit, func() bool { return s.Done.Load() >= 3 || s.gone() })
			}
		})
	}
	all.Wait()
	close(stop)
	<-done
	for i, s := range starting {
		if errs[i] == nil {
			errs[i] = m.finish(ctx, s)
		}
		rows = append(rows, bench.Row{"way": way, "start_s": float64(s.First.Load()-s.Began.Load()) / 1e9})
	}
	return rows, errors.Join(append(errs, cycleErr)...)
}
