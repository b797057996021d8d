package channels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Apply carries a standing out for the known groups; it searches for the groups of new processes.
// It is idempotent. After an error the container is off only if the result says so, and then
// just its slices could not be set.
func (e *Enforcer) Apply(ctx context.Context, t Target, s Standing) (Result, error) {
	return e.carry(ctx, t, s, false)
}

// Inspect is Apply after a new search. It finds groups made since, also of a container that is off,
// and slices that another program changed.
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
}

// unknown: nothing is known of its groups yet.
func (m *member) unknown() bool { return m.unfinished && len(m.groups) == 0 }

// membersOf are a target's processes, each once. The oldest comes first: what a fork shares
// with its parent counts as the parent's.
func membersOf(t Target) []member {
	processes := slices.SortedFunc(slices.Values(t.Processes), func(a, b rm.Process) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	})
	var members []member
	for _, p := range slices.Compact(processes) {
		members = append(members, member{Process: p})
	}
	return members
}

func (e *Enforcer) carry(ctx context.Context, t Target, s Standing, fresh bool) (Result, error) {
	if s.Slice != 0 && (s.Slice < MinSlice || s.Slice > MaxSlice) {
		return Result{}, fmt.Errorf("a slice of %v: it must be %v to %v", s.Slice, MinSlice, MaxSlice)
	}
	s.Slice = s.Slice.Truncate(time.Microsecond)
	if s.Lease <= 0 || s.Lease > e.o.MaxOff && !s.Asked {
		s.Lease = e.o.MaxOff
	}
	asked, members := s, membersOf(t)
	each(members, func(m *member) { e.meet(ctx, m, fresh) })
	members, problem := together(members, &s)
	if len(members) == 0 {
		return Result{}, ErrGone
	}
	until := e.o.Now() + s.Lease
	each(members, func(m *member) {
		now := *m
		after, err := work(ctx, e, m.Process, func(ctx context.Context) (member, error) {
			err := e.apply(ctx, t, &now, s, until, fresh)
			return now, err
		})
		m.result, m.slices, m.err = after.result, after.slices, errors.Join(m.err, err)
	})
	r, slices, err := sum(members)
	err = errors.Join(problem, err)
	if errors.Is(errors.Join(err, slices), rm.ErrChanged) && !fresh {
		return e.carry(ctx, t, asked, true)
	}
	if (s.Off || s.Slice != 0) && err == nil && len(r.Groups) == 0 {
		err = ErrNoGroup
	}
	if s.Off && err == nil {
		r.Off, r.Until = true, until
	} else if s.Off { // a container that is off in part only waits for its own other part
		e.letOn(ctx, members, until)
	}
	return r, errors.Join(err, slices)
}

// letOn switches processes on whose standing could be carried out only in part, unless a later
// standing was. The end of ctx does not stop it. The end of the lease switches on what it
// cannot.
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

// together returns the processes that are left, and takes Off from the standing if they
// cannot be off as one.
func together(members []member, s *Standing) (left []member, problem error) {
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
	if s.Off && len(gpus) > 1 {
		problem = ErrSeveralGPUs
	}
	if problem != nil {
		s.Off = false
	}
	return left, problem
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

// apply is Apply for one process, alone.
func (e *Enforcer) apply(ctx context.Context, t Target, m *member, s Standing, until time.Duration, fresh bool) error {
	rec := e.records.get(m.Process)
	if rec.damaged != nil {
		if err := e.restore(ctx, m.Process); err != nil {
			return err
		}
		rec = Record{PID: m.PID, Start: m.Start}
	}
	rec.Container, rec.Reason = t.Container, s.Reason
	if fresh && m.err == nil && !m.unfinished {
		e.knownOf(m.Process).forgetMissing(m.groups)
		if err := e.dropMissing(ctx, &rec, m.groups); err != nil {
			return err
		}
	}
	if s.Off { // first: another container waits for that
		if err := e.off(ctx, &rec, m.groups, until); err != nil {
			return err
		}
	}
	if !s.Off || s.Slice != 0 {
		for _, g := range m.groups {
			m.slices = errors.Join(m.slices, e.slice(ctx, &rec, g, s.Slice, fresh, &m.result))
		}
	}
	if s.Off {
		return nil
	}
	return e.on(ctx, &rec, nil)
}
