package task

import (
	"slices"
	"time"
)

// sameTime is by how much two readings of one moment differ, for wall clock and monotonic
// clock are read one after the other.
const sameTime = time.Millisecond

// At returns a copy of the snapshot whose times are told by the clock as it is at now,
// which was read just now: with the monotonic clock, so that their order and distances
// stay right however the wall clock is set, and as the wall clock would have told them
// had it always been set as it is now. Age is that of the facts at now; 0 where the device
// has confirmed none yet.
func (s *Snapshot) At(now time.Time) *Snapshot {
	c := *s
	if c.Age = 0; !s.Time.IsZero() {
		c.Age = SecondsOf(max(0, now.Sub(s.Time)))
	}
	c.Time = toldAt(now, s.Time)
	c.Tasks, c.Ended = slices.Clone(s.Tasks), slices.Clone(s.Ended)
	for _, tasks := range [][]Task{c.Tasks, c.Ended} {
		for i := range tasks {
			tasks[i] = tasks[i].At(now)
		}
	}
	return &c
}

// At returns the task with its times told by the clock as it is at now, as Snapshot.At.
func (t Task) At(now time.Time) Task {
	t.Start.Time = toldAt(now, t.Start.Time)
	t.Deadline = toldAt(now, t.Deadline)
	t.StateSince = toldAt(now, t.StateSince)
	if t.End != nil {
		end := *t.End
		end.Time = toldAt(now, end.Time)
		t.End = &end
	}
	return t
}

// toldAt: the difference of two times is that of their monotonic readings where both have
// one, and that of their wall clock readings else.
func toldAt(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	told := now.Add(t.Sub(now))
	if d := told.Round(0).Sub(t.Round(0)).Abs(); d != 0 && d < sameTime {
		return t
	}
	return told
}
