package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench/chart"
)

func draw(t *testing.T, c chart.Chart) string {
	t.Helper()
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// element is one of the picture, with the attributes that are numbers.
type element struct {
	name, class string
	num         map[string]float64
}

func elements(t *testing.T, svg string) (all []element) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		e := element{name: start.Name.Local, num: map[string]float64{}}
		for _, a := range start.Attr {
			if v, err := strconv.ParseFloat(a.Value, 64); err == nil {
				e.num[a.Name.Local] = v
			}
			if a.Name.Local == "class" {
				e.class = a.Value
			}
		}
		all = append(all, e)
	}
}

// bars are the rectangles of one series that stand for values: those of the legend
// are squares.
func bars(all []element, class string, height float64) (found []element) {
	for _, e := range all {
		if e.name == "rect" && e.class == class && e.num["height"] == height {
			found = append(found, e)
		}
	}
	return found
}

func head(series ...string) chart.Head {
	return chart.Head{Name: "x", Title: "a < b & c", Unit: "ms", Series: series}
}

func TestBarsAreAsLongAsTheirValues(t *testing.T) {
	svg := draw(t, chart.Bars{Head: head("laxity", "other"), Groups: []chart.Group{{"one", []float64{5, 10}}, {"two", []float64{2.5, math.NaN()}}}})
	all := elements(t, svg)
	ours, theirs := bars(all, "s0", 15), bars(all, "s1", 15)
	if len(ours) != 2 || len(theirs) != 1 {
		t.Fatalf("%d and %d bars, want 2 and 1", len(ours), len(theirs))
	}
	if r := theirs[0].num["width"] / ours[0].num["width"]; math.Abs(r-2) > 0.01 {
		t.Errorf("10 is %.2f times as long as 5", r)
	}
	if r := ours[0].num["width"] / ours[1].num["width"]; math.Abs(r-2) > 0.01 {
		t.Errorf("5 is %.2f times as long as 2.5", r)
	}
	if !strings.Contains(svg, "prefers-color-scheme: dark") || strings.Contains(svg, "a < b") {
		t.Error("not for dark pages, or text is not escaped")
	}
}

func TestLogBarsAddEqualLengths(t *testing.T) {
	ours := bars(elements(t, draw(t, chart.Bars{Head: head("laxity"), Log: true,
		Groups: []chart.Group{{"a", []float64{0.1}}, {"b", []float64{1}}, {"c", []float64{10}}, {"none", []float64{0}}}})), "s0", 15)
	if len(ours) != 4 {
		t.Fatal(ours)
	}
	if a, b := ours[1].num["width"]-ours[0].num["width"], ours[2].num["width"]-ours[1].num["width"]; math.Abs(a-b) > 2 {
		t.Errorf("a factor of ten is %.1f and %.1f long", a, b)
	}
	if ours[3].num["width"] > 1 {
		t.Error("nothing is something")
	}
}

func TestLinesGoThroughTheirPoints(t *testing.T) {
	all := elements(t, draw(t, chart.Lines{Head: head("laxity", "other"), XName: "load", Points: [][]chart.Point{{{0, 0}, {1, 50}, {2, 100}}, {{0, 100}}}}))
	var dots []element
	for _, e := range all {
		if e.name == "circle" && e.class == "s0" {
			dots = append(dots, e)
		}
	}
	if len(dots) != 3 {
		t.Fatal(dots)
	}
	for _, axis := range []string{"cx", "cy"} {
		if a, b := dots[1].num[axis]-dots[0].num[axis], dots[2].num[axis]-dots[1].num[axis]; math.Abs(a-b) > 0.2 || a == 0 {
			t.Errorf("%s: steps of %.1f and %.1f", axis, a, b)
		}
	}
	if dots[2].num["cy"] >= dots[0].num["cy"] {
		t.Error("more is not higher")
	}
}

func TestTimeline(t *testing.T) {
	spans := bars(elements(t, draw(t, chart.Timeline{Head: head("laxity"), Spans: [][]chart.Span{{{"a", 0, 10}, {"b", 5, 10}}}})), "s0", 9)
	if len(spans) != 2 {
		t.Fatal(spans)
	}
	if a, b := spans[0], spans[1]; math.Abs(a.num["width"]-2*b.num["width"]) > 0.2 || math.Abs(a.num["x"]+a.num["width"]-b.num["x"]-b.num["width"]) > 0.2 {
		t.Errorf("%v and %v do not end together", a.num, b.num)
	}
}

// Everything stays within the picture, whatever the values are.
func TestWithinThePicture(t *testing.T) {
	for _, values := range [][]float64{{0}, {1e-9, 1e9}, {0.001, 0.002}, {99.99, 100}, {1234567}} {
		for _, log := range []bool{false, true} {
			var groups []chart.Group
			for _, v := range values {
				groups = append(groups, chart.Group{Name: "x", Values: []float64{v}})
			}
			all := elements(t, draw(t, chart.Bars{Head: head("laxity"), Log: log, Groups: groups}))
			w, h := all[0].num["width"], all[0].num["height"]
			for _, e := range all[1:] {
				if x, y := e.num["x"]+e.num["width"], e.num["y"]+e.num["height"]; x > w || y > h || e.num["x"] < 0 || e.num["width"] < 0 {
					t.Errorf("%v, log %v: %s %v is outside", values, log, e.name, e.num)
				}
			}
		}
	}
}
