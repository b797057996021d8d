package core

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// The member of a gang that comes last on a GPU has the gang's place there; of one member's processes the first task counts.
func TestLastOfAGang(t *testing.T) {
	now := time.Unix(1000, 0)
	of := func(id string, standing plan.Standing, deadlines ...int) part {
		p := part{Container: task.Container{ID: id}, plan: plan.Container{ID: id, Standing: standing}}
		for i, s := range deadlines {
			u := user{pid: i}
			if s > 0 {
				u.task = &task.Task{ID: id, Deadline: now.Add(time.Duration(s) * time.Second)}
			}
			p.users = append(p.users, u)
		}
		return p
	}
	for _, tc := range []struct {
		name  string
		parts []part
		want  string
		due   int // of its task, seconds from now; 0: it has none
	}{
		{"one", []part{of("a", plan.Runs, 9)}, "a", 9},
		{"the last", []part{of("a", plan.Runs, 9), of("b", plan.Runs, 30), of("c", plan.Runs, 20)}, "b", 30},
		{"by the first of each", []part{of("a", plan.Runs, 9, 99), of("b", plan.Runs, 30, 20)}, "b", 20},
		{"one without a task", []part{of("a", plan.Runs, 9), of("b", plan.Runs, 0)}, "a", 9},
		{"the first one without", []part{of("a", plan.Runs, 0), of("b", plan.Runs, 9)}, "b", 9},
		{"one that is paused", []part{of("a", plan.Runs, 9), of("b", plan.Somebody, 30)}, "a", 9},
		{"the first one is paused", []part{of("a", plan.Somebody, 30), of("b", plan.Runs, 9)}, "b", 9},
		{"nobody has a task", []part{of("a", plan.Runs, 0), of("b", plan.Runs, 0)}, "a", 0},
	} {
		p, u := last(tc.parts, policy.EDF{Now: now})
		due := 0
		if u.task != nil {
			due = int(u.task.Deadline.Sub(now).Seconds())
		}
		if p.ID != tc.want || due != tc.due {
			t.Errorf("%s: %s with %d, want %s with %d", tc.name, p.ID, due, tc.want, tc.due)
		}
	}
}
