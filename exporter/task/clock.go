package task

import (
	"slices"
	"time"
)

// sameTime is by how much two readings of one moment may differ: Go reads the wall clock and
// the monotonic clock one after the other.
const sameTime = time.Millisecond

// At returns a copy of the snapshot with its times on the wall clock as that is set now,
// which was read just now. The monotonic clock keeps their order and distances, however the
// wall clock was set in between. Age is the age of the facts at now; it is 0 where the device
// has not confirmed any yet.
func (s *Snapshot) At(now time.Time) *Snapshot {
	c := *s
	if c.Age = 0; !s.Time.IsZero() {
		c.Age = SecondsOf(max(0, now.Sub(s.Time)))
	}
	c.Time = onClock(now, s.Time)
	c.Tasks, c.Ended = slices.Clone(s.Tasks), slices.Clone(s.Ended)
	for _, tasks := range [][]Task{c.Tasks, c.Ended} {
		for i := range tasks {
			tasks[i] = tasks[i].At(now)
		}
	}
	c.Cards = slices.Clone(s.Cards)
	for i, card := range c.Cards {
		if card.Switches != nil {
			moved := *card.Switches
			moved.From = onClock(now, moved.From)
			c.Cards[i].Switches = &moved
		}
		if len(card.LastXids) > 0 {
			moved := make(map[uint64]time.Time, len(card.LastXids))
			for xid, at := range card.LastXids {
				moved[xid] = onClock(now, at)
			}
			c.Cards[i].LastXids = moved
		}
	}
	return &c
}

// At returns the task with its times on the wall clock as that is set now, as Snapshot.At
// does.
func (t Task) At(now time.Time) Task {
	t.Start.Time = onClock(now, t.Start.Time)
	t.Deadline = onClock(now, t.Deadline)
	t.StateSince = onClock(now, t.StateSince)
	if t.End != nil {
		end := *t.End
		end.Time = onClock(now, end.Time)
		t.End = &end
	}
	return t
}

// onClock moves t to the clock of now. It uses the monotonic readings where both times have
// one, otherwise those of the wall clock.
func onClock(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	moved := now.Add(t.Sub(now))
	if d := moved.Round(0).Sub(t.Round(0)).Abs(); d != 0 && d < sameTime {
		return t
	}
	return moved
}
