package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Apply carries a standing out for the known groups, and searches for the groups of new processes.
// It is idempotent. After an error the container is off only if the result says so, and then only
// its slices could not be set.
func (e *Enforcer) Apply(ctx context.Context, t Target, s Standing) (Result, error) {
	return e.carry(ctx, t, s, false)
}

// Inspect is Apply after a new search. It also finds groups of a container that is off, and slices
// that another program changed.
func (e *Enforcer) Inspect(ctx context.Context, t Target, s Standing) (Result, error) {
	return e.carry(ctx, t, s, true)
}

// member is one process of a target.
type member struct {
	rm.Process
	groups []rm.Group
	state  State
	result Result
	err    error
	slices error // why slices could not be set
	// unfinished: the search for its groups goes on, and there may be more.
	unfinished bool
	// late: its first search used up the caller's time.
	late bool
}

// unknown reports that no group of it was found yet, and the search continues.
func (m *member) unknown() bool { return m.unfinished && len(m.groups) == 0 }

// membersOf returns each process of a target once, the oldest first: groups that a fork shares with
// its parent count as the parent's.
func membersOf(t Target) []member {
	var members []member
	for _, p := range slices.Compact(slices.SortedFunc(slices.Values(t.Processes), byAge)) {
		members = append(members, member{Process: p})
	}
	return members
}

func (e *Enforcer) carry(ctx context.Context, t Target, s Standing, fresh bool) (Result, error) {
	if err := s.checkSlices(); err != nil {
		return Result{}, err
	}
	if s.Lease <= 0 || s.Lease > e.o.MaxOff {
		s.Lease = e.o.MaxOff
	}
	asked, members := s, membersOf(t)
	each(members, func(m *member) { e.meet(ctx, m, fresh) })
	each(members, func(m *member) { e.claim(ctx, m) })
	members, asOne, problem := e.together(members, t.GPUs, &s)
	if len(members) == 0 {
		return Result{}, ErrGone
	}
	if slices.ContainsFunc(members, func(m member) bool { return m.late }) {
		return Result{Unsettled: true}, errors.Join(fmt.Errorf("%w until the time was over", ErrNoGroup), problem) // nothing was changed
	}
	until := e.o.Now() + s.Lease
	var skew time.Duration
	switched := false
	if asOne {
		var failed error
		if skew, switched, failed = e.switchAsOne(ctx, t, members, s, until); failed != nil {
			problem, s.Off = errors.Join(problem, failed), false
		}
	}
	each(members, func(m *member) {
		now := *m
		after, err := work(ctx, e, m.Process, func(ctx context.Context) (member, error) {
			err := e.apply(ctx, t, &now, s, until, fresh, asOne)
			return now, err
		})
		m.result, m.slices, m.err = after.result, after.slices, errors.Join(m.err, err)
	})
	r, slices, err := sum(members)
	r.AsOne, r.Skew = switched, skew
	err = errors.Join(problem, err)
	if errors.Is(errors.Join(err, slices), rm.ErrChanged) && !fresh {
		return e.carry(ctx, t, asked, true)
	}
	if (s.Off || s.sliced()) && err == nil && len(r.Groups) == 0 {
		err = ErrNoGroup
	}
	if s.Off && err == nil {
		r.Off, r.Until = true, until
	} else if s.Off { // a container that is partly off only waits for its own other part
		e.letOn(ctx, members, until)
	}
	return r, errors.Join(err, slices)
}

