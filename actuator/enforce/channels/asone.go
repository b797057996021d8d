package channels

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// switched is the outcome of switchAsOne.
type switched struct {
	skew time.Duration
	any  bool // something was switched
}

// switchAsOne takes processes on several GPUs off, or on again: all or none. It holds the locks of
// all of them, so that no other call comes between. It finishes what it has begun even if ctx ends.
func (e *Enforcer) switchAsOne(ctx context.Context, t Target, members []member, s Standing, until time.Duration) (time.Duration, bool, error) {
	var processes []rm.Process
	groups := map[rm.Process][]rm.Group{}
	for _, m := range members {
		processes = append(processes, m.Process)
		groups[m.Process] = m.groups
	}
	is, err := workAll(ctx, e, processes, func(ctx context.Context) (is switched, err error) {
		var recs []*Record
		for _, p := range processes {
			rec, err := e.whole(ctx, p)
			if err != nil {
				return is, err
			}
			rec.Container, rec.Reason = t.Container, s.Reason
			recs = append(recs, &rec)
		}
		if s.Off {
			return e.offAsOne(ctx, recs, groups, until)
		}
		return e.onAsOne(ctx, recs)
	})
	return is.skew, is.any, err
}

// offAsOne takes off the groups that are on, and renews the lease of all. It records everything
// before the first call.
func (e *Enforcer) offAsOne(ctx context.Context, recs []*Record, groups map[rm.Process][]rm.Group, until time.Duration) (is switched, err error) {
	var more []rm.Group
	for _, rec := range recs {
		more = append(more, rec.takeOff(groups[rec.Process()])...)
		if !rec.Off() {
			continue // it has no channels
		}
		rec.Until = until
		if err = e.put(*rec); err != nil {
			break
		}
		e.waitLease(rec.Process(), until)
	}
	if err == nil && len(more) > 0 {
		is.any = true
		is.skew, err = e.driver().SwitchAsOne(ctx, more, false)
	}
	if err == nil {
		return is, nil
	}
	for _, rec := range recs {
		e.forgetGroups(rec.Process())
	}
	ctx, cancel := e.undoing(ctx)
	defer cancel()
	_, undo := e.onAsOne(ctx, recs)
	return switched{}, errors.Join(err, undo)
}

// onAsOne switches on all groups that are off by the records, and writes the records.
func (e *Enforcer) onAsOne(ctx context.Context, recs []*Record) (is switched, err error) {
	var groups []rm.Group
	for _, rec := range recs {
		groups = append(groups, rec.groupsOff()...)
	}
	if len(groups) == 0 {
		return is, nil
	}
	if is.skew, err = e.driver().SwitchAsOne(ctx, groups, true); err != nil {
		// One of them may be gone: try each by itself, in parallel.
		return switched{}, e.onEach(ctx, recs)
	}
	is.any = true
	for _, rec := range recs {
		for i := range rec.Groups {
			rec.Groups[i].Off = false
		}
		err = errors.Join(err, e.keep(rec))
	}
	return is, err
}

func (e *Enforcer) onEach(ctx context.Context, recs []*Record) error {
	errs := make(chan error, len(recs))
	for _, rec := range recs {
		go func() {
			err := errAborted // whatever ends this goroutine, onEach gets its answer
			defer func() { errs <- err }()
			if err = e.on(ctx, rec, nil); errors.Is(err, rm.ErrGone) && !e.alive(rec.Process()) {
				err = nil
			}
		}()
	}
	var err error
	for range recs {
		err = errors.Join(err, <-errs)
	}
	return err
}

// takeOff marks groups as off, and returns those that were on.
func (r *Record) takeOff(groups []rm.Group) (more []rm.Group) {
	for _, g := range groups {
		en := r.entry(g)
		if en.Off && !slices.ContainsFunc(g.Channels, func(c uint32) bool { return !slices.Contains(en.Channels, c) }) {
			continue
		}
		more = append(more, g)
		en.Off, en.FD, en.Subdevice, en.Channels = true, g.FD, g.Subdevice, slices.Clone(g.Channels)
	}
	return more
}

// groupsOff returns the groups that are off.
func (r *Record) groupsOff() (groups []rm.Group) {
	for _, en := range r.Groups {
		if en.Off {
			groups = append(groups, en.group(r.Process()))
		}
	}
	return groups
}
