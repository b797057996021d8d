package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

// Results compares the two rounds. Times are in seconds.
type Results struct {
	Device  string  `json:"device"`
	Policy  string  `json:"policy"`
	Alone   float64 `json:"alone_seconds"`
	Without Round   `json:"without"`
	With    Round   `json:"with"`
}

// Round has the results of the tasks of one round.
type Round struct {
	Title string `json:"title"`
	Tasks []Done `json:"tasks"`
	Hits  int    `json:"hits"`
	// Makespan is from the first start to the last end, Turnaround the mean from
	// each task's start to its end.
	Makespan   float64 `json:"makespan_seconds"`
	Turnaround float64 `json:"mean_turnaround_seconds"`
}

// Done is one ended task.
type Done struct {
	Name     string       `json:"name"`
	Deadline task.Seconds `json:"deadline_seconds"`
	Took     float64      `json:"took_seconds"`
	Float    task.Seconds `json:"float_seconds"`
	Paused   task.Seconds `json:"paused_seconds"`
	Outcome  task.Outcome `json:"outcome"`
}

// newRound reads the round's tasks from the history of the exporter.
func newRound(title string, s *task.Snapshot, prefix string, deadlines map[string]task.Seconds) (Round, error) {
	r := Round{Title: title}
	var first, last time.Time
	for _, name := range names {
		for _, t := range s.Ended {
			if t.Container != prefix+name {
				continue
			}
			took := t.Duration(time.Time{}).Seconds()
			r.Tasks = append(r.Tasks, Done{name, deadlines[name], took, t.Float(time.Time{}), t.PausedSeconds, t.Outcome()})
			r.Turnaround += took / tasks
			if t.Outcome() == task.Hit {
				r.Hits++
			}
			if first.IsZero() || t.Start.Time.Before(first) {
				first = t.Start.Time
			}
			if t.End.Time.After(last) {
				last = t.End.Time
			}
		}
	}
	r.Makespan = last.Sub(first).Seconds()
	if len(r.Tasks) != tasks {
		return r, fmt.Errorf("the exporter saw %d tasks of %d", len(r.Tasks), tasks)
	}
	return r, nil
}

// Write prints the tables.
func (r Results) Write(w io.Writer) error {
	lines := [][]string{{"", "", "WITHOUT", "", "", "WITH LAXITY", "", ""}, {"TASK", "DEADLINE", "took", "float", "", "took", "float", ""}}
	for i, a := range r.Without.Tasks {
		b := r.With.Tasks[i]
		lines = append(lines, []string{
			a.Name, fmt.Sprintf("%.1fs", float64(a.Deadline)),
			fmt.Sprintf("%.2fs", a.Took), view.Float(a.Float), string(a.Outcome),
			fmt.Sprintf("%.2fs", b.Took), view.Float(b.Float), string(b.Outcome),
		})
	}
	var b strings.Builder
	b.WriteString("\n")
	if err := view.Columns(&b, lines, 0, 0); err != nil {
		return err
	}
	b.WriteString("\n")
	ratio := func(with, without float64) string { return fmt.Sprintf("%.2f", with/without) }
	sums := [][]string{
		{"", "WITHOUT", "WITH LAXITY", "RATIO"},
		{"deadlines hit", fmt.Sprintf("%d of %d", r.Without.Hits, tasks), fmt.Sprintf("%d of %d", r.With.Hits, tasks), ""},
		{"makespan", fmt.Sprintf("%.2fs", r.Without.Makespan), fmt.Sprintf("%.2fs", r.With.Makespan), ratio(r.With.Makespan, r.Without.Makespan)},
		{"mean turnaround", fmt.Sprintf("%.2fs", r.Without.Turnaround), fmt.Sprintf("%.2fs", r.With.Turnaround), ratio(r.With.Turnaround, r.Without.Turnaround)},
	}
	if err := view.Columns(&b, sums, 0, 0); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}
