package chart

import (
	"fmt"
	"io"
	"strings"
)

// Lines shows how values change with something else.
type Lines struct {
	Head
	// XName says what lies on the horizontal axis.
	XName string
	// LogX and LogY: by powers of ten.
	LogX, LogY bool
	// Points holds those of each series, in their order, by rising X.
	Points [][]Point
}

// Point is one measured value.
type Point struct{ X, Y float64 }

// WriteSVG implements Chart.
func (l Lines) WriteSVG(w io.Writer) error {
	const height, left, below = 230, 64, 40
	p, top := l.begin()
	var xs, ys []float64
	for _, series := range l.Points {
		for _, at := range series {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
	}
	x := newScale(xs, l.LogX, margin+left, width-margin-40)
	y := newScale(ys, l.LogY, top+height, top+4)
	for _, v := range y.ticks {
		p.Lines = append(p.Lines, line{X1: x.from, Y1: y.at(v), X2: x.to, Y2: y.at(v), Class: "grid"})
		p.Texts = append(p.Texts, text{X: x.from - 8, Y: y.at(v) + 4, Class: "faint", Anchor: "end", Text: Value(v) + " " + l.Unit})
	}
	for _, v := range x.ticks {
		p.Texts = append(p.Texts, text{X: x.at(v), Y: top + height + 18, Class: "faint", Anchor: "middle", Text: Value(v)})
	}
	p.Texts = append(p.Texts, text{X: (x.from + x.to) / 2, Y: top + height + 36, Class: "faint", Anchor: "middle", Text: l.XName})
	for i, series := range l.Points {
		var d strings.Builder
		for n, at := range series {
			command := "L"
			if n == 0 {
				command = "M"
			}
			fmt.Fprintf(&d, "%s%s %s", command, number(x.at(at.X)), number(y.at(at.Y)))
			p.Dots = append(p.Dots, dot{X: x.at(at.X), Y: y.at(at.Y), Class: class(i),
				Tip: fmt.Sprintf("%s: %s %s at %s", l.Series[i], Value(at.Y), l.Unit, Value(at.X))})
		}
		p.Paths = append(p.Paths, path{D: d.String(), Class: class(i)})
	}
	p.Height = top + height + below + margin
	return p.write(w)
}
