package stop

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// End ends holds of one process that is open, and continues it. It carries out the steps
// of the protocol, also when the record cannot be written: SIGCONT does not wait for that.
// If SIGCONT cannot be sent the holds stay on record, for Sweep.
func (r *Record) End(p *Process, holds []Hold) (stopped bool, err error) {
	var seen Seen
	for step := Release; step != Done; step = step.Next(seen) {
		switch step {
		case Inspect:
			seen, _ = p.Inspect() // of one that has ended Continue finds nobody
		case Continue:
			if cerr := p.Continue(); cerr != nil {
				return seen.Stopped, errors.Join(err, cerr)
			}
		case Mark, Forget:
			err = errors.Join(err, r.each(step, sent(holds)))
		default:
			err = errors.Join(err, r.each(step, holds))
		}
	}
	return seen.Stopped, err
}

// sent is those of the holds that are over after SIGCONT. The others are only marked
// Released, and stay on record: their threads may send SIGSTOP later, and look for the
// mark then. Such a thread takes its hold off the record, or was before the mark and is
// found again.
func sent(holds []Hold) []Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return !h.Sent })
}

func (r *Record) each(step Step, holds []Hold) error {
	now := Now()
	var errs []error
	for _, h := range holds {
		switch step {
		case Release:
			errs = append(errs, r.Release(h, now))
		case Mark:
			errs = append(errs, r.Mark(h, now))
		case Forget:
			errs = append(errs, r.Forget(h))
		}
	}
	return errors.Join(errs...)
}

// Sweep ends every hold that is overdue, whoever owns it, and forgets those of processes
// that have ended. It returns the last hold of each process that it found stopped though
// nobody wanted it to stand. proc is where the host's proc file system is mounted.
func (r *Record) Sweep(proc string, now time.Duration) (stopped []Hold, err error) {
	stopped, err = r.EndAll(proc, func(h Hold) bool { return h.Overdue(now) })
	return stopped, errors.Join(err, r.Tidy(now-unseen))
}

// EndAll ends the holds that are over, process by process, opening each, and forgets those of
// processes that have ended and those that are through. It returns the last hold of
// each process that was stopped.
func (r *Record) EndAll(proc string, over func(Hold) bool) (stopped []Hold, err error) {
	holds, err := r.List()
	byProcess := map[Hold][]Hold{}
	for _, h := range holds {
		same := Hold{PID: h.PID, Start: h.Start}
		byProcess[same] = append(byProcess[same], h)
	}
	for process, holds := range byProcess {
		was, perr := r.endThose(proc, process, holds, over)
		if err = errors.Join(err, perr); was {
			stopped = append(stopped, holds[len(holds)-1])
		}
	}
	return stopped, err
}

func (r *Record) endThose(proc string, process Hold, holds []Hold, over func(Hold) bool) (stopped bool, err error) {
	p, err := openProcess(proc, process)
	if errors.Is(err, errGone) {
		return false, r.each(Forget, holds)
	}
	if err != nil {
		return false, err
	}
	defer p.close()
	ending, through := toEnd(holds, over)
	if err := r.each(Forget, through); err != nil || len(ending) == 0 {
		return false, err
	}
	return r.End(p, ending)
}

// toEnd divides the holds of one process: those that are to be ended, and those that
// only wait to be forgotten. While one of them is still to stand none is ended, as
// SIGCONT is for the whole process.
func toEnd(holds []Hold, over func(Hold) bool) (ending, through []Hold) {
	for _, h := range holds {
		switch {
		case h.Phase == Continued:
			through = append(through, h)
		case over(h):
			ending = append(ending, h)
		default:
			return nil, through
		}
	}
	return ending, through
}

// after is for how long ReleaseAll looks again: a thread that is about to stop itself
// when the guard is opened is on record a moment later, and undoes it by itself.
const after = 30 * time.Millisecond

// Options of ReleaseAll. Name is required.
type Options struct {
	Name string
	Proc string // /proc by default
	// IfExpired does it only if nobody has renewed the guard in time.
	IfExpired bool
}

// ReleaseAll opens the guard of this name and continues everybody on its record. It
// returns when nobody is on record, or when ctx ends, with the number of processes that
// it found stopped. It needs no guard, and does nothing where there never was one.
// Doing it twice does no harm.
func ReleaseAll(ctx context.Context, o Options) (stopped int, err error) {
	r, err := open(&o)
	if r == nil {
		return 0, err
	}
	defer r.Close()
	if o.IfExpired {
		if expired, err := r.Expired(Now()); err != nil || !expired {
			return 0, err
		}
	} else if err := r.Open(); err != nil {
		return 0, err
	}
	for opened := Now(); ; {
		n, err := r.EndAll(o.Proc, func(Hold) bool { return true })
		stopped += len(n)
		left, lerr := r.List()
		if err = errors.Join(err, lerr); err != nil || len(left) == 0 && (o.IfExpired || Now()-opened >= after) {
			return stopped, err
		}
		select {
		case <-ctx.Done():
			return stopped, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// SweepAll is Sweep of the record of this name, where there is one. It returns the PIDs
// of the strays: processes that stood though nobody wanted them to. Those of a guard that
// died before since are continued too, and are none: nobody was there to do it.
func SweepAll(o Options, since time.Duration) (strays []int, err error) {
	r, err := open(&o)
	if r == nil {
		return nil, err
	}
	defer r.Close()
	stopped, err := r.Sweep(o.Proc, Now())
	for _, h := range stopped {
		if h.At >= since {
			strays = append(strays, h.PID)
		}
	}
	return strays, err
}

// open opens the record; nil without an error: there is none.
func open(o *Options) (*Record, error) {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	r, err := OpenRecord(o.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}
