// Package page writes bench/papers.md: each table and figure of the five papers that states a measurement, beside what the
// stored results have. What a row needs of a result is a function of its rows.
package page

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
)

// value is one measured number as the page shows it.
type value struct {
	at   float64 // for the comparison, in the row's unit; NaN: not measured
	text string
}

var none = value{at: math.NaN()}

// number is a value in a unit; none if it is not known.
func number(v float64, unit string) value {
	if math.IsNaN(v) {
		return none
	}
	return value{v, strings.TrimSpace(bench.Number(v) + " " + unit)}
}

// measured computes a value from the rows of a result.
type measured func(rows []bench.Row) value

// row is one line of the page.
type row struct {
	paper, place, what string
	// stated is what the paper says; empty: the value is not in the files that we have.
	stated string
	// bar is stated as a number, where ours is compared with that; 0: it is not.
	bar float64
	// from is the experiment that measures it; empty: there is none, and missing says what it would be.
	from, missing string
	// settings are what the command that measures it has besides, seconds its time on a GPU; 0: it needs none.
	settings string
	seconds  int
	// theirs is the paper's way, measured here in the same run; nil: it is not run. Ours is Laxity.
	theirs, ours measured
	more         bool // a greater value is better
	differs      string
}

// line is a row with its values.
type line struct {
	row
	theirs, ours value
	result       bench.Result
}

func lineOf(r row, results map[string]bench.Result) line {
	l := line{row: r, theirs: none, ours: none}
	result, ok := results[r.from]
	if !ok {
		return l
	}
	l.result = result
	l.ours = r.ours(result.Rows)
	if r.theirs != nil {
		l.theirs = r.theirs(result.Rows)
	}
	return l
}

// known reports whether ours is measured.
func (l line) known() bool { return l.ours.text != "" }

// worse reports whether ours is worse than the paper's way here; where that was not run, than what the paper states.
// A difference too small to print is none.
func (l line) worse() bool {
	if l.ours.text == l.theirs.text {
		return false
	}
	bar := l.theirs.at
	if math.IsNaN(bar) && l.bar != 0 {
		bar = l.bar
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
	switch {
	case r.seconds > 0:
		return text + fmt.Sprintf(", some %d s of a GPU", r.seconds)
	default:
		return text + ", no GPU needed"
	}
}

// source says which stored result ours is from, and how old that is; or how to measure it.
func (l line) source() string {
	switch {
	case l.from == "":
		return "no experiment: " + l.missing
	case !l.known() && l.result.Name != "":
		return "not in the stored result: " + l.command()
	case !l.known():
		return l.command()
	}
	text := fmt.Sprintf("`%s`, %s, commit %s, %s", l.from, l.result.Date.Format(time.DateOnly), l.result.Commit, l.result.Machine)
	if n := l.runs(); n > 0 {
		text += fmt.Sprintf(", runs: %d", n)
	}
	if l.result.Older != "" {
		text += "; **older code**"
	}
	return text
}

// runs is how many whole runs the row is the median of, at least; 0 where it is not one of contention.
func (l line) runs() int {
	if !strings.HasPrefix(l.from, arbitrate.PaperName("")) {
		return 0
	}
	type run struct{ tasks, number float64 }
	seen, runs := map[run]bool{}, map[float64]int{} // by number of tasks
	for _, r := range arbitrate.Whole(l.result.Rows) {
		if k := (run{r.Num("n_tasks"), r.Num("run")}); !seen[k] {
			seen[k] = true
			runs[k.tasks]++
		}
	}
	if len(runs) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(runs)))
}

const head = `# The papers' tables and figures, and ours

Each table and figure of [the five papers](../docs/papers.md) that states a measurement, with what we measured of the same. *By the paper*: its
own figure, on its own machine. *Its way, here*: what the paper does, measured on our machine in the same run as ours; a dash: not run.
*See the paper*: the files that we work from do not have the figure. Papers of which we have an abstract or a poster (P4, P5) have no
numbers of tables.

Ours is worse where it is worse than the paper's way here; where that is not run, than the paper's own figure. This page is made from
the stored rows in [results/](results/) by

    make bench-report

and a test says when it is stale. Medians, where nothing else is said.
`

// Write writes the page. Results are the stored ones, by experiment.
func Write(w io.Writer, results map[string]bench.Result) error {
	var b strings.Builder
	b.WriteString(head)
	var lines []line
	for _, r := range rows() {
		lines = append(lines, lineOf(r, results))
	}
	count := func(keep func(line) bool) (n int) {
		for _, l := range lines {
			if keep(l) {
				n++
			}
		}
		return n
	}
	fmt.Fprintf(&b, "\nOf %d rows %d are measured, %d have an experiment that has not measured them so far, %d have none.\n", len(lines), count(line.known),
		count(func(l line) bool { return l.from != "" && !l.known() }), count(func(l line) bool { return l.from == "" }))
	b.WriteString("\n## Where ours is worse\n\n")
	table(&b, true, slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return !l.worse() }))
	for _, p := range papers {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", p.name, p.about)
		table(&b, false, slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.paper != p.name }))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes lines, with their paper where they are of several.
func table(b *strings.Builder, named bool, lines []line) {
	cells := [][]string{{"TABLE, FIGURE", "WHAT", "BY THE PAPER", "ITS WAY, HERE", "OURS", "WHAT DIFFERS", "FROM"}}
	for _, l := range lines {
		place := l.place
		if named {
			place = strings.TrimSpace(l.paper + " " + place)
		}
		theirs, ours := l.theirs.text, l.ours.text
		if theirs == "" {
			theirs = "-"
		}
		switch {
		case ours == "":
			ours = "not measured"
		case l.worse() && !named:
			ours = "**" + ours + "**"
		}
		cells = append(cells, []string{place, l.what, l.stated(), theirs, ours, l.differs, l.source()})
	}
	bench.Markdown(b, cells)
}
