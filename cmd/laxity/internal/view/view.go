// Package view turns snapshots into what a person reads in a terminal: the rows
// of `laxity ps` and `laxity top`. It is pure: text in columns, no terminal.
package view

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/laxity/laxity/exporter/task"
)

// Row is one container on one GPU.
type Row struct {
	Container   string `json:"container"`
	ContainerID string `json:"container_id"`
	// Deadline is relative, seconds; 0 is none.
	Deadline task.Seconds `json:"deadline_seconds,omitempty"`
	// State is that of its most urgent unfinished task; "idle" without one.
	State string `json:"state"`
	// Float is that task's; of the last ended one when idle; nil without either.
	Float *task.Seconds `json:"float_seconds,omitempty"`
	// Tasks counts its unfinished tasks.
	Tasks int `json:"tasks"`
	// Last is how its last ended task fared: hit, miss, none, lost, or "".
	Last task.Outcome `json:"last_outcome,omitempty"`
	// GPU is a UUID, task.UnknownGPU, or "" when it has used none.
	GPU string `json:"gpu,omitempty"`
	// GPUIndex is the driver's index of GPU, -1 when not known.
	GPUIndex int `json:"gpu_index"`
	// Memory is what it holds on GPU, bytes. SM is its share of the GPU's
	// multiprocessors, 0–1; nil when not known.
	Memory uint64   `json:"memory_used_bytes"`
	SM     *float64 `json:"sm_utilization_ratio,omitempty"`
}

// Idle is the state of a container without unfinished tasks.
const Idle = "idle"

// Rows lists the containers of a snapshot at the moment now, the most urgent
// first. Containers that are neither managed nor have used a GPU are left out
// unless all is true.
func Rows(s *task.Snapshot, now time.Time, all bool) []Row {
	var rows []Row
	for _, c := range s.Containers {
		found := rowsOf(s, c, now)
		if len(found) == 0 && (all || c.Spec.Managed) {
			found = []Row{{State: Idle, GPUIndex: -1}}
		}
		for _, r := range found {
			r.Container, r.ContainerID, r.Deadline = c.Name, c.ID, c.Spec.Deadline
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			boolCompare(a.Tasks > 0, b.Tasks > 0),
			cmp.Compare(urgency(a), urgency(b)),
			cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.GPUIndex, b.GPUIndex),
		)
	})
	return rows
}

// rowsOf returns one row for each GPU that the container uses or used last.
func rowsOf(s *task.Snapshot, c task.Container, now time.Time) []Row {
	byGPU := map[string]*Row{}
	var order []string
	get := func(gpu string) *Row {
		r, ok := byGPU[gpu]
		if !ok {
			r = &Row{State: Idle, GPU: gpu, GPUIndex: -1, Memory: c.MemoryUsed[gpu]}
			if sm, ok := c.SMUtilization[gpu]; ok {
				r.SM = &sm
			}
			if g, ok := s.FindGPU(gpu); ok {
				r.GPUIndex = g.Index
			}
			byGPU[gpu] = r
			order = append(order, gpu)
		}
		return r
	}
	for _, t := range s.Tasks {
		if t.ContainerID != c.ID {
			continue
		}
		for _, gpu := range t.GPUs {
			r := get(gpu)
			if f := t.Float(now); r.Tasks == 0 || f < *r.Float {
				r.State, r.Float = string(t.State), &f
			}
			r.Tasks++
		}
	}
	for _, t := range s.Ended { // latest first
		if t.ContainerID != c.ID {
			continue
		}
		for _, gpu := range t.GPUs {
			if len(byGPU) > 0 && byGPU[gpu] == nil {
				continue // a GPU of long ago
			}
			r := get(gpu)
			if r.Last != "" {
				continue
			}
			r.Last = t.Outcome()
			if r.Tasks == 0 && t.State == task.Ended {
				f := t.Float(now)
				r.Float = &f
			}
		}
	}
	rows := make([]Row, 0, len(order))
	for _, gpu := range order {
		rows = append(rows, *byGPU[gpu])
	}
	return rows
}

