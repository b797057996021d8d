// Package timeline remembers when tasks ran, were held, paused and swapped, and
// lays that out as bars on a line of time.
//
// Pure: it imports the standard library and exporter/task only.
package timeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Span is one stay of a task in one state.
type Span struct {
	State task.State
	// To is zero while the stay goes on.
	From, To time.Time
}

// Entry is one task and where its time went, in the order of time, without gaps
// from its start to its end. What happened before the first snapshot counts as
// running.
type Entry struct {
	task.Task
	Spans []Span
}

const (
	// maxTasks bounds the memory of a History. Beyond it the oldest of who has the most are
	// dropped, down to trimmed.
	maxTasks = 2048
	trimmed  = maxTasks - maxTasks/16
	// maxSpans bounds what is remembered of one task; its first stays are then
	// shown as one.
	maxSpans = 128
)

// History learns from the stream of snapshots. It is safe for concurrent use.
type History struct {
	keep time.Duration

	mu      sync.Mutex
	entries map[string]*Entry
}

// New makes a History that keeps tasks for this long after their end.
func New(keep time.Duration) *History {
	return &History{keep: keep, entries: map[string]*Entry{}}
}

// Observe adds a snapshot. Snapshots may be left out: each task says
// since when it is in its state, and how long it stood still before.
func (h *History) Observe(s *task.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[string]bool, len(s.Tasks))
	for _, t := range s.Tasks {
		if !t.State.Unfinished() {
			continue
		}
		seen[t.ID] = true
		if e, ok := h.entries[t.ID]; ok {
			e.follow(t)
		} else {
			h.entries[t.ID] = begin(t)
		}
	}
	for _, t := range s.Ended {
		if t.End == nil || s.Time.Sub(t.End.Time) > h.keep {
			continue
		}
		e, ok := h.entries[t.ID]
		if !ok {
			e = begin(t)
			h.entries[t.ID] = e
		}
		seen[t.ID] = true
		e.finish(t)
	}
	for id, e := range h.entries {
		if e.End == nil && !seen[id] { // its end fell out of the snapshot's history
			t := e.Task
			t.State, t.End = task.Lost, &task.Mark{Time: s.Time}
			e.finish(t)
		}
	}
	h.trim(s.Time)
}

// begin makes the entry of a task that was not known.
func begin(t task.Task) *Entry {
	e := &Entry{Task: t, Spans: []Span{{State: task.Running, From: t.Start.Time}}}
	if t.End == nil && t.State != task.Running {
		e.enter(t.State, t.StateSince)
	}
	return e
}

// follow adds an unfinished task.
func (e *Entry) follow(t task.Task) {
	last := e.Spans[len(e.Spans)-1]
	switch {
	case e.End != nil: // it was thought lost
		e.Spans[len(e.Spans)-1].To = time.Time{}
		e.enter(t.State, t.StateSince)
	case t.State != last.State:
		e.enter(t.State, t.StateSince)
	case t.State == task.Running && t.StateSince.After(last.From):
		// It stood still between two snapshots. A hold goes over into a pause.
		paused := t.StateSince.Add(-max(0, (t.PausedSeconds - e.PausedSeconds).Duration()))
		e.enter(task.Held, paused.Add(-max(0, (t.HeldSeconds-e.HeldSeconds).Duration())))
		e.enter(task.Paused, paused)
		e.enter(task.Running, t.StateSince)
	}
	e.Task = t
}

// enter begins a stay at a moment, which is never before the stay under way
// began. A stay without length leaves no trace.
func (e *Entry) enter(s task.State, at time.Time) {
	last := &e.Spans[len(e.Spans)-1]
	if at.Before(last.From) {
		at = last.From
	}
	last.To = at
	if !last.To.After(last.From) {
		e.Spans = e.Spans[:len(e.Spans)-1]
	}
	if n := len(e.Spans); n > 0 && e.Spans[n-1].State == s {
		e.Spans[n-1].To = time.Time{}
		return
	}
	e.Spans = append(e.Spans, Span{State: s, From: at})
	if len(e.Spans) > maxSpans {
		half := maxSpans / 2
		e.Spans[half].From, e.Spans[half].State = e.Spans[0].From, task.Running
		e.Spans = slices.Delete(e.Spans, 0, half)
	}
}

// finish adds a task's end.
func (e *Entry) finish(t task.Task) {
	e.Task = t
	last := &e.Spans[len(e.Spans)-1]
	for len(e.Spans) > 1 && !last.From.Before(t.End.Time) {
		e.Spans = e.Spans[:len(e.Spans)-1]
		last = &e.Spans[len(e.Spans)-1]
	}
	last.To = t.End.Time
	if last.To.Before(last.From) {
		last.To = last.From
	}
}

// trim forgets what ended long ago, and beyond the bound the oldest of the containers that have
// the most: a server's requests do not push out what others did. To find these it sorts, so it
// makes room for many more at once.
func (h *History) trim(now time.Time) {
	for id, e := range h.entries {
		if e.End != nil && now.Sub(e.End.Time) > h.keep {
			delete(h.entries, id)
		}
	}
	if len(h.entries) <= maxTasks {
		return
	}
	var ended []*Entry
	for _, e := range h.entries {
		if e.End != nil {
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b *Entry) int { return b.End.Time.Compare(a.End.Time) })
	var places [][]*Entry // the last task of each container, the last but one, and so on
	place := map[string]int{}
	for _, e := range ended {
		n := place[e.Container]
		if place[e.Container]++; n == len(places) {
			places = append(places, nil)
		}
		places[n] = append(places[n], e)
	}
	room := max(0, trimmed-(len(h.entries)-len(ended)))
	for _, e := range slices.Concat(places...)[min(room, len(ended)):] {
		delete(h.entries, e.ID)
	}
}

// Since returns the tasks that are unfinished or ended at t or later, oldest
// start first.
func (h *History) Since(t time.Time) []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Entry
	for _, e := range h.entries {
		if e.End == nil || !e.End.Time.Before(t) {
			out = append(out, Entry{e.Task, slices.Clone(e.Spans)})
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(a.Start.Time.Compare(b.Start.Time), cmp.Compare(a.ID, b.ID))
	})
	return out
}
