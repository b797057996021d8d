package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/exporter/task"
)

// The measures of a lane, pixels: a row is a bar and, below it, the track of its
// spare time and deadline.
const (
	barHeight = 16
	trackAt   = 22 // the middle of the track, from the top of the row
	rowHeight = 28
	lanePad   = 2

	// labelFrom and labelAlways are how wide a bar must be (percent) for its label
	// on a large and on any screen.
	labelFrom, labelAlways = 7, 20

	// maxEnded and maxTable bound the drawing and the table of one GPU's tasks.
	maxEnded = 300
	maxTable = 50
)

// lanes fills in the time line of a GPU.
func (b *builder) lanes(g *GPU, w timeline.Window) {
	for _, t := range w.Ticks() {
		tick := Tick{X: percent(t.X), Text: axis(t.Ahead), Now: t.Ahead == 0, Anchor: "middle"}
		switch {
		case t.X < 3:
			tick.Anchor = "start"
		case t.X > 97:
			tick.Anchor = "end"
		}
		g.Ticks = append(g.Ticks, tick)
	}
	now := slices.IndexFunc(g.Ticks, func(t Tick) bool { return t.Now })
	for i := range g.Ticks {
		g.Ticks[i].Minor = (i-now)%2 != 0
	}
	g.Now = percent(w.X(w.Now))
	tasks, leftOut := latest(b.f.Tasks, g.UUID, w)
	g.TasksLeftOut = leftOut
	lanes := timeline.Lay(tasks, g.UUID, w)
	g.LanesLeftOut = max(0, len(lanes)-maxLanes)
	for _, l := range busiest(lanes) {
		g.Lanes = append(g.Lanes, b.lane(l))
	}
	g.NothingToShow = len(g.Lanes) == 0
	b.table(g, w)
}

// latest are the tasks of a GPU that are drawn: all that are unfinished, and those
// that ended last. Short ones do not count: many of them are one bar.
func latest(all []timeline.Entry, gpu string, w timeline.Window) (tasks []timeline.Entry, leftOut int) {
	var ended []time.Time
	for _, e := range all {
		if slices.Contains(e.GPUs, gpu) {
			tasks = append(tasks, e)
			if e.End != nil && !w.IsShort(e) {
				ended = append(ended, e.End.Time)
			}
		}
	}
	if len(ended) <= maxEnded {
		return tasks, 0
	}
	slices.SortFunc(ended, func(a, b time.Time) int { return b.Compare(a) })
	oldest := ended[maxEnded-1]
	n := len(tasks)
	tasks = slices.DeleteFunc(tasks, func(e timeline.Entry) bool { return e.End != nil && !w.IsShort(e) && e.End.Time.Before(oldest) })
	return tasks, n - len(tasks)
}

// busiest are the lanes for which there is room: first those with unfinished tasks
// stay, then those with the latest ones; their order stays too.
func busiest(lanes []timeline.Lane) []timeline.Lane {
	if len(lanes) <= maxLanes {
		return lanes
	}
	last := func(l timeline.Lane) time.Time {
		var t time.Time
		for _, b := range l.Bars {
			if b.Task.End == nil {
				return time.Unix(1<<40, 0)
			}
			if b.Task.End.Time.After(t) {
				t = b.Task.End.Time
			}
		}
		return t
	}
	byTime := slices.Clone(lanes)
	slices.SortStableFunc(byTime, func(x, y timeline.Lane) int { return last(y).Compare(last(x)) })
	kept := byTime[:maxLanes]
	slices.SortFunc(kept, func(x, y timeline.Lane) int { return cmp.Compare(x.Container, y.Container) })
	return kept
}

func (b *builder) lane(l timeline.Lane) Lane {
	lane := Lane{Name: l.Container, Height: 2*lanePad + rowHeight*l.Rows, Hidden: l.Hidden}
	shown, hits, misses := 0, 0, 0
	var urgent *timeline.Entry
	for _, x := range l.Bars {
		lane.Bars = append(lane.Bars, b.bar(x))
		all := x.Short
		if all == nil {
			all = []timeline.Entry{x.Task}
		}
		h, m := outcomes(all)
		shown, hits, misses = shown+len(all), hits+h, misses+m
		if x.Task.End == nil && (urgent == nil || x.Task.Float(b.f.Now) < urgent.Float(b.f.Now)) {
			urgent = &x.Task
		}
	}
	lane.State, lane.Tone = "gone", Plain
	if _, ok := b.f.Snapshot.FindContainer(l.Container); ok {
		lane.State = "idle"
	}
	if urgent != nil {
		float := float64(urgent.Float(b.f.Now))
		lane.State, lane.Tone = string(urgent.State), b.toneOf(urgent.Task)
		if lane.Tone != Plain {
			lane.Float = seconds(float)
		}
	}
	about := []string{plural(shown+l.Hidden, "task", "tasks") + " shown"}
	if hits+misses > 0 {
		about = append(about, fmt.Sprintf("%d hit and %d missed their deadline", hits, misses))
	}
	now := "now " + lane.State
	if lane.Float != "" {
		now += ", float " + lane.Float
	}
	lane.About = l.Container + ": " + strings.Join(append(about, now), "; ")
	return lane
}

// outcomes counts the tasks that met their deadline, and those that missed it.
func outcomes(all []timeline.Entry) (hits, misses int) {
	for _, e := range all {
		switch e.Outcome() {
		case task.Hit:
			hits++
		case task.Miss:
			misses++
		}
	}
	return hits, misses
}

