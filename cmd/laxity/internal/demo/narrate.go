// Package demo shows the main job on real containers: three tasks with deadlines
// on one GPU, once without Laxity and once with it.
package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

// happening is one event in a person's words.
type happening struct {
	at        time.Time
	container string
	what      string
}

// narrate returns what happened to tasks between two snapshots, in order of time. prev may be
// nil. It reports only containers for which ours is true.
func narrate(prev, next *task.Snapshot, ours func(name string) bool) []happening {
	before := map[string]task.Task{}
	if prev != nil {
		for _, t := range slices.Concat(prev.Tasks, prev.Ended) {
			before[t.ID] = t
		}
	}
	var happened []happening
	for _, t := range slices.Concat(next.Tasks, next.Ended) {
		if !ours(t.Container) {
			continue
		}
		old, known := before[t.ID]
		if !known {
			happened = append(happened, happening{t.Start.Time, t.Container, started(t)})
		}
		if known && old.State == t.State || !known && t.State == task.Running {
			continue
		}
		switch t.State {
		case task.Running:
			happened = append(happened, happening{t.StateSince, t.Container, "runs again"})
		case task.Held, task.Paused, task.Swapped:
			happened = append(happened, happening{t.StateSince, t.Container, string(t.State)})
		case task.Ended:
			happened = append(happened, happening{t.End.Time, t.Container, ended(t)})
		case task.Lost:
			happened = append(happened, happening{t.End.Time, t.Container, "lost: its end was not seen"})
		}
	}
	slices.SortStableFunc(happened, func(a, b happening) int { return a.at.Compare(b.at) })
	return happened
}

func started(t task.Task) string {
	s := fmt.Sprintf("task started (seen by %s, at most %.1f ms late)", t.Start.Source, 1000*float64(t.Start.ErrorBound))
	if t.HasDeadline() {
		s += fmt.Sprintf(", deadline in %.1fs", t.Deadline.Sub(t.Start.Time).Seconds())
	}
	return s
}

func ended(t task.Task) string {
	s := fmt.Sprintf("task ended after %.2fs", t.Duration(time.Time{}).Seconds())
	if t.HasDeadline() {
		s += fmt.Sprintf(", float %s: %s", view.Float(t.Float(time.Time{})), t.Outcome())
	}
	return s
}
