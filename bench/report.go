package bench

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench/chart"
)

// chartFolder is where the charts lie, beside the page.
const chartFolder = "charts"

func chartFile(e Experiment, c chart.Chart) string { return e.Name + "-" + c.File() + ".svg" }

func chartsOf(e Experiment, r Result) []chart.Chart {
	if e.Charts == nil {
		return nil
	}
	return e.Charts(r.Rows)
}

// Drawings returns the charts of the stored results, by path beside the page.
func Drawings(experiments []Experiment, results map[string]Result) (map[string]string, error) {
	all := map[string]string{}
	for _, e := range experiments {
		r, ok := results[e.Name]
		if !ok {
			continue
		}
		for _, c := range chartsOf(e, r) {
			var b strings.Builder
			if err := c.WriteSVG(&b); err != nil {
				return nil, fmt.Errorf("chart %s of %s: %w", c.File(), e.Name, err)
			}
			all[path.Join(chartFolder, chartFile(e, c))] = b.String()
		}
	}
	return all, nil
}

// WriteReport writes the page and its charts into a folder, and removes charts that
// no result has any more.
func WriteReport(folder string, experiments []Experiment, results map[string]Result, worse []string) error {
	drawn, err := Drawings(experiments, results)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(folder, chartFolder)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, chartFolder), 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(drawn)) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(drawn[name]), 0o644); err != nil {
			return err
		}
	}
	var text strings.Builder
	if err := Report(&text, experiments, results, worse); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "README.md"), []byte(text.String()), 0o644)
}

const reportHead = `# Measurements

The figures of README and docs/figures.md, with the command that measured each and the alternatives measured
in the same run. This page and its charts are made from the stored rows in [results/](results/) by

    make bench-report

and a test computes every figure again from its rows. To measure on your own machine:

    make build && bin/laxity-bench NAME

Figures of a simulated GPU show that an experiment works, not how fast anything is.
`

// Report writes the page of measurements: what is worse, in sentences, and for each experiment that has a
// stored result what it does, its table and its figures.
func Report(w io.Writer, experiments []Experiment, results map[string]Result, worse []string) error {
	var b strings.Builder
	b.WriteString(reportHead)
	if len(worse) > 0 {
		b.WriteString("\n## Where Laxity is worse\n\n")
		for _, sentence := range worse {
			b.WriteString("- " + sentence + "\n")
		}
	}
	for _, e := range experiments {
		r, ok := results[e.Name]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n`laxity-bench %s` · %s · %s · commit %s\n\n",
			e.Title, command(e, r), r.Machine, r.Date.Format("2006-01-02"), r.Commit)
		if r.Older != "" {
			fmt.Fprintf(&b, "**Older code**: %s.\n\n", r.Older)
		}
		fmt.Fprintf(&b, "%s\n\n", e.About)
		for _, c := range chartsOf(e, r) {
			fmt.Fprintf(&b, "![%s](%s)\n\n", c.Heading(), path.Join(chartFolder, chartFile(e, c)))
		}
		Markdown(&b, e.Table(r.Rows))
		b.WriteString("\n")
		lines := [][]string{{"FIGURE", "VALUE", "AGAINST", "RATIO", "RUNS"}}
		for _, f := range r.Figures {
			ratio := ""
			if f.Against != "" {
				ratio = fmt.Sprintf("%.4g", f.Ratio)
			}
			lines = append(lines, []string{"`" + f.Name + "`", Number(f.Value) + " " + f.Unit, f.Against, ratio, fmt.Sprint(f.Runs)})
		}
		Markdown(&b, lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// command is what measured a result, but for its portions.
func command(e Experiment, r Result) string {
	text := e.Name
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		text += " --set " + name + "=" + r.Settings[name]
	}
	return text
}

// Markdown writes lines as a table, the first one as its head.
func Markdown(b *strings.Builder, lines [][]string) {
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
