// Package page writes bench/papers.md: each table and figure of the five papers that states a measurement, beside what the
// stored results have. What a row needs of a result is a function of its rows.
package page

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
)

// measured computes a value from the rows of a result.
type measured func(rows []bench.Row) value

// paper is one of the five.
type paper struct {
	name, about string
	figures     []figure
}

// figure is a table or figure of a paper, or a part of it.
type figure struct {
	name string
	// about says what holds for all of its rows.
	about string
	// beside names columns that it has besides, such as MPS.
	beside []string
	rows   []row
}

// row is one line of a figure.
type row struct {
	what string
	// stated is what the paper says; empty: the value is not in the files that we have; a dash: nothing.
	stated string
	// bar is stated as a number, where ours is compared with that; 0: it is not.
	bar float64
	// from is the experiment that measures it.
	from string
	// settings are what the command that measures it has besides, seconds its time on a GPU; 0: it needs none.
	settings string
	seconds  int
	// theirs is the paper's way, measured here in the same result; nil: it is not run. Ours is Laxity.
	theirs, ours measured
	beside       []measured // one for each column of the figure
	more         bool       // a greater value is better
	// of is what a value is of, such as run; ofTheirs that of the paper's way, where it is something else.
	of, ofTheirs string
	differs      string
	// awaited: what ours is has come after the stored result, which lacks it.
	awaited bool
}

// line is a row with its values.
type line struct {
	row
	theirs, ours value
	beside       []value
	result       bench.Result
}

func lineOf(r row, results map[string]bench.Result) line {
	l := line{row: r, theirs: none, ours: none, result: results[r.from]}
	l.ours = r.ours(l.result.Rows)
	if r.theirs != nil {
		l.theirs = r.theirs(l.result.Rows)
	}
	for _, of := range r.beside {
		l.beside = append(l.beside, of(l.result.Rows))
	}
	return l
}

// known reports whether ours is measured.
func (l line) known() bool { return l.ours.text != "" }

// worse reports whether ours is worse than the paper's way here; where that was not run, than what the paper states.
// A difference too small to print is none.
func (l line) worse() bool {
	bar := l.theirs.at
	if math.IsNaN(bar) && l.bar != 0 {
		bar = l.bar
	}
	if bench.Number(l.ours.at) == bench.Number(bar) {
		return false
	}
	if l.more {
		return l.ours.at < bar
	}
	return l.ours.at > bar
}

func (l line) stated() string {
	if l.row.stated == "" {
		return "see the paper"
	}
	return l.row.stated
}

// command measures the row.
func (r row) command() string {
	text := "`laxity-bench " + r.from + r.settings + "`"
	if r.seconds > 0 {
		return text + fmt.Sprintf(", some %d s of a GPU", r.seconds)
	}
	return text + ", no GPU needed"
}

// basis says how much the values rest on; or how to measure the row.
func (l line) basis() string {
	theirs := l.ofTheirs
	if theirs == "" {
		theirs = l.of
	}
	switch {
	case !l.known():
		return l.command()
	case l.theirs.n == 0 || l.theirs.n == l.ours.n && theirs == l.of:
		return counted(l.ours.n, l.of)
	case theirs == l.of:
		return fmt.Sprintf("%s; its way: %d", counted(l.ours.n, l.of), l.theirs.n)
	default:
		return counted(l.ours.n, l.of) + "; its way: " + counted(l.theirs.n, theirs)
	}
}

// counted is 1 run, 2 runs, 3 passes.
func counted(n int, of string) string {
	switch {
	case n == 1:
		return "1 " + of
	case strings.HasSuffix(of, "s"):
		return fmt.Sprintf("%d %ses", n, of)
	default:
		return fmt.Sprintf("%d %ss", n, of)
	}
}

