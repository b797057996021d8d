package check

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/internal/plain"
)

// Writer prints findings as they come, under a heading for each area.
type Writer struct {
	Out   io.Writer
	Paint view.Palette
	// Width is that of a line, characters; 0: 100.
	Width int

	area string
}

const (
	nameWidth = 20
	indent    = 8 + nameWidth
)

var levelStyles = map[Level]view.Style{OK: view.Green, Warn: view.Yellow, Fail: view.Red, Skip: view.Dim}

// Write prints one finding.
func (w *Writer) Write(f Finding) {
	if f.Area != w.area {
		if w.area != "" {
			fmt.Fprintln(w.Out)
		}
		w.area = f.Area
		fmt.Fprintln(w.Out, w.Paint.Paint(view.Bold, plain.Line(f.Area)))
	}
	f.Name = plain.Line(f.Name)
	level := string(f.Level)
	if f.Level == Fail {
		level = "FAIL"
	}
	fmt.Fprintf(w.Out, "  %s%s %-*s ", w.Paint.Paint(levelStyles[f.Level], level), strings.Repeat(" ", 4-len(level)), nameWidth-1, f.Name)
	if utf8.RuneCountInString(f.Name) > nameWidth-1 {
		fmt.Fprintf(w.Out, "\n%s", strings.Repeat(" ", indent))
	}
	w.wrap("", f.Found)
	w.more("means: ", f.Means)
	w.more("fix:   ", f.Fix)
}

func (w *Writer) more(label, text string) {
	if text == "" {
		return
	}
	fmt.Fprint(w.Out, strings.Repeat(" ", indent)+w.Paint.Paint(view.Dim, label))
	w.wrap(strings.Repeat(" ", len(label)), text)
}

// wrap writes text from where the cursor is; further lines begin below it.
func (w *Writer) wrap(hang, text string) {
	width := w.Width
	if width == 0 {
		width = 100
	}
	room, column := max(width-indent-len(hang), 30), 0
	for i, word := range strings.Fields(text) {
		word = plain.Line(word)
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > room:
			fmt.Fprint(w.Out, "\n"+strings.Repeat(" ", indent)+hang)
			column = 0
		default:
			fmt.Fprint(w.Out, " ")
			column++
		}
		fmt.Fprint(w.Out, word)
		column += n
	}
	fmt.Fprintln(w.Out)
}

// Summary is the last line.
func Summary(all []Finding) string {
	count := map[Level]int{}
	for _, f := range all {
		count[f.Level]++
	}
	s := fmt.Sprintf("%d ok, %s, %s, %d not examined", count[OK], view.Count(count[Warn], "warning"), view.Count(count[Fail], "failure"), count[Skip])
	switch {
	case count[Fail] > 0:
		return s + "; fix the failures first"
	case count[Warn] > 0:
		return s + "; it works, with less where a warning says so"
	default:
		return s
	}
}
