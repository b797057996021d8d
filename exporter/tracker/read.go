package tracker

import (
	"errors"
	"io/fs"
	"maps"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
)

func (l *loop) request() {
	if !l.reading {
		l.reading = true
		l.requests <- struct{}{}
	}
}

// hurry brings the next reading forward, because it will show what just happened.
func (l *loop) hurry() {
	now := time.Now()
	d := soon(now.Sub(l.readAt), l.took, l.opt.FastPoll, l.opt.SlowPoll)
	if at := now.Add(d); !l.reading && at.Before(l.nextPoll) {
		l.nextPoll = at
		l.poll.Reset(d)
	}
}

func (l *loop) onReading(r reading) {
	l.reading, l.readAt, l.took = false, time.Now(), r.took
	l.answered.device = true
	for _, o := range l.opt.Observers {
		o.Polled(r.took, r.err)
	}
	if r.err != nil {
		l.m.DeviceDown(r.err.Error(), l.readAt)
	} else {
		for _, g := range r.GPUs {
			for _, p := range g.Processes {
				l.meetListed(p.PID, r.done)
			}
		}
		l.takeSwaps(r)
		l.takeExits(r)
		l.m.Device(r.Reading, r.done)
	}
	activity := l.m.Activity()
	l.attend(activity, time.Now())
	d := interval(activity, time.Since(l.newcomer) < newcomerFor, r.took, l.opt.FastPoll, l.opt.SlowPoll)
	l.nextPoll = time.Now().Add(d)
	l.poll.Reset(d)
}

// takeSwaps reads which processes are swapped.
func (l *loop) takeSwaps(r reading) {
	if l.opt.Swaps == nil {
		return
	}
	off, err := l.opt.Swaps.Swapped()
	if err != nil && !l.swapsFailed {
		l.log.Warn("the notices of swapped tasks cannot be read: a task that is swapped from now on may count as ended", "err", err)
	}
	l.swapsFailed = err != nil
	var count map[int]string
	count, l.off = swapped(l.off, off, err)
	l.m.Swaps(count, r.done)
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			if _, noticed := off[p.PID]; !noticed {
				delete(l.off, p.PID) // it is back
			}
		}
	}
}

// swapped returns the processes that count as swapped, by PID, and those to remember. The ones that
// were swapped at the beginning of the reading of the device count and those that are now: it shows
// the device at a moment in between. While a file cannot be read, all of them are remembered: who
// exits meanwhile is known by other means, and who is back is listed.
func swapped(before, now map[int]string, err error) (count, remember map[int]string) {
	count = maps.Clone(before)
	if count == nil {
		count = map[int]string{}
	}
	maps.Copy(count, now)
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
		return count, maps.Clone(count)
	}
	return count, now
}

// takeExits finds out which processes are off the list because they exit. The reading may
// overtake the event that says when they began to.
func (l *loop) takeExits(r reading) {
	for _, p := range l.m.Vanished(r.Reading) {
		if stat, err := l.opt.Processes.Stat(p.PID); errors.Is(err, fs.ErrNotExist) || err == nil && stat.Exiting {
			l.m.Vanishing(p, r.done)
		}
	}
}

func (l *loop) meetListed(pid int, now time.Time) {
	s, ok := l.m.Known(pid)
	if !ok || l.m.Exited(s.Process) { // then another process may have its PID
		if s, err := l.resolver.subject(pid); err == nil {
			l.m.Meet(s)
			l.know(s.Process)
			l.loaded(s.Process)
		} else if !errors.Is(err, sensor.ErrGone) {
			l.unwatched(pid, err)
		}
		return
	}
	if s.Container == "" {
		if s, found := l.resolver.again(s, now); found {
			l.m.Meet(s)
		}
	}
}
