package stop

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// End ends the holds of an open process and continues it, by the steps of the protocol. It sends
// SIGCONT also when the record cannot be written. If SIGCONT cannot be sent, the holds stay on record
// for Sweep.
func (r *Record) End(p *Process, holds []Hold) (err error) {
	var pending Pending
	for step := Release; step != Done; step = step.Next(pending) {
		switch step {
		case Inspect:
			pending, _ = p.Pending() // if it has ended, Continue finds no process
		case Continue:
			if cerr := p.Continue(); cerr != nil {
				return errors.Join(err, cerr)
			}
		case Mark, Forget:
			err = errors.Join(err, r.each(step, sent(holds)))
		default:
			err = errors.Join(err, r.each(step, holds))
		}
	}
	return err
}

// sent returns the holds that are over after SIGCONT. The others are only marked Released and stay
// on record: their threads may send SIGSTOP later, and then look for the mark. Such a thread removes
// its hold, or it passed the check before the mark and a later sweep finds it.
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

// Sweep ends every overdue hold and forgets the holds of processes that have ended. It returns the
// last hold of each process that Laxity had left stopped. proc is where the host's proc file system is
// mounted.
func (r *Record) Sweep(proc string, now time.Duration) (stopped []Hold, err error) {
	stopped, err = r.EndAll(proc, func(h Hold) bool { return h.Overdue(now) })
	return stopped, errors.Join(err, r.Tidy(now-unseen))
}

// EndAll opens each process and ends its holds that are over. It forgets finished holds, and holds of
// processes that have ended. It returns the last hold of each process that was stopped.
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
	err = r.each(Forget, through) // what stays on record keeps nobody stopped
	if len(ending) == 0 {
		return false, err
	}
	threads, _ := p.Threads() // if it has ended, it was not left stopped
	return threads.Stopped, errors.Join(err, r.End(p, ending))
}

// toEnd divides the holds of one process into those to end and those to forget only. While one of
// the holds is still wanted it ends none, because SIGCONT continues the whole process.
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

// after is how long ReleaseAll goes on looking, and trying again what failed. A thread that is about to
// stop itself while the guard is opened appears on record a moment later, and continues itself.
const after = 30 * time.Millisecond

// Options of ReleaseAll. Name is required.
type Options struct {
	Name string
	Proc string // /proc by default
	// IfExpired releases only if nobody renewed the guard in time.
	IfExpired bool
}

// ReleaseAll opens the guard of this name and continues every process on its record. It returns
// when the record is empty, or when ctx ends, with the number of processes that it found stopped.
// One that cannot be continued, or a guard that cannot be opened, is no reason to leave others
// stopped: it tries all, again for a moment, and returns the errors of the last try.
// It needs no running guard, and does nothing where there never was one. ReleaseAll is idempotent.
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
	}
	found := map[Hold]bool{}            // one that cannot be continued is found stopped at each try
	began, opened := Now(), o.IfExpired // a guard whose lease ran out is open
	for {
		var oerr error
		if !opened {
			if oerr = r.Open(); oerr == nil {
				began, opened = Now(), true
			}
		}
		were, err := r.EndAll(o.Proc, func(Hold) bool { return true })
		for _, h := range were {
			found[Hold{PID: h.PID, Start: h.Start}] = true
		}
		left, lerr := r.List()
		err = errors.Join(oerr, err, lerr)
		if (err != nil || len(left) == 0) && (o.IfExpired || Now()-began >= after) {
			return len(found), err
		}
		select {
		case <-ctx.Done():
			return len(found), errors.Join(err, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// SweepAll calls Sweep for the record of this name, if there is one. It returns the PIDs of the
// strays: processes that Laxity left stopped. It also continues processes of a guard that died
// before since; they are no strays, because their guard could not continue them.
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

// open opens the record. It returns nil without an error if there is none.
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
