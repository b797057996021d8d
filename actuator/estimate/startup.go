package estimate

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Starting takes note that the task has not got to its first launch.
func (b *Book) Starting(id string) {
	if w := b.tasks[id]; w != nil {
		w.starting = true
	}
}

// Launched takes note that the task has got to its first launch, if it was seen
// Starting. Again, it does nothing.
func (b *Book) Launched(t task.Task, now time.Time) {
	w := b.tasks[t.ID]
	if w == nil || !w.starting || w.startup > 0 {
		return
	}
	w.startup, w.crowded = t.Ran(now).Seconds(), w.beside()
}

// beside reports whether others ran for a good part of the time.
func (w *watched) beside() bool { return w.looks > 0 && float64(w.shared) > 0.2*float64(w.looks) }

// startups are the lengths of the start-ups without others, or beside them; those of
// too few say nothing of the next one.
func (h *history) startups(crowded bool) []float64 {
	var out []float64
	for _, r := range h.Runs {
		if r.Startup > 0 && r.Crowded == crowded {
			out = append(out, r.Startup)
		}
	}
	return out
}

// rests are the lengths from the first launch on.
func (h *history) rests(shared bool) []float64 {
	var out []float64
	for _, r := range h.Runs {
		if r.Startup > 0 && r.Shared == shared {
			out = append(out, max(0, r.Seconds-r.Startup))
		}
	}
	return out
}

// few is how many runs that were undisturbed are too few to go by alone.
const few = 3

// undisturbed are the values without others, with those beside others where they are
// too few.
func undisturbed(of func(disturbed bool) []float64) []float64 {
	out := of(false)
	if len(out) < few {
		out = append(out, of(true)...)
	}
	return out
}

// byLaunch corrects an estimate by what is known of the first launch: however long a
// start-up takes, what comes after it is still to come; and once that has begun, how
// long the start-up took does not matter.
func (h *history) byLaunch(l *Length, w *watched, ran float64) {
	if w == nil || !w.starting {
		return
	}
	rests, alone := undisturbed(h.rests), h.rests(false)
	if w.startup == 0 {
		starts := undisturbed(h.startups)
		if len(starts) > 0 {
			l.Startup = seconds(left(quantile, ran, starts))
		}
		if alone, beside := h.startups(false), h.startups(true); len(alone) > 1 && len(beside) > 1 {
			l.Crowded = seconds(at(quantile, beside) - middle(alone))
		}
		l.Remaining = max(l.Remaining, seconds(at(quantile, rests)))
		l.Least = max(l.Least, seconds(at(lowQuantile, alone)))
		return
	}
	if since := max(0, ran-w.startup); len(rests) > 0 {
		l.Remaining = seconds(left(quantile, since, rests))
		l.Least = 0
		if longer := above(since, alone); len(longer) > 0 {
			l.Least = seconds(at(lowQuantile, longer) - since)
		}
	}
}
