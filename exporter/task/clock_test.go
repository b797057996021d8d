package task_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/clocktest"
)

// A task began, the wall clock was set, and now its times are sent.
func TestTimesOfBeforeTheClockWasSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, 0, time.Hour} {
		before := time.Now()
		start := before.Add(-20 * time.Second)
		end := task.Mark{Time: before.Add(-5 * time.Second)}
		s := &task.Snapshot{Time: before.Add(-2 * time.Second), Tasks: []task.Task{
			{Start: task.Mark{Time: start}, Deadline: start.Add(30 * time.Second), StateSince: start},
			{Start: task.Mark{Time: start}},
		}, Ended: []task.Task{{Start: task.Mark{Time: start}, End: &end}},
			Cards: []task.Card{{}, {
				Switches: &task.Switches{From: before.Add(-time.Second)},
				LastXids: map[uint64]time.Time{79: before.Add(-3 * time.Second)},
			}}}
		now := clocktest.Set(t, before, set)
		sent := s.At(now)
		if got := sent.Age.Duration(); got != 2*time.Second {
			t.Errorf("set by %v: age %v", set, got)
		}
		for name, tt := range map[string]struct {
			at   time.Time
			want time.Duration
		}{
			"confirmed":   {sent.Time, -2 * time.Second},
			"start":       {sent.Tasks[0].Start.Time, -20 * time.Second},
			"deadline":    {sent.Tasks[0].Deadline, 10 * time.Second},
			"state since": {sent.Tasks[0].StateSince, -20 * time.Second},
			"end":         {sent.Ended[0].End.Time, -5 * time.Second},
			"switches":    {sent.Cards[1].Switches.From, -time.Second},
			"last Xid":    {sent.Cards[1].LastXids[79], -3 * time.Second},
		} {
			if wall, mono := tt.at.Round(0).Sub(now.Round(0)), tt.at.Sub(now); wall != tt.want || mono != tt.want {
				t.Errorf("set by %v: %s is %v from now by the wall clock and %v by the monotonic one, want %v", set, name, wall, mono, tt.want)
			}
		}
		if !sent.Tasks[1].Deadline.IsZero() || !sent.Tasks[1].StateSince.IsZero() {
			t.Error("a time that was not known is known now")
		}
		if !s.Tasks[0].Start.Time.Equal(start) || !s.Ended[0].End.Time.Equal(end.Time) || !s.Cards[1].Switches.From.Equal(before.Add(-time.Second)) ||
			!s.Cards[1].LastXids[79].Equal(before.Add(-3*time.Second)) {
			t.Error("the original was changed")
		}
	}
}

// Who reads a snapshot gives its times the monotonic clock: what is done to the wall clock
// afterwards does not move them.
func TestTimesThatWereReadKeepTheirDistance(t *testing.T) {
	now := time.Now()
	read := &task.Snapshot{Time: now.Round(0), Tasks: []task.Task{{Deadline: now.Round(0).Add(9 * time.Second)}}}
	own := read.At(now)
	if !own.Tasks[0].Deadline.Round(0).Equal(read.Tasks[0].Deadline) {
		t.Errorf("the deadline moved to %v", own.Tasks[0].Deadline)
	}
	later := clocktest.Set(t, now, -time.Hour)
	if got := own.Tasks[0].Float(later).Duration(); got != 9*time.Second {
		t.Errorf("float %v after the clock was set back, want 9s", got)
	}
}

func TestNothingConfirmedHasNoAge(t *testing.T) {
	if s := (&task.Snapshot{}).At(time.Now()); s.Age != 0 || !s.Time.IsZero() {
		t.Errorf("age %v, time %v", s.Age, s.Time)
	}
}
