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
	for _, theirs := range e.alsoOf(m.Process, m.groups) {
		q, is := theirs.Process, keyOf(theirs)
		if byAge(q, m.Process) < 0 {
			if e.still(ctx, theirs) {
				m.groups = slices.DeleteFunc(slices.Clone(m.groups), func(g rm.Group) bool { return keyOf(g) == is })
			}
			continue
		}
		_, ours := groupOf(m.groups, is)
		if !ours || !slices.ContainsFunc(e.records.get(q).Groups, func(en Entry) bool { return en.key() == is }) {
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
	var off []rm.Group
	for _, en := range e.records.get(p).Groups {
		if en.Off {
			off = append(off, en.group(p))
		}
	}
	for _, g := range e.alsoOf(p, off) {
		if !e.alive(g.Process) {
			continue
		}
		if err := e.driver().Switch(ctx, []rm.Group{g}, true); err != nil && !errors.Is(err, rm.ErrGone) && !errors.Is(err, rm.ErrChanged) {
			return err
		}
	}
	return e.remove(p)
}

// alsoOf returns these groups as other known processes have them, those of the oldest first.
func (e *Enforcer) alsoOf(p rm.Process, groups []rm.Group) (theirs []rm.Group) {
	if len(groups) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for q, k := range e.known {
		for _, g := range k.groups {
			if _, both := groupOf(groups, keyOf(g)); both && q != p {
				theirs = append(theirs, g)
			}
		}
	}
	slices.SortStableFunc(theirs, func(a, b rm.Group) int { return byAge(a.Process, b.Process) })
	return theirs
}

// byAge orders processes, the oldest first.
func byAge(a, b rm.Process) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
}
