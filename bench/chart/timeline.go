package chart

import (
	"fmt"
	"io"
)

// Timeline shows when each of several tasks began and ended: a block for each
// series, with a thin bar for each task.
type Timeline struct {
	Head
	// Spans holds the tasks of each series, in their order.
	Spans [][]Span
}

// Span is one task, from and to on the common axis.
type Span struct {
	Name     string
	From, To float64
}

// WriteSVG implements Chart.
func (t Timeline) WriteSVG(w io.Writer) error {
	const thin, gap, block = 9, 2, 10
	p, y := t.begin()
	var ends []float64
	for _, spans := range t.Spans {
		for _, s := range spans {
			ends = append(ends, s.To)
		}
	}
	x := newScale(ends, false, margin+labelWidth, width-margin-valueWidth)
	top := y
	for i, spans := range t.Spans {
		height, last := float64(len(spans))*(thin+gap), 0.0
		p.Texts = append(p.Texts, text{X: margin + labelWidth - 10, Y: y + height/2 + 4, Anchor: "end", Text: t.Series[i]})
		for n, s := range spans {
			p.Rects = append(p.Rects, rect{X: x.at(s.From), Y: y + float64(n)*(thin+gap), W: max(x.at(s.To)-x.at(s.From), 1), H: thin, Class: class(i),
				Tip: fmt.Sprintf("%s: %s to %s %s", s.Name, Value(s.From), Value(s.To), t.Unit)})
			last = max(last, s.To)
		}
		p.Texts = append(p.Texts, text{X: x.at(last) + 6, Y: y + height/2 + 4, Text: Value(last)})
		y += height + block
	}
	t.axis(p, x, top, y-block+4)
	p.Height = y + 24
	return p.write(w)
}