const head = `# The papers' tables and figures, and ours

Each table and figure of [the five papers](../docs/papers.md) that states a measurement, with what we measured of the same.

- *By the paper*: its own figure, on its own machine. *See the paper*: the files that we work from do not have the figure. A dash: it has none. Of P4
  we have the abstract, of P5 a poster.
- *Its way, here*: what the paper does or describes, measured here by the same experiment as ours. A dash, or no such column: not run.
- *Ours*: Laxity. It is **bold** where it is worse than the paper's way here; where that is not run, than the paper's own figure.
- *Of*: how many runs, tasks or rounds a value is of. Values are medians, unless the row or the text above the table says otherwise. In brackets: the
  least and the most.
- **Older code**: what the result measures has changed since, as [results/older.txt](results/older.txt) says.

This page is made from the stored rows in [results/](results/) by

    make bench-report

and a test says when it is stale.
`

// Write writes the page. Results are the stored ones, by experiment.
func Write(w io.Writer, results map[string]bench.Result) error {
	var b, sections strings.Builder
	worse := [][]string{{"FIGURE", "WHAT", "BY THE PAPER", "ITS WAY, HERE", "OURS", "WHAT DIFFERS"}}
	rows, known := 0, 0
	for _, p := range papers() {
		fmt.Fprintf(&sections, "\n## %s\n\n%s\n", p.name, p.about)
		for _, f := range p.figures {
			var lines []line
			for _, r := range f.rows {
				l := lineOf(r, results)
				lines = append(lines, l)
				rows++
				if l.known() {
					known++
				}
				if l.worse() {
					worse = append(worse, []string{link(p, f), l.what, l.stated(), cell(l.theirs, "-"), cell(l.ours, "-"), l.differs})
				}
			}
			section(&sections, p, f, lines)
		}
	}
	b.WriteString(head)
	fmt.Fprintf(&b, "\nOf %d rows %d are measured; %d have an experiment that has not measured them so far. Ours is worse in %d.\n\n## Where ours is worse\n\n",
		rows, known, rows-known, len(worse)-1)
	bench.Markdown(&b, worse)
	b.WriteString(sections.String())
	_, err := io.WriteString(w, b.String())
	return err
}

// heading is unique on the page: papers have figures of the same number.
func heading(p paper, f figure) string { return p.name + ", " + f.name }

// link leads to a figure.
func link(p paper, f figure) string {
	to := strings.ToLower(strings.NewReplacer(" ", "-", ",", "", ".", "", ":", "").Replace(heading(p, f)))
	return fmt.Sprintf("[%s](#%s)", heading(p, f), to)
}

func cell(v value, unknown string) string {
	if v.text == "" {
		return unknown
	}
	return v.text
}

// section writes a figure: what it is from, and its rows.
func section(b *strings.Builder, p paper, f figure, lines []line) {
	fmt.Fprintf(b, "\n### %s\n\n", heading(p, f))
	if f.about != "" {
		b.WriteString(f.about + "\n\n")
	}
	if from := sources(lines); from != "" {
		b.WriteString("From " + from + ".\n\n")
	}
	table := make([][]string, len(lines)+1)
	column := func(name string, of func(line) string) {
		table[0] = append(table[0], name)
		for i, l := range lines {
			table[i+1] = append(table[i+1], of(l))
		}
	}
	column("WHAT", func(l line) string { return l.what })
	column("BY THE PAPER", line.stated)
	if slices.ContainsFunc(lines, func(l line) bool { return l.row.theirs != nil }) {
		column("ITS WAY, HERE", func(l line) string { return cell(l.theirs, "-") })
	}
	column("OURS", func(l line) string {
		if l.worse() {
			return "**" + l.ours.text + "**"
		}
		return cell(l.ours, "not measured")
	})
	for i, name := range f.beside {
		column(name, func(l line) string { return cell(l.beside[i], "-") })
	}
	if slices.ContainsFunc(lines, func(l line) bool { return l.differs != "" }) {
		column("WHAT DIFFERS", func(l line) string { return l.differs })
	}
	column("OF", line.basis)
	bench.Markdown(b, table)
}

// sources are the stored results that lines are from, and how old they are.
func sources(lines []line) string {
	var all []string
	for _, l := range lines {
		if l.result.Name == "" {
			continue
		}
		text := fmt.Sprintf("`%s` (%s, commit %s, %s", l.from, l.result.Date.Format(time.DateOnly), l.result.Commit, l.result.Machine)
		if l.result.Older != "" {
			text += "; **older code**"
		}
		if text += ")"; !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}
