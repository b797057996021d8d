package chart

import (
	"io"
	"math"
)

// Bars compares values, a group of horizontal bars for each thing that was
// measured and a bar for each series.
type Bars struct {
	Head
	// Log: by powers of ten, for what differs by much.
	Log    bool
	Groups []Group
}

// Group is one thing that was measured: a value for each series, in their order;
// NaN where a series has none.
type Group struct {
	Name   string
	Values []float64
}

const (
	barHeight  = 15
	barGap     = 3
	groupGap   = 12
	labelWidth = 210
	valueWidth = 80
)

// WriteSVG implements Chart.
func (b Bars) WriteSVG(w io.Writer) error {
	p, y := b.begin()
	var all []float64
	for _, g := range b.Groups {
		for _, v := range g.Values {
			if !math.IsNaN(v) {
				all = append(all, v)
			}
		}
	}
	x := newScale(all, b.Log, margin+labelWidth, width-margin-valueWidth)
	top := y
	for _, g := range b.Groups {
		height := float64(len(g.Values))*(barHeight+barGap) - barGap
		p.Texts = append(p.Texts, text{X: margin + labelWidth - 10, Y: y + height/2 + 4, Anchor: "end", Text: g.Name})
		for i, v := range g.Values {
			at := y + float64(i)*(barHeight+barGap)
			if math.IsNaN(v) {
				p.Texts = append(p.Texts, text{X: x.from + 6, Y: at + barHeight - 3, Class: "faint", Text: "–"})
				continue
			}
			length := max(x.at(v)-x.from, 1)
			p.Rects = append(p.Rects, rect{X: x.from, Y: at, W: length, H: barHeight, Class: class(i), Tip: b.Series[i] + ": " + Value(v) + " " + b.Unit})
			p.Texts = append(p.Texts, text{X: x.from + length + 6, Y: at + barHeight - 3, Text: Value(v)})
		}
		y += height + groupGap
	}
	b.axis(p, x, top, y-groupGap+4)
	p.Height = y + 24
	return p.write(w)
}

// axis draws a line for each tick and writes its value below.
func (h Head) axis(p *picture, x scale, top, bottom float64) {
	for i, v := range x.ticks {
		label := Value(v)
		if i == len(x.ticks)-1 {
			label += " " + h.Unit
		}
		p.Lines = append(p.Lines, line{X1: x.at(v), Y1: top - 4, X2: x.at(v), Y2: bottom, Class: "grid"})
		p.Texts = append(p.Texts, text{X: x.at(v), Y: bottom + 15, Class: "faint", Anchor: "middle", Text: label})
	}
}
