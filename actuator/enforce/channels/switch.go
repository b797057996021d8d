package channels

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// off takes the groups off that are on, and renews the lease of all of them.
func (e *Enforcer) off(ctx context.Context, rec *Record, groups []rm.Group, until time.Duration) error {
	was := map[key]bool{}
	for _, en := range rec.Groups {
		was[en.key()] = en.Off
	}
	more := rec.takeOff(groups)
	if len(groups) == 0 && !rec.Off() {
		return nil
	}
	rec.Until = until
	if err := e.put(*rec); err != nil {
		return err
	}
	e.waitLease(rec.Process(), until)
	if len(more) == 0 {
		return nil
	}
	err := e.driver().Switch(ctx, more, false)
	if err == nil {
		return nil
	}
	e.forgetGroups(rec.Process())
	ctx, cancel := e.undoing(ctx)
	defer cancel()
	return errors.Join(err, e.on(ctx, rec, func(en Entry) bool { return !was[en.key()] }))
}

// on switches on those recorded groups that are off and that which selects, and writes the record.
func (e *Enforcer) on(ctx context.Context, rec *Record, which func(Entry) bool) error {
	p := rec.Process()
	var groups []rm.Group
	for _, en := range rec.Groups {
		if en.Off && (which == nil || which(en)) {
			groups = append(groups, en.group(p))
		}
	}
	if len(groups) == 0 {
		return nil
	}
	err := e.driver().Switch(ctx, groups, true)
	if errors.Is(err, rm.ErrGone) && !e.alive(p) {
		return err // the record is removed when the process has ended
	}
	on := map[key]bool{}
	if err == nil {
		for _, g := range groups {
			on[keyOf(g)] = true
		}
	} else {
		err = e.onSingly(ctx, p, groups, on)
	}
	for i := range rec.Groups {
		if on[rec.Groups[i].key()] {
			rec.Groups[i].Off = false
		}
	}
	return errors.Join(err, e.keep(rec))
}

// onSingly switches groups on one by one, after one call for all of them failed: some may be gone.
func (e *Enforcer) onSingly(ctx context.Context, p rm.Process, groups []rm.Group, on map[key]bool) (err error) {
	e.forgetGroups(p)
	now, err := e.find(ctx, p)
	unfinished := errors.Is(err, rm.ErrUnfinished)
	if err != nil && !unfinished {
		return err
	}
	var errs []error
	for _, g := range groups {
		is, found := groupOf(now, keyOf(g))
		if found {
			g.FD, g.Subdevice = is.FD, is.Subdevice
			g.Channels = slices.DeleteFunc(slices.Clone(g.Channels), func(c uint32) bool { return !slices.Contains(is.Channels, c) })
		}
		if (found || unfinished) && len(g.Channels) > 0 {
			if err := e.driver().Switch(ctx, []rm.Group{g}, true); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		on[keyOf(g)] = true
	}
	return errors.Join(errs...)
}

// keep writes the record, or removes it when nothing is left to undo.
func (e *Enforcer) keep(rec *Record) error {
	if !slices.ContainsFunc(rec.Groups, func(en Entry) bool { return en.Off }) {
		rec.Until = 0
	}
	rec.Groups = slices.DeleteFunc(rec.Groups, func(en Entry) bool { return !en.Off && en.Slice == 0 })
	if rec.empty() {
		e.step("remove")
		defer e.step("was removed")
		return e.records.remove(rec.Process(), nil)
	}
	return e.put(*rec)
}
