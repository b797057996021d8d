package bench

import (
	"fmt"
	"io"
	"strings"
)

const reportHead = `# Measurements

Every figure that Laxity claims, with the command that measured it and the alternatives measured
in the same run. This page is made from the stored rows in [results/](results/) by

    make bench-report

and a test computes every figure again from its rows. To measure on your own machine:

    make build && bin/laxity bench NAME

Figures of a simulated GPU show that an experiment works, not how fast anything is.
`

// Report writes the page of measurements: for each experiment that has a stored
// result, what it does, its table and its figures.
func Report(w io.Writer, experiments []Experiment, results map[string]Result) error {
	var b strings.Builder
	b.WriteString(reportHead)
	for _, e := range experiments {
		r, ok := results[e.Name]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n`laxity bench %s` · %s · %s · commit %s\n\n%s\n\n",
			e.Title, e.Name, r.Machine, r.Date.Format("2006-01-02"), r.Commit, e.About)
		markdown(&b, e.Table(r.Rows))
		b.WriteString("\n")
		lines := [][]string{{"FIGURE", "VALUE", "AGAINST", "RATIO", "RUNS"}}
		for _, f := range r.Figures {
			ratio := ""
			if f.Against != "" {
				ratio = fmt.Sprintf("%.4g", f.Ratio)
			}
			lines = append(lines, []string{"`" + f.Name + "`", Number(f.Value) + " " + f.Unit, f.Against, ratio, fmt.Sprint(f.Runs)})
		}
		markdown(&b, lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdown(b *strings.Builder, lines [][]string) {
	for i, line := range lines {
		b.WriteString("|")
		for _, cell := range line {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", "\\|") + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(line)) + "\n")
		}
	}
}