// describeShort says in words what a bar of several short tasks shows.
func (b *builder) describeShort(x timeline.Bar) string {
	first, last := x.Short[0].Start.Time, x.Short[0].End.Time
	for _, e := range x.Short {
		if e.Start.Time.Before(first) {
			first = e.Start.Time
		}
		if e.End.Time.After(last) {
			last = e.End.Time
		}
	}
	s := fmt.Sprintf("%s, %s: %s to %s", x.Task.Container, plural(len(x.Short), "task", "tasks"), clock(first), clock(last))
	if hits, misses := outcomes(x.Short); hits+misses > 0 {
		s += fmt.Sprintf(", %d hit and %d missed their deadline, least float %s", hits, misses, seconds(float64(x.Task.Float(b.f.Now))))
	}
	return s
}

// toneOf is that of a task at this moment.
func (b *builder) toneOf(t task.Task) Tone {
	return tone(float64(t.Float(b.f.Now)), t.Deadline.Sub(t.Start.Time).Seconds())
}

func (b *builder) bar(x timeline.Bar) Bar {
	top := lanePad + x.Row*rowHeight
	t := x.Task.Task
	bar := Bar{
		Title: b.describe(t), Tone: b.toneOf(t), X: percent(x.X), W: percent(x.W), Y: top, H: barHeight,
		Cut: x.Cut, Open: t.End == nil, Track: top + trackAt, Middle: top + barHeight/2, Bottom: top + rowHeight - 2,
	}
	if t.State == task.Lost {
		bar.Tone = Plain
	}
	if len(x.Short) > 1 {
		bar.Title = b.describeShort(x)
	}
	for _, s := range x.Segments {
		seg := Segment{X: percent(s.X), W: percent(s.W)}
		if s.State != task.Running {
			seg.Pattern = string(s.State)
		}
		bar.Segments = append(bar.Segments, seg)
	}
	if x.W >= labelFrom {
		bar.Label, bar.Wide = b.label(t, bar.Tone), x.W >= labelAlways
	}
	if x.Deadline != nil {
		bar.Deadline, bar.Beyond = percent(x.Deadline.X), x.Deadline.Beyond
		bar.Missed = bar.Tone == Late
	}
	bar.Spare, bar.Late = stretch(x.Spare), stretch(x.Late)
	return bar
}

func stretch(r *timeline.Range) *Stretch {
	if r == nil {
		return nil
	}
	return &Stretch{percent(r.X), percent(r.W)}
}

// label is the float in a few signs, which say what the colour says.
func (b *builder) label(t task.Task, of Tone) string {
	if t.State == task.Lost {
		return "lost"
	}
	float := float64(t.Float(b.f.Now))
	switch {
	case of == Plain:
		return ""
	case of == Late:
		return "✗ " + seconds(-float)
	case t.End != nil:
		return "✓ " + seconds(float)
	case of == Near:
		return "! " + seconds(float)
	default:
		return seconds(float)
	}
}

// describe says in words what a bar shows.
func (b *builder) describe(t task.Task) string {
	s := fmt.Sprintf("%s, task of process %d: since %s", t.Container, t.PID, clock(t.Start.Time))
	if t.End != nil {
		s = fmt.Sprintf("%s, task of process %d: %s to %s", t.Container, t.PID, clock(t.Start.Time), clock(t.End.Time))
	}
	s += " (" + seconds(t.Duration(b.f.Now).Seconds()) + ")"
	if t.HasDeadline() {
		s += ", deadline " + clock(t.Deadline) + ", float " + seconds(float64(t.Float(b.f.Now)))
	}
	switch {
	case t.State == task.Lost:
		s += ", its end was not seen"
	case t.End == nil:
		s += ", " + string(t.State)
	case t.HasDeadline():
		s += ", " + string(t.Outcome())
	}
	if waited := waited(t); waited != "" {
		s += "; before that " + waited
	}
	return s
}

// waited says how long a task stood still, in stays that are over.
func waited(t task.Task) string {
	var parts []string
	if t.HeldSeconds > 0 {
		parts = append(parts, "held "+seconds(float64(t.HeldSeconds)))
	}
	if t.PausedSeconds > 0 {
		parts = append(parts, "paused "+seconds(float64(t.PausedSeconds)))
	}
	return strings.Join(parts, ", ")
}

// table lists what the picture shows, the latest first.
func (b *builder) table(g *GPU, w timeline.Window) {
	var shown []timeline.Entry
	for _, e := range b.f.Tasks {
		if slices.Contains(e.GPUs, g.UUID) && (e.End == nil || !e.End.Time.Before(w.From)) {
			shown = append(shown, e)
		}
	}
	slices.SortStableFunc(shown, func(x, y timeline.Entry) int {
		return cmp.Or(y.Start.Time.Compare(x.Start.Time), cmp.Compare(x.ID, y.ID))
	})
	g.TableLeftOut = max(0, len(shown)-maxTable)
	for _, e := range shown[:min(len(shown), maxTable)] {
		row := TableRow{Container: e.Container, State: string(e.State), Start: clock(e.Start.Time), Waited: waited(e.Task), Tone: Plain}
		if e.End != nil {
			row.End = clock(e.End.Time)
			if o := e.Outcome(); o == task.Hit || o == task.Miss {
				row.State = string(o)
			}
		}
		if e.HasDeadline() {
			row.Deadline = clock(e.Deadline)
		}
		if f := float64(e.Float(b.f.Now)); e.End != nil && !math.IsInf(f, 0) { // of the others it changes all the time; the bars show it
			row.Float, row.Tone = seconds(f), b.toneOf(e.Task)
		}
		g.Table = append(g.Table, row)
	}
}
