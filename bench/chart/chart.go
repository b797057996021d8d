// Package chart draws charts as SVG that is readable in light and dark: bars,
// lines and time lines. It is pure and imports the standard library only; the same
// data gives the same bytes.
package chart

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
	"text/template"
)

// Chart is a picture that can be written as a file.
type Chart interface {
	// File is its name without the ending; Title says what it shows.
	File() string
	Heading() string
	// WriteSVG writes the picture.
	WriteSVG(w io.Writer) error
}

// Head is what every chart has.
type Head struct {
	// Name is that of the file, without the ending. Title is one line of at most
	// some 90 characters, Unit that of the values.
	Name, Title, Unit string
	// Series are the ways that are compared; the first one is Laxity's.
	Series []string
}

// File implements Chart.
func (h Head) File() string { return h.Name }

// Heading implements Chart.
func (h Head) Heading() string { return h.Title }

// width of every picture, and the room around it, pixels.
const (
	width  = 760
	margin = 16
)

type rect struct {
	X, Y, W, H float64
	Class      string
	Tip        string // what a pointer above it shows
}

type line struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type text struct {
	X, Y                float64
	Class, Anchor, Text string
}

type path struct{ D, Class string }

type dot struct {
	X, Y       float64
	Class, Tip string
}

// picture is a chart with all of its geometry.
type picture struct {
	Title         string
	Width, Height float64
	Rects         []rect
	Lines         []line
	Paths         []path
	Dots          []dot
	Texts         []text
}

// The colours keep apart for colour-blind readers (Okabe and Ito).
var svg = template.Must(template.New("svg").Funcs(template.FuncMap{"f": number, "e": html.EscapeString}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{f .Width}} {{f .Height}}" width="{{f .Width}}" height="{{f .Height}}" role="img" aria-label="{{e .Title}}">
<title>{{e .Title}}</title>
<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.faint { fill: #59636e }
.page { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.line { fill: none; stroke-width: 2 }
.s0 { fill: #0072b2; stroke: #0072b2 } .s1 { fill: #e69f00; stroke: #e69f00 } .s2 { fill: #8c959f; stroke: #8c959f }
.s3 { fill: #009e73; stroke: #009e73 } .s4 { fill: #cc79a7; stroke: #cc79a7 } .s5 { fill: #d55e00; stroke: #d55e00 }
rect { stroke: none } .line { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #9198a1 } .page { fill: #0d1117 } .grid { stroke: #3d444d }
.s0 { fill: #56b4e9; stroke: #56b4e9 } .s1 { fill: #f0b429; stroke: #f0b429 } .s3 { fill: #2fc19a; stroke: #2fc19a }
.s4 { fill: #e39cc4; stroke: #e39cc4 } .s5 { fill: #ff8a3d; stroke: #ff8a3d } .line { fill: none }
}
</style>
<rect class="page" width="{{f .Width}}" height="{{f .Height}}" rx="6"/>
{{range .Lines}}<line class="{{.Class}}" x1="{{f .X1}}" y1="{{f .Y1}}" x2="{{f .X2}}" y2="{{f .Y2}}"/>
{{end}}{{range .Rects}}<rect class="{{.Class}}" x="{{f .X}}" y="{{f .Y}}" width="{{f .W}}" height="{{f .H}}" rx="1">{{with .Tip}}<title>{{e .}}</title>{{end}}</rect>
{{end}}{{range .Paths}}<path class="line {{.Class}}" d="{{.D}}"/>
{{end}}{{range .Dots}}<circle class="{{.Class}}" cx="{{f .X}}" cy="{{f .Y}}" r="3">{{with .Tip}}<title>{{e .}}</title>{{end}}</circle>
{{end}}{{range .Texts}}<text class="{{.Class}}" x="{{f .X}}" y="{{f .Y}}"{{with .Anchor}} text-anchor="{{.}}"{{end}}>{{e .Text}}</text>
{{end}}</svg>
`))

func (p *picture) write(w io.Writer) error { return svg.Execute(w, p) }

// number writes a coordinate with one digit behind the point at most.
func number(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// begin makes a picture with title and legend; y is where the rest may begin.
func (h Head) begin() (p *picture, y float64) {
	p = &picture{Title: h.Title, Width: width}
	p.Texts = append(p.Texts, text{X: margin, Y: margin + 12, Class: "title", Text: h.Title})
	y = margin + 34
	x := float64(margin)
	for i, name := range h.Series {
		length := 20 + 6.6*float64(len([]rune(name))) + 18
		if x > margin && x+length > width-margin {
			x, y = margin, y+18
		}
		p.Rects = append(p.Rects, rect{X: x, Y: y - 10, W: 12, H: 12, Class: class(i)})
		p.Texts = append(p.Texts, text{X: x + 18, Y: y, Text: name})
		x += length
	}
	return p, y + 18
}

func class(series int) string { return "s" + strconv.Itoa(series%6) }

// scale turns values into pixels.
type scale struct {
	log      bool
	low, top float64 // values
	from, to float64 // pixels
	ticks    []float64
}

// newScale covers the values: from 0, or by powers of ten.
func newScale(values []float64, log bool, from, to float64) scale {
	s := scale{log: log, from: from, to: to}
	low, top := math.Inf(1), 0.0
	for _, v := range values {
		top = max(top, v)
		if v > 0 {
			low = min(low, v)
		}
	}
	if top == 0 {
		low, top = 1, 1
	}
	if log {
		s.low, s.top = math.Pow(10, math.Floor(math.Log10(low)+1e-9)), math.Pow(10, math.Ceil(math.Log10(top)-1e-9))
		if s.low == s.top {
			s.low /= 10
		}
		for exp := math.Round(math.Log10(s.low)); exp <= math.Round(math.Log10(s.top)); exp++ {
			s.ticks = append(s.ticks, math.Pow(10, exp))
		}
		return s
	}
	step := math.Pow(10, math.Floor(math.Log10(top/4)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if top/(step*factor) <= 6 {
			step *= factor
			break
		}
	}
	for i := 0; ; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
		if float64(i)*step >= top-1e-12 {
			break
		}
	}
	s.top = s.ticks[len(s.ticks)-1]
	return s
}

func (s scale) at(v float64) float64 {
	share := v / s.top
	if s.log {
		if v <= 0 {
			return s.from
		}
		share = math.Log10(v/s.low) / math.Log10(s.top/s.low)
	}
	return s.from + min(max(share, 0), 1)*(s.to-s.from)
}

// Value writes a value with three digits that count.
func Value(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}
