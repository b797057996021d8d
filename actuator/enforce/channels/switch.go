package channels

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// off takes groups off that are not off yet, and renews the lease of all.
func (e *Enforcer) off(ctx context.Context, rec *Record, groups []rm.Group, until time.Duration) error {
	var more []rm.Group
	news := map[key]bool{}
	for _, g := range groups {
		en := rec.entry(g)
		if en.Off && !slices.ContainsFunc(g.Channels, func(c uint32) bool { return !slices.Contains(en.Channels, c) }) {
			continue
		}
		more = append(more, g)
		news[en.key()] = !en.Off
		en.Off, en.FD, en.Subdevice, en.Channels = true, g.FD, g.Subdevice, slices.Clone(g.Channels)
	}
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
	return errors.Join(err, e.on(ctx, rec, func(en Entry) bool { return news[en.key()] }))
}

// on switches on the groups that are off by the record, or some of them, and writes the record.
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
		return err // the record goes when the process has
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

// onSingly is for groups that could not be switched on in one call: some may be gone.
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
