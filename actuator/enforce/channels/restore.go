package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// atOnce bounds the processes that are restored in parallel: the driver has locks of its own.
const atOnce = 8

// Restore undoes what is on record of these processes: it switches their channels on and restores
// their own slices.
func (e *Enforcer) Restore(ctx context.Context, processes ...rm.Process) error {
	_, err := e.restoreEach(ctx, processes)
	return err
}

// RestoreAll undoes all that any actuator put on record. left is how many processes could not be
// restored: they stay on record, and RestoreAll may be called again.
func (e *Enforcer) RestoreAll(ctx context.Context) (left int, err error) {
	all, err := e.records.list()
	if err != nil {
		return 1, err
	}
	processes := make([]rm.Process, 0, len(all))
	for _, r := range all {
		processes = append(processes, r.Process())
	}
	return e.restoreEach(ctx, processes)
}

// Sweep switches on the channels whose lease ended more than grace ago, and forgets processes that
// are gone. It returns how many processes it switched on. A living actuator renews or ends its
// leases itself.
func (e *Enforcer) Sweep(ctx context.Context, grace time.Duration) (swept int, err error) {
	all, err := e.records.list()
	if err != nil {
		return 0, err
	}
	var late []rm.Process
	for _, r := range all {
		if e.late(r, grace) {
			late = append(late, r.Process())
		} else if state, err := e.o.State(r.Process()); err == nil && state == Gone {
			late = append(late, r.Process())
		}
	}
	var let atomic.Int64
	_, err = e.forEach(ctx, late, func(ctx context.Context, p rm.Process) error {
		if state, err := e.o.State(p); err == nil && state == Gone {
			return e.gone(ctx, p)
		}
		rec := e.records.get(p)
		if !e.late(rec, grace) { // it was renewed meanwhile
			return nil
		}
		var err error
		if rec.damaged != nil {
			err = e.restore(ctx, p)
		} else {
			err = e.on(ctx, &rec, nil)
		}
		if err == nil {
			let.Add(1)
			e.o.Logger.Warn("switched on channels whose lease had ended", "pid", p.PID, "container", rec.Container, "reason", rec.Reason)
		}
		return err
	})
	return int(let.Load()), err
}

func (e *Enforcer) late(r Record, grace time.Duration) bool {
	return r.Off() && r.Until+grace <= e.o.Now()
}

func (e *Enforcer) restoreEach(ctx context.Context, processes []rm.Process) (left int, err error) {
	return e.forEach(ctx, processes, e.restore)
}

// forEach runs f for the processes in parallel, atOnce at most. A call that hangs delays no other.
func (e *Enforcer) forEach(ctx context.Context, processes []rm.Process, f func(context.Context, rm.Process) error) (left int, err error) {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, atOnce)
	)
	for _, p := range processes {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, e.o.Deadline)
			defer cancel()
			if one := e.alone(ctx, p, func(ctx context.Context) error { return f(ctx, p) }); one != nil {
				mu.Lock()
				defer mu.Unlock()
				left++
				err = errors.Join(err, fmt.Errorf("channels of process %d: %w", p.PID, one))
			}
		})
	}
	wait.Wait()
	return left, err
}

// restore undoes what is on record of one process. The caller has its lock.
func (e *Enforcer) restore(ctx context.Context, p rm.Process) error {
	state, err := e.o.State(p)
	switch {
	case err != nil:
		return err
	case state == Gone:
		return e.gone(ctx, p)
	case state == Exiting:
		return fmt.Errorf("%w in a moment: its channels are the driver's", ErrGone)
	}
	rec := e.records.get(p)
	if rec.damaged != nil {
		return e.restoreUnread(ctx, p)
	}
	err = e.on(ctx, &rec, nil)
	for _, en := range slices.Clone(rec.Groups) { // restoring one may remove it from the list
		at := slices.IndexFunc(rec.Groups, func(other Entry) bool { return other.key() == en.key() && other.Slice != 0 })
		if at >= 0 {
			err = errors.Join(err, e.putBack(ctx, &rec, &rec.Groups[at]))
		}
	}
	if state, again := e.o.State(p); err != nil && again == nil && state == Gone {
		return e.gone(ctx, p)
	}
	return err
}

// restoreUnread handles a damaged record: its name gives the process, its content is lost. It
// switches the channels on; slices cannot be restored.
func (e *Enforcer) restoreUnread(ctx context.Context, p rm.Process) error {
	groups, err := e.find(ctx, p)
	if (err == nil || errors.Is(err, rm.ErrUnfinished)) && len(groups) > 0 {
		err = errors.Join(err, e.driver().Switch(ctx, groups, true))
	}
	if err != nil {
		return err
	}
	if e.records.get(p).damaged == nil {
		return e.restore(ctx, p) // it only could not be read: too many files were open, say
	}
	e.o.Logger.Error("the record of a process's channels could not be read: they are on now, but its time slice may not be its own (restart its container to reset that)", "pid", p.PID)
	return e.remove(p)
}
