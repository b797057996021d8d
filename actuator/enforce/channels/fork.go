package channels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/laxity/laxity/internal/rm"
)

// A fork inherits its parent's descriptors, and by these the driver shows it the parent's groups. It
// cannot use them (CUDA needs an exec first), but it may count as a task: libcuda is asked for a context
// and refuses. A group that two processes own would be off in the turns of both, and stay off when one of
// them ends. So it is the oldest living one's. No two clients on a machine have the same handle at a time.

// claim leaves a process those of its groups that no older one has, and undoes what is on record of
// younger ones for those that it keeps.
func (e *Enforcer) claim(ctx context.Context, m *member) {
	for _, q := range e.sharing(m.Process, m.groups) {
		if byAge(q, m.Process) < 0 {
			theirs := e.groupsOf(q)
			m.groups = slices.DeleteFunc(slices.Clone(m.groups), func(g rm.Group) bool {
				its, ok := groupOf(theirs, keyOf(g))
				return ok && e.still(ctx, its)
			})
			continue
		}
		ours := func(en Entry) bool {
			_, ok := groupOf(m.groups, en.key())
			return ok
		}
		if !slices.ContainsFunc(e.records.get(q).Groups, ours) {
			continue
		}
		err := e.alone(ctx, q, func(ctx context.Context) error { return e.restore(ctx, q) })
		if err != nil && e.alive(q) { // of one that ends the driver is told when it has ended
			m.err = errors.Join(m.err, fmt.Errorf("what is on record of its fork %d: %w", q.PID, err))
		}
	}
}

// still reports whether a known process still has a group. It may have destroyed its context since, and the
// driver gives a handle that is free to others.
func (e *Enforcer) still(ctx context.Context, g rm.Group) bool {
	_, err := e.driver().Slice(ctx, g)
	if errors.Is(err, rm.ErrChanged) {
		e.forgetGroups(g.Process)
	}
	return !errors.Is(err, rm.ErrChanged) && !errors.Is(err, rm.ErrGone)
}

// gone removes the record of a process that has ended. Its groups are gone too, but for those that
// another process has.
func (e *Enforcer) gone(ctx context.Context, p rm.Process) error {
	for _, en := range e.records.get(p).Groups {
		if !en.Off {
			continue
		}
		for _, q := range e.sharing(p, []rm.Group{en.group(p)}) {
			g, ok := groupOf(e.groupsOf(q), en.key())
			if !ok || !e.alive(q) {
				continue
			}
			if err := e.driver().Switch(ctx, []rm.Group{g}, true); err != nil && !errors.Is(err, rm.ErrGone) && !errors.Is(err, rm.ErrChanged) {
				return err
			}
		}
	}
	return e.remove(p)
}

// sharing returns the other known processes that have one of the groups, the oldest first.
func (e *Enforcer) sharing(p rm.Process, groups []rm.Group) []rm.Process {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []rm.Process
	for q, k := range e.known {
		if q != p && slices.ContainsFunc(k.groups, func(g rm.Group) bool { _, ok := groupOf(groups, keyOf(g)); return ok }) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, byAge)
	return out
}

func (e *Enforcer) groupsOf(p rm.Process) []rm.Group {
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.known[p]; k != nil {
		return k.groups
	}
	return nil
}

// byAge orders processes, the oldest first.
func byAge(a, b rm.Process) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}
