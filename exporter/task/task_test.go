package task_test

import (
	"math"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestFloatAndOutcome(t *testing.T) {
	end := func(after time.Duration) *task.Mark { return &task.Mark{Time: t0.Add(after)} }
	for name, tc := range map[string]struct {
		task    task.Task
		now     time.Duration
		float   float64
		outcome task.Outcome
		tardy   time.Duration
	}{
		"unfinished, time to spare":  {task.Task{State: task.Running, Deadline: t0.Add(9 * time.Second)}, 4 * time.Second, 5, "", 0},
		"unfinished, overdue":        {task.Task{State: task.Paused, Deadline: t0.Add(9 * time.Second)}, 10 * time.Second, -1, "", 0},
		"ended: now does not matter": {task.Task{State: task.Ended, Deadline: t0.Add(9 * time.Second), End: end(7 * time.Second)}, time.Hour, 2, task.Hit, 0},
		"ended on the deadline":      {task.Task{State: task.Ended, Deadline: t0.Add(9 * time.Second), End: end(9 * time.Second)}, 0, 0, task.Hit, 0},
		"ended late":                 {task.Task{State: task.Ended, Deadline: t0.Add(9 * time.Second), End: end(12 * time.Second)}, 0, -3, task.Miss, 3 * time.Second},
		"ended, no deadline":         {task.Task{State: task.Ended, End: end(time.Second)}, 0, math.Inf(1), task.NoDeadline, 0},
		"lost is lost, even in time": {task.Task{State: task.Lost, Deadline: t0.Add(9 * time.Second), End: end(time.Second)}, 0, 8, task.LostOutcome, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := float64(tc.task.Float(t0.Add(tc.now))); got != tc.float {
				t.Errorf("Float = %v, want %v", got, tc.float)
			}
			if got := tc.task.Outcome(); got != tc.outcome {
				t.Errorf("Outcome = %q, want %q", got, tc.outcome)
			}
			if got := tc.task.Tardiness(); got != tc.tardy {
				t.Errorf("Tardiness = %v, want %v", got, tc.tardy)
			}
		})
	}
}

func TestDurationIsNeverNegative(t *testing.T) {
	tk := task.Task{Start: task.Mark{Time: t0}}
	if d := tk.Duration(t0.Add(-time.Second)); d != 0 {
		t.Errorf("Duration before the start = %v, want 0", d)
	}
	if d := tk.Duration(t0.Add(2 * time.Second)); d != 2*time.Second {
		t.Errorf("Duration = %v, want 2s", d)
	}
}

func TestUnfinished(t *testing.T) {
	for state, want := range map[task.State]bool{
		task.Candidate: false, task.Running: true, task.Held: true, task.Paused: true,
		task.Swapped: true, task.Ended: false, task.Lost: false,
	} {
		if state.Unfinished() != want {
			t.Errorf("%s.Unfinished() = %v, want %v", state, !want, want)
		}
	}
	for _, s := range task.UnfinishedStates {
		if !s.Unfinished() {
			t.Errorf("UnfinishedStates holds %s", s)
		}
	}
}
