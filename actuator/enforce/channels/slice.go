package channels

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// known caches what we read of a process. Undoing works without it.
type known struct {
	// Guarded by the enforcer's mu.
	found      bool
	unfinished bool // there may be more
	groups     []rm.Group
	// Guarded by the process's lock.
	seen map[key]seen          // slices before ours
	set  map[key]time.Duration // slices that we know to be set
}

// seen is a slice that was read.
type seen struct {
	slice   time.Duration
	since   time.Duration
	settled bool
}

// knownOf returns what is known of a process.
func (e *Enforcer) knownOf(p rm.Process) *known {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.known[p]
	if k == nil {
		e.prune()
		k = &known{seen: map[key]seen{}, set: map[key]time.Duration{}}
		e.known[p] = k
	}
	return k
}

// prune forgets, from time to time, processes that are gone. The caller holds mu.
func (e *Enforcer) prune() {
	if len(e.known) < e.pruneAt {
		return
	}
	for p := range e.known {
		if state, err := e.o.State(p); err == nil && state == Gone {
			delete(e.known, p)
			delete(e.searches, p)
			delete(e.leases, p)
		}
	}
	e.pruneAt = 2*len(e.known) + 64
}

// forgetMissing forgets the slices of destroyed groups: new groups may get their handles.
func (k *known) forgetMissing(groups []rm.Group) {
	gone := func(old key) bool {
		return !slices.ContainsFunc(groups, func(g rm.Group) bool { return keyOf(g) == old })
	}
	maps.DeleteFunc(k.seen, func(old key, _ seen) bool { return gone(old) })
	maps.DeleteFunc(k.set, func(old key, _ time.Duration) bool { return gone(old) })
}

// slice sets the slice that the group's standing asks for.
func (e *Enforcer) slice(ctx context.Context, rec *Record, g rm.Group, want time.Duration, fresh bool, r *Result) error {
	at := slices.IndexFunc(rec.Groups, func(en Entry) bool { return en.key() == keyOf(g) && en.Slice != 0 })
	if at < 0 {
		if want == 0 && !fresh {
			return nil
		}
		if want == 0 && e.knownOf(g.Process).seen[keyOf(g)].settled {
			return nil
		}
		own, settled, err := e.own(ctx, g)
		if err != nil || want == 0 {
			return err
		}
		if !settled {
			r.Unsettled = true
			return nil
		}
		en := rec.entry(g)
		en.Own = own
		return e.setSlice(ctx, rec, en, want)
	}
	en, k := &rec.Groups[at], e.knownOf(rec.Process())
	if want == 0 {
		return e.putBack(ctx, rec, en)
	}
	if fresh || k.set[en.key()] != en.Slice {
		now, err := e.driver().Slice(ctx, g)
		if err != nil {
			return err
		}
		switch now {
		case en.Slice:
			k.set[en.key()] = now
		case en.Was, en.Own: // ours is not in effect yet, or its own is back
			delete(k.set, en.key())
		default:
			delete(k.set, en.key())
			en.Own = now
			r.Changed = append(r.Changed, g)
		}
	}
	if k.set[en.key()] == want {
		return nil
	}
	return e.setSlice(ctx, rec, en, want)
}

// own reads a group's own slice. settled says that it has not changed for a while: a program sets
// its slice just after it has scheduled the group, and would overwrite ours.
func (e *Enforcer) own(ctx context.Context, g rm.Group) (d time.Duration, settled bool, err error) {
	k := e.knownOf(g.Process)
	before, ok := k.seen[keyOf(g)]
	if d, err = e.driver().Slice(ctx, g); err != nil {
		return 0, false, err
	}
	now := e.o.Now()
	if !ok || before.slice != d {
		before = seen{slice: d, since: now, settled: before.settled}
	}
	before.settled = before.settled || now-before.since >= e.o.Settle
	k.seen[keyOf(g)] = before
	return d, before.settled, nil
}

// setSlice records a slice, then sets it.
func (e *Enforcer) setSlice(ctx context.Context, rec *Record, en *Entry, want time.Duration) error {
	k := e.knownOf(rec.Process())
	if now := k.set[en.key()]; now != 0 {
		en.Was = now
	} else if en.Slice != want && en.Slice != 0 && en.Was == 0 {
		en.Was = en.Slice
	}
	en.Slice = want
	delete(k.set, en.key())
	if err := e.put(*rec); err != nil {
		return err
	}
	if err := e.driver().SetSlice(ctx, en.group(rec.Process()), want); err != nil {
		return err
	}
	k.set[en.key()] = want
	return nil
}

// putBack restores a group's own slice, unless another program changed it after us.
func (e *Enforcer) putBack(ctx context.Context, rec *Record, en *Entry) error {
	p := rec.Process()
	if err := e.putOwn(ctx, *en, p); err != nil {
		if errors.Is(err, rm.ErrGone) && !e.alive(p) {
			return err
		}
		groups, again := e.find(ctx, p)
		if again != nil || slices.ContainsFunc(groups, func(g rm.Group) bool { return keyOf(g) == en.key() }) {
			return errors.Join(err, again)
		}
	}
	delete(e.knownOf(p).set, en.key())
	en.Slice, en.Was, en.Own = 0, 0, 0
	return e.keep(rec)
}

func (e *Enforcer) putOwn(ctx context.Context, en Entry, p rm.Process) error {
	now, err := e.driver().Slice(ctx, en.group(p))
	if err != nil {
		return err
	}
	if now != en.Slice && now != en.Was {
		return nil
	}
	return e.driver().SetSlice(ctx, en.group(p), en.Own)
}

// dropMissing removes groups from the record that a search did not find.
func (e *Enforcer) dropMissing(ctx context.Context, rec *Record, groups []rm.Group) error {
	missing := func(en Entry) bool {
		return !slices.ContainsFunc(groups, func(g rm.Group) bool { return keyOf(g) == en.key() })
	}
	if !slices.ContainsFunc(rec.Groups, missing) {
		return nil
	}
	// Undo them all the same: the search may have overlooked them.
	if err := e.on(ctx, rec, missing); err != nil {
		return err
	}
	for _, en := range rec.Groups {
		if en.Slice != 0 && missing(en) {
			if err := e.putOwn(ctx, en, rec.Process()); err != nil { // so it is with those that are gone
				e.o.Logger.Debug("the slice of a channel group that no search finds is not put back", "pid", rec.PID, "group", en.Handle, "err", err)
			}
		}
	}
	rec.Groups = slices.DeleteFunc(rec.Groups, missing)
	return e.keep(rec)
}
