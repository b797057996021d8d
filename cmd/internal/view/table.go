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
	"github.com/laxity/laxity/internal/plain"
)

// column is one of the table of rows.
type column struct {
	head  string
	cell  func(Row) string
	style func(Row) Style // nil: plain
	// seldom: it is omitted when it is empty in every row.
	seldom bool
	// leave: in a narrow terminal columns with a larger value make room first; 0: never.
	leave int
}

var columns = []column{
	{head: "CONTAINER", cell: func(r Row) string { return r.Container }},
	{head: "DEADLINE", cell: func(r Row) string { return deadline(r.Deadline) }},
	{head: "STATE", cell: stateOf, style: func(r Row) Style { return StateStyle(r.State) }},
	{head: "FLOAT", cell: floatOf, style: func(r Row) Style { return redIf(r.Float != nil && *r.Float < 0) }},
	{head: "GPU", cell: nameOfGPU},
	{head: "ORDER", cell: Row.order, style: orderStyle, seldom: true},
	{head: "MEMORY", cell: func(r Row) string { return Bytes(r.Memory) }},
	{head: "LIMIT", cell: func(r Row) string { return unlessZero(r.Limit) }, seldom: true},
	{head: "NOTE", cell: Row.Note, style: noteStyle, seldom: true},
	{head: "GANG", cell: func(r Row) string { return r.Gang }, seldom: true, leave: 2},
	{head: "SM", cell: percent, leave: 2},
	{head: "LAST", cell: func(r Row) string { return string(r.Last) },
		style: func(r Row) Style { return redIf(r.Last == task.Miss || r.Last == task.LostOutcome) }, leave: 1},
}

// wide are the additional columns of a live table; they make room first.
var wide = []column{
	{head: "HITS", cell: hits, style: func(r Row) Style { return redIf(r.Misses > 0) }, leave: 3},
	{head: "UP", cell: up, leave: 4},
	{head: "IMAGE", cell: func(r Row) string { return shortened(r.Image, 24) }, leave: 5},
}

func hits(r Row) string {
	if r.Hits+r.Misses == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.Hits, r.Hits+r.Misses)
}

func up(r Row) string {
	if r.Started.IsZero() {
		return "-"
	}
	return Age(r.now.Sub(r.Started))
}

// Count writes a number of things: 1 container, 2 containers. one is a word whose plural takes an s.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Age formats a length of time with one unit: 45s, 12m, 3h, 2d.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(0, d).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Wide writes Table with more columns, as far as they fit.
func Wide(w io.Writer, rows []Row, width int, paint Palette) error {
	return table(w, slices.Concat(columns, wide), rows, width, paint)
}

// nameWidth is the least width of a container's name while other columns can make room.
const nameWidth = 12

// Table writes the rows in columns, at most width characters a line (0: no limit). It paints what
// is late or stopped, and omits empty columns.
func Table(w io.Writer, rows []Row, width int, paint Palette) error {
	return table(w, columns, rows, width, paint)
}

func table(w io.Writer, all []column, rows []Row, width int, paint Palette) error {
	shown := slices.DeleteFunc(slices.Clone(all), func(c column) bool {
		return c.seldom && !slices.ContainsFunc(rows, func(r Row) bool { return c.cell(r) != "" })
	})
	for leave := 5; width > 0 && leave > 0 && narrowest(shown, rows) > width; leave-- {
		shown = slices.DeleteFunc(shown, func(c column) bool { return c.leave == leave })
	}
	lines := make([][]string, 1+len(rows))
	for _, c := range shown {
		lines[0] = append(lines[0], c.head)
		for i, r := range rows {
			lines[1+i] = append(lines[1+i], c.cell(r))
		}
	}
	return Painted(w, lines, width, 0, paint, func(line, column int) Style {
		if style := shown[column].style; style != nil {
			return style(rows[line])
		}
		return Plain
	})
}

// narrowest is the width of the table with names cut as far as possible.
func narrowest(shown []column, rows []Row) int {
	total := 2 * (len(shown) - 1)
	for i, c := range shown {
		n := utf8.RuneCountInString(c.head)
		for _, r := range rows {
			n = max(n, utf8.RuneCountInString(plain.Line(c.cell(r))))
		}
		if i == 0 {
			n = min(n, nameWidth)
		}
		total += n
	}
	return total
}

func stateOf(r Row) string {
	if r.Tasks > 1 {
		return fmt.Sprintf("%s (%d)", r.State, r.Tasks)
	}
	return r.State
}

func redIf(bad bool) Style {
	if bad {
		return Red
	}
	return Plain
}

// Columns writes lines in aligned columns, two spaces apart. When a line is
// longer than width (0: no limit), the shrink-th column is cut, with an
// ellipsis, down to at least eight characters, and then the others, the last first.
func Columns(w io.Writer, lines [][]string, width, shrink int) error {
	return Painted(w, lines, width, shrink, false, nil)
}

// Painted is Columns with a style for each cell. The heading is bold, and lines count from the one
// after it.
func Painted(w io.Writer, lines [][]string, width, shrink int, paint Palette, style func(line, column int) Style) error {
	var sizes []int
	lines = slices.Clone(lines)
	for n, line := range lines {
		lines[n] = slices.Clone(line)
		for i, cell := range line {
			if i == len(sizes) {
				sizes = append(sizes, 0)
			}
			cell = plain.Line(cell)
			lines[n][i] = cell
			sizes[i] = max(sizes[i], utf8.RuneCountInString(cell))
		}
	}
	total := 2 * (len(sizes) - 1)
	for _, n := range sizes {
		total += n
	}
	if over := total - width; width > 0 && over > 0 && shrink < len(sizes) {
		over -= cut(sizes, shrink, over, 8)
		for i := len(sizes) - 1; i >= 0 && over > 0; i-- {
			if i != shrink {
				over -= cut(sizes, i, over, 2)
			}
		}
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

// cut makes a column narrower, by most at most and not below least, and returns by how much.
func cut(sizes []int, column, most, least int) int {
	by := max(0, min(most, sizes[column]-least))
	sizes[column] -= by
	return by
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

// Float formats a float for people: +1.25s, -3.0s, or "-" without a deadline.
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

func nameOfGPU(r Row) string {
	if r.GPU == "" {
		return "-"
	}
	return cmp.Or(r.gpuName, r.GPU)
}

func percent(r Row) string {
	if r.SM == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**r.SM)
}

// Bytes formats an amount of memory with three digits: 566MiB, 1.50GiB.
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