// letOn switches processes on whose standing was carried out only in part, unless a later standing
// was carried out. It outlives ctx. What it cannot switch on, the end of the lease does.
func (e *Enforcer) letOn(ctx context.Context, members []member, until time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := e.undoing(ctx)
		defer cancel()
		each(members, func(m *member) {
			_ = e.alone(ctx, m.Process, func(ctx context.Context) error {
				rec := e.records.get(m.Process)
				if rec.Until > until {
					return nil
				}
				return e.on(ctx, &rec, nil)
			})
		})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// meet finds the groups of one process.
func (e *Enforcer) meet(ctx context.Context, m *member, fresh bool) {
	if m.state, m.err = e.o.State(m.Process); m.err != nil {
		return
	}
	if m.state == Gone {
		m.err = e.forget(ctx, m.Process)
		return
	}
	e.look(ctx, m, fresh)
}

// together returns the processes that remain, and clears Off in the standing if they cannot go off
// as one. asOne: they are on several GPUs.
func (e *Enforcer) together(members []member, on []string, s *Standing) (left []member, asOne bool, problem error) {
	gpus, seen := map[string]bool{}, map[key]bool{}
	for _, m := range members {
		if m.state == Gone || m.state == Exiting || errors.Is(m.err, rm.ErrGone) {
			continue
		}
		// A fork shares its parent's groups.
		m.groups = slices.DeleteFunc(slices.Clone(m.groups), func(g rm.Group) bool {
			twice := seen[keyOf(g)]
			seen[keyOf(g)] = true
			return twice
		})
		for _, g := range m.groups {
			gpus[g.GPU] = true
		}
		left = append(left, m)
		if s.Off && m.state == Traced {
			problem = ErrTraced
		}
		if s.Off && m.unknown() {
			problem = fmt.Errorf("%w yet: %w", ErrNoGroup, rm.ErrUnfinished)
		}
		if s.Off && m.err != nil {
			problem = m.err
		}
	}
	missing := slices.ContainsFunc(on, func(gpu string) bool { return !gpus[gpu] })
	switch {
	case !s.Off:
	case !e.o.AsOne && (len(gpus) > 1 || len(on) > 1):
		problem = ErrSeveralGPUs
	case missing && problem == nil:
		problem = fmt.Errorf("%w on each of its GPUs yet", ErrNoGroup)
	}
	if problem != nil {
		s.Off = false
	}
	return left, e.o.AsOne && len(gpus) > 1, problem
}

func sum(members []member) (r Result, slices, err error) {
	for _, m := range members {
		r.Groups = append(r.Groups, m.groups...)
		r.Changed = append(r.Changed, m.result.Changed...)
		r.Unsettled = r.Unsettled || m.result.Unsettled || m.unknown()
		if m.err != nil && !errors.Is(m.err, rm.ErrGone) {
			err = errors.Join(err, fmt.Errorf("channels of process %d: %w", m.PID, m.err))
		}
		if m.slices != nil && !errors.Is(m.slices, rm.ErrGone) {
			slices = errors.Join(slices, fmt.Errorf("slices of process %d: %w", m.PID, m.slices))
		}
	}
	return r, slices, err
}

func each(members []member, f func(*member)) {
	var wait sync.WaitGroup
	for i := range members {
		wait.Go(func() { f(&members[i]) })
	}
	wait.Wait()
}

// whole returns the record of a process. It undoes a damaged one first.
func (e *Enforcer) whole(ctx context.Context, p rm.Process) (Record, error) {
	rec := e.records.get(p)
	if rec.damaged == nil {
		return rec, nil
	}
	return Record{PID: p.PID, Start: p.Start}, e.restore(ctx, p)
}

// apply is Apply for one process. asOne: its channels have been switched already.
func (e *Enforcer) apply(ctx context.Context, t Target, m *member, s Standing, until time.Duration, fresh, asOne bool) error {
	rec, err := e.whole(ctx, m.Process)
	if err != nil {
		return err
	}
	rec.Container, rec.Reason = t.Container, s.Reason
	if fresh && m.err == nil && !m.unfinished {
		e.knownOf(m.Process).forgetMissing(m.groups)
		if err := e.dropMissing(ctx, &rec, m.groups); err != nil {
			return err
		}
	}
	if s.Off && !asOne { // first: another container waits for this
		if err := e.off(ctx, &rec, m.groups, until); err != nil {
			return err
		}
	}
	for _, g := range m.groups {
		if want := s.sliceOn(g.GPU); !s.Off || want != 0 {
			m.slices = errors.Join(m.slices, e.slice(ctx, &rec, g, want, fresh, &m.result))
		}
	}
	if s.Off || asOne {
		return nil
	}
	return e.on(ctx, &rec, nil)
}
