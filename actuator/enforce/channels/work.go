package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/laxity/laxity/internal/rm"
)

// work runs f for one process and waits until ctx ends. No other call for this process runs
// meanwhile, in this or any other program. After ctx has ended f continues until its own calls see
// that; nobody gets its result, so it must change nothing that its caller can see.
func work[T any](ctx context.Context, e *Enforcer, p rm.Process, f func(context.Context) (T, error)) (T, error) {
	return workAll(ctx, e, []rm.Process{p}, f)
}

// errAborted means that the goroutine of a call ended before it returned.
var errAborted = errors.New("the call was aborted")

// workAll is work for several processes at once.
func workAll[T any](ctx context.Context, e *Enforcer, all []rm.Process, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err // start nothing for a caller that is gone
	}
	done := make(chan answer, 1)
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, e.o.Deadline)
		defer cancel()
		var a answer
		leave, err := e.enterAll(ctx, all)
		if err != nil {
			done <- answer{err: err}
			return
		}
		a.value, a.err = func() (T, error) {
			defer leave() // before the caller goes on
			return f(ctx)
		}()
		done <- a
	}()
	select {
	case a, ok := <-done:
		if !ok {
			return none, errAborted
		}
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("the driver has not answered: %w", ctx.Err())
	}
}

// enterAll waits, until ctx ends, for the locks of these processes. It takes them in the order of
// their PIDs, so that callers cannot deadlock.
func (e *Enforcer) enterAll(ctx context.Context, all []rm.Process) (leave func(), err error) {
	var left []func()
	leave = func() {
		for _, f := range slices.Backward(left) {
			f()
		}
	}
	var pids []int
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		end, err := e.lanes.enter(ctx, pid)
		if err != nil {
			leave()
			return nil, err
		}
		left = append(left, end)
		l, err := e.records.lock(ctx, pid)
		if err != nil {
			leave()
			return nil, err
		}
		left = append(left, l.unlock)
	}
	return leave, nil
}

// alone is work for an f that returns only an error.
func (e *Enforcer) alone(ctx context.Context, p rm.Process, f func(context.Context) error) error {
	_, err := work(ctx, e, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// lanes let one call at a time through for each PID, in this program.
type lanes struct {
	mu  sync.Mutex
	all map[int]*lane
}

type lane struct {
	turn  chan struct{} // has a token while somebody has the turn
	users int
}

// enter waits for its turn, until ctx ends.
func (l *lanes) enter(ctx context.Context, pid int) (leave func(), err error) {
	l.mu.Lock()
	if l.all == nil {
		l.all = map[int]*lane{}
	}
	own := l.all[pid]
	if own == nil {
		own = &lane{turn: make(chan struct{}, 1)}
		l.all[pid] = own
	}
	own.users++
	l.mu.Unlock()
	drop := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(l.all, pid)
		}
	}
	select {
	case own.turn <- struct{}{}:
		return func() { <-own.turn; drop() }, nil
	case <-ctx.Done():
		drop()
		return nil, fmt.Errorf("channels of process %d: another call for it has not ended: %w", pid, ctx.Err())
	}
}
