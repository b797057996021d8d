package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Window is the time that is shown: the past since From, and what lies ahead up
// to To.
type Window struct{ From, Now, To time.Time }

// ahead are the shares of the past for which room is made on the right.
var ahead = []float64{0.08, 0.25, 0.5}

// NewWindow shows this much of the past, and of what lies ahead enough for the
// deadlines of the unfinished tasks, up to half as much. The room ahead comes in
// few sizes, so that the picture does not change its scale all the time.
func NewWindow(now time.Time, past time.Duration, entries []Entry) Window {
	w := Window{From: now.Add(-past), Now: now}
	for _, share := range ahead {
		w.To = now.Add(time.Duration(share * float64(past)))
		if !slices.ContainsFunc(entries, func(e Entry) bool { return e.End == nil && e.Deadline.After(w.To) }) {
			break
		}
	}
	return w
}

// X is where a moment lies in the window, percent; it may be outside 0–100.
func (w Window) X(t time.Time) float64 {
	return 100 * float64(t.Sub(w.From)) / float64(w.To.Sub(w.From))
}

// Range is a stretch of the line, percent of its width: 0 ≤ X, X+W ≤ 100.
type Range struct{ X, W float64 }

// End is where the range ends, percent.
func (r Range) End() float64 { return r.X + r.W }

// leastWidth keeps short tasks visible, percent.
const leastWidth = 0.3

// clip is the visible part of from–to.
func (w Window) clip(from, to time.Time) Range {
	a := min(max(w.X(from), 0), 100)
	b := min(max(w.X(to), a), 100)
	return Range{a, b - a}
}

// Segment is the visible part of a Span.
type Segment struct {
	Range
	State task.State
}

// Mark is a deadline on the line.
type Mark struct {
	X float64
	// Beyond: it lies outside the window, on the side of X, which is 0 or 100.
	Beyond bool
}

// Bar is one task.
type Bar struct {
	Range
	Task Entry
	// Row is the track of the lane that it lies in; bars of one row do not overlap.
	Row      int
	Segments []Segment
	// Cut: it began before the window.
	Cut bool
	// Deadline is nil without one. Spare is what lies between end and deadline (or
	// now and deadline), Late what of the bar lies behind its deadline; nil if
	// nothing does.
	Deadline    *Mark
	Spare, Late *Range
	// Short are the tasks that it stands for, where they are too short to be told apart:
	// Task is then the one with the least float, and there is no mark of a deadline.
	Short []Entry
}

// Lane is one container, by name: one that was made anew goes on in its lane.
type Lane struct {
	Container string
	Bars      []Bar
	Rows      int
	// Hidden counts the tasks for which there is no row.
	Hidden int
}

// maxRows bounds the height of a lane.
const maxRows = 12

// Lay puts the tasks that used the GPU into lanes, by name: a moving picture must
// not change places.
func Lay(entries []Entry, gpu string, w Window) []Lane {
	var lanes []Lane
	index := map[string]int{}
	for _, e := range entries {
		end := w.end(e)
		if !slices.Contains(e.GPUs, gpu) || end.Before(w.From) || e.Start.Time.After(w.To) {
			continue
		}
		i, ok := index[e.Container]
		if !ok {
			i = len(lanes)
			index[e.Container] = i
			lanes = append(lanes, Lane{Container: e.Container})
		}
		lanes[i].Bars = append(lanes[i].Bars, w.bar(e))
	}
	for i := range lanes {
		lanes[i].merge(w)
		lanes[i].stack()
	}
	slices.SortFunc(lanes, func(a, b Lane) int { return cmp.Compare(a.Container, b.Container) })
	return lanes
}

// end is the end of a task, or now; never before its start.
func (w Window) end(e Entry) time.Time {
	end := w.Now
	if e.End != nil {
		end = e.End.Time
	}
	if end.Before(e.Start.Time) {
		end = e.Start.Time
	}
	return end
}

func (w Window) bar(e Entry) Bar {
	end := w.end(e)
	b := Bar{Range: w.clip(e.Start.Time, end), Task: e, Cut: e.Start.Time.Before(w.From)}
	if b.W < leastWidth {
		b.W = leastWidth
		b.X = min(b.X, 100-leastWidth)
	}
	for _, s := range e.Spans {
		to := s.To
		if to.IsZero() || to.After(end) {
			to = end
		}
		if r := w.clip(s.From, to); r.W > 0 {
			b.Segments = append(b.Segments, Segment{r, s.State})
		}
	}
	if len(b.Segments) < 2 { // of a bar that was made wider too
		state := task.Running
		if len(e.Spans) > 0 {
			state = e.Spans[len(e.Spans)-1].State
		}
		if len(b.Segments) == 1 {
			state = b.Segments[0].State
		}
		b.Segments = []Segment{{b.Range, state}}
	}
	if e.HasDeadline() {
		w.mark(&b, end)
	}
	return b
}

func (w Window) mark(b *Bar, end time.Time) {
	x := w.X(b.Task.Deadline)
	b.Deadline = &Mark{X: min(max(x, 0), 100), Beyond: x < 0 || x > 100}
	if r := w.clip(end, b.Task.Deadline); r.W > 0 {
		b.Spare = &r
	}
	if b.Task.Deadline.Before(end) {
		if r := w.clip(b.Task.Deadline, end); r.W > 0 {
			b.Late = &r
		}
	}
}

// stack gives each bar the first row in which it overlaps no other.
func (l *Lane) stack() {
	slices.SortStableFunc(l.Bars, func(a, b Bar) int { return cmp.Compare(a.X, b.X) })
	var ends []float64
	var shown []Bar
	for _, b := range l.Bars {
		row := slices.IndexFunc(ends, func(end float64) bool { return end <= b.X })
		if row < 0 && len(ends) == maxRows {
			l.Hidden++
			continue
		}
		if row < 0 {
			row = len(ends)
			ends = append(ends, 0)
		}
		b.Row, ends[row] = row, b.End()
		shown = append(shown, b)
	}
	l.Bars, l.Rows = shown, max(l.Rows, len(ends))
}

// Tick is a mark of the axis, Ahead (negative: ago) from now.
type Tick struct {
	X     float64
	Ahead time.Duration
}

// Ticks are the marks of the axis, now among them.
func (w Window) Ticks() []Tick {
	steps := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour}
	length := w.To.Sub(w.From)
	step := steps[len(steps)-1]
	for _, s := range steps {
		if length/s <= 8 {
			step = s
			break
		}
	}
	var ticks []Tick
	for d := -(w.Now.Sub(w.From) / step) * step; d <= w.To.Sub(w.Now); d += step {
		ticks = append(ticks, Tick{w.X(w.Now.Add(d)), d})
	}
	return ticks
}