func urgency(r Row) float64 {
	if r.Float == nil || r.Tasks == 0 {
		return math.Inf(1)
	}
	return float64(*r.Float)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// Table writes the rows in columns, at most width characters a line. What is late
// or stands still is painted.
func Table(w io.Writer, rows []Row, width int, paint Palette) error {
	lines := [][]string{{"CONTAINER", "DEADLINE", "STATE", "FLOAT", "GPU", "MEMORY", "SM", "LAST"}}
	for _, r := range rows {
		state := r.State
		if r.Tasks > 1 {
			state = fmt.Sprintf("%s (%d)", r.State, r.Tasks)
		}
		lines = append(lines, []string{
			r.Container, deadline(r.Deadline), state, floatOf(r), gpuName(r), Bytes(r.Memory), percent(r), string(r.Last),
		})
	}
	return Painted(w, lines, width, 0, paint, func(line, column int) Style {
		r := rows[line]
		switch {
		case column == 2:
			return StateStyle(r.State)
		case column == 3 && r.Float != nil && *r.Float < 0, column == 7 && (r.Last == task.Miss || r.Last == task.LostOutcome):
			return Red
		default:
			return Plain
		}
	})
}

// Columns writes lines in aligned columns, two spaces apart. When a line is
// longer than width (0: no limit), the shrink-th column is cut, with an
// ellipsis, down to at least eight characters.
func Columns(w io.Writer, lines [][]string, width, shrink int) error {
	return Painted(w, lines, width, shrink, false, nil)
}

// Painted is Columns with a style for each cell; the heading line is bold, and
// lines are counted from the one after it.
func Painted(w io.Writer, lines [][]string, width, shrink int, paint Palette, style func(line, column int) Style) error {
	var sizes []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(sizes) {
				sizes = append(sizes, 0)
			}
			sizes[i] = max(sizes[i], utf8.RuneCountInString(cell))
		}
	}
	total := 2 * (len(sizes) - 1)
	for _, n := range sizes {
		total += n
	}
	if width > 0 && total > width && shrink < len(sizes) {
		sizes[shrink] = max(8, sizes[shrink]-(total-width))
	}
	for n, line := range lines {
		var b strings.Builder
		gap := "" // spaces are written only before something
		for i, cell := range line {
			if utf8.RuneCountInString(cell) > sizes[i] {
				cell = string([]rune(cell)[:sizes[i]-1]) + "…"
			}
			if cell != "" {
				b.WriteString(gap + paint.Paint(cellStyle(style, n, i), cell))
				gap = ""
			}
			gap += strings.Repeat(" ", sizes[i]-utf8.RuneCountInString(cell)+2)
		}
		if _, err := fmt.Fprintln(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

func cellStyle(style func(line, column int) Style, line, column int) Style {
	switch {
	case line == 0:
		return Bold
	case style == nil:
		return Plain
	default:
		return style(line-1, column)
	}
}

func deadline(d task.Seconds) string {
	if d <= 0 {
		return "-"
	}
	return d.Duration().String()
}

func floatOf(r Row) string {
	if r.Float == nil {
		return "-"
	}
	return Float(*r.Float)
}

// Float writes a float as people read it: +1.25s, -3.0s, or "-" without a
// deadline.
func Float(f task.Seconds) string {
	switch s := float64(f); {
	case math.IsInf(s, 0) || math.IsNaN(s):
		return "-"
	case math.Abs(s) < 10:
		return fmt.Sprintf("%+.2fs", s)
	case math.Abs(s) < 120:
		return fmt.Sprintf("%+.1fs", s)
	default:
		sign := "+"
		if s < 0 {
			sign = "-"
		}
		return sign + task.Seconds(math.Abs(s)).Duration().Round(time.Second).String()
	}
}

func gpuName(r Row) string {
	switch {
	case r.GPU == "":
		return "-"
	case r.GPUIndex >= 0:
		return fmt.Sprint(r.GPUIndex)
	default:
		return r.GPU
	}
}

func percent(r Row) string {
	if r.SM == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**r.SM)
}

// Bytes writes an amount of memory with three digits: 566MiB, 1.50GiB.
func Bytes(n uint64) string {
	if n == 0 {
		return "-"
	}
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for f >= 1000 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	switch {
	case f < 10 && units[0] != "B":
		return fmt.Sprintf("%.2f%s", f, units[0])
	case f < 100 && units[0] != "B":
		return fmt.Sprintf("%.1f%s", f, units[0])
	default:
		return fmt.Sprintf("%.0f%s", f, units[0])
	}
}

// Summary writes a line for each GPU, and one for each thing that is wrong.
func Summary(w io.Writer, s *task.Snapshot, now time.Time) error {
	var b strings.Builder
	for _, g := range s.GPUs {
		use := "-"
		if u := float64(g.Utilization); !math.IsNaN(u) {
			use = fmt.Sprintf("%.0f%%", 100*u)
		}
		fmt.Fprintf(&b, "GPU %d  %s  use %s  memory %s of %s  tasks %d\n",
			g.Index, g.Name, use, Bytes(g.MemoryUsed), Bytes(g.MemoryTotal), len(s.TasksOn(g.UUID)))
	}
	if !s.Health.DeviceUp {
		fmt.Fprintf(&b, "GPUs do not answer, facts are %s old: %s\n", now.Sub(s.Time).Round(time.Second), s.Health.DeviceError)
	}
	if !s.Health.EngineUp {
		fmt.Fprintf(&b, "container engine does not answer: %s\n", s.Health.EngineError)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}
