package main

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

func css(format string, args ...any) template.CSS { return template.CSS(fmt.Sprintf(format, args...)) } //nolint:gosec // numbers only

// drawing is the inside of one panel.
type drawing struct {
	out      strings.Builder
	field    field
	w, h     float64
	from, to time.Time
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

func esc(s string) string { return template.HTMLEscapeString(s) }

func (d *drawing) x(at time.Time, left, width float64) float64 {
	return left + width*at.Sub(d.from).Seconds()/d.to.Sub(d.from).Seconds()
}

// axis draws the time below a graph.
func (d *drawing) axis(left, width, y float64) {
	span := d.to.Sub(d.from)
	step := time.Minute
	for _, s := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour} {
		if step = s; width*s.Seconds()/span.Seconds() > 80 {
			break
		}
	}
	for at := d.from.Truncate(step).Add(step); at.Before(d.to); at = at.Add(step) {
		if x := d.x(at, left, width); x > left+14 && x < left+width-14 {
			d.add(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x, y, at.UTC().Format("15:04:05")[:map[bool]int{true: 8, false: 5}[step < time.Minute]])
		}
	}
}

// stat draws one number for each series.
func (d *drawing) stat(data []answer, graph bool) {
	var all []series
	for _, a := range data {
		all = append(all, a.series...)
	}
	d.add(`<div class="stat" style="height:%.0fpx">`, d.h+padding)
	spark := d.h * 0.35
	if s := all[0]; graph && len(s.points) > 1 {
		low, high := bounds(all[:1])
		if high == low {
			high, low = high+1, low-1
		}
		d.add(`<svg width="%.1f" height="%.1f">`, d.w+20, spark)
		y := func(v float64) float64 { return 2 + (spark-4)*(high-v)/(high-low) }
		color := colors[d.field.color(s.last())]
		for _, part := range d.parts(s.points) {
			d.add(`<path d="%s" fill="%s" fill-opacity=".15"/><path d="%s" fill="none" stroke="%s" stroke-width="1"/>`,
				d.under(part, nil, 0, d.w+20, y, spark), color, d.path(part, 0, d.w+20, y, false), color)
		}
		d.add(`</svg>`)
	}
	size := math.Min(d.h*0.5, 40) / math.Sqrt(float64(len(all)))
	for _, s := range all {
		text := show(d.field, s.last())
		fit := math.Min(size, d.w/(float64(len([]rune(text)))*0.66))
		if len(all) > 1 {
			d.add(`<small>%s</small>`, esc(s.name))
		}
		d.add(`<b style="font-size:%.0fpx;color:%s">%s</b>`, fit, colors[d.field.color(s.last())], esc(text))
	}
	d.add(`</div>`)
}

func bounds(all []series) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range all {
		for _, p := range s.points {
			low, high = min(low, p.value), max(high, p.value)
		}
	}
	return low, high
}

// gap is the time without a point from which on a line is broken.
func (d *drawing) gap() time.Duration { return max(2*d.to.Sub(d.from)/resolution, 3*time.Second) }

// parts are the points between gaps.
func (d *drawing) parts(points []point) (all [][]point) {
	begin := 0
	for i := range points {
		if i+1 == len(points) || points[i+1].at.Sub(points[i].at) > d.gap() {
			all, begin = append(all, points[begin:i+1]), i+1
		}
	}
	return all
}

// path joins points without a gap.
func (d *drawing) path(points []point, left, width float64, y func(float64) float64, stepAfter bool) string {
	var b strings.Builder
	for i, p := range points {
		x := d.x(p.at, left, width)
		switch {
		case i == 0:
			fmt.Fprintf(&b, "M%.1f %.1f", x, y(p.value))
		case stepAfter:
			fmt.Fprintf(&b, "H%.1fV%.1f", x, y(p.value))
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", x, y(p.value))
		}
	}
	return b.String()
}

// under is the area between points and what is below them: other points, or a line.
func (d *drawing) under(points, below []point, left, width float64, y func(float64) float64, zero float64) string {
	area := d.path(points, left, width, y, false)
	for i := len(points) - 1; i >= 0; i-- {
		bottom := zero
		if below != nil {
			bottom = y(below[i].value)
		}
		area += fmt.Sprintf("L%.1f %.1f", d.x(points[i].at, left, width), bottom)
	}
	return area + "Z"
}

// timeline draws one bar for each series.
func (d *drawing) timeline(data []answer) {
	var all []series
	names := 0.0
	for _, a := range data {
		for _, s := range a.series {
			all, names = append(all, s), max(names, float64(len([]rune(s.name)))*6.4)
		}
	}
	names = min(names+8, d.w*0.35)
	width, chart := d.w-names, d.h-34
	step := chart / float64(len(all))
	bar := min(step*0.8, 34)
	used := map[string]look{}
	d.add(`<svg width="%.1f" height="%.1f">`, d.w, d.h-18)
	for i, s := range all {
		top := step * (float64(i) + 0.5)
		name := []rune(s.name)
		if most := int(names / 6.4); len(name) > most && most > 3 {
			name = append([]rune("…"), name[len(name)-most+1:]...)
		}
		d.add(`<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, names-6, top+4, esc(string(name)))
		d.bars(s, names, width, top-bar/2, bar, used)
	}
	d.axis(names, width, d.h-22)
	d.add(`</svg><div class="keys">`)
	for i := range 10 {
		for _, l := range used {
			if l.Index == i && l.Color != "transparent" {
				d.add(`<span><i style="background:%s"></i>%s</span>`, colors[l.Color], esc(l.Text))
			}
		}
	}
	d.add(`</div>`)
}

// bars draws the states of one series, those that follow each other as one.
func (d *drawing) bars(s series, left, width, top, height float64, used map[string]look) {
	widest := d.gap()
	for i := 0; i < len(s.points); {
		j := i
		for j+1 < len(s.points) && s.points[j+1].value == s.points[i].value && s.points[j+1].at.Sub(s.points[j].at) <= widest {
			j++
		}
		end := s.points[j].at.Add(d.to.Sub(d.from) / resolution)
		if j+1 < len(s.points) && s.points[j+1].at.Sub(s.points[j].at) <= widest {
			end = s.points[j+1].at
		}
		if l, ok := d.field.look(number(s.points[i].value, 6)); ok {
			used[l.Text] = l
			x0, x1 := d.x(s.points[i].at, left, width), min(d.x(end, left, width), left+width)
			d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".8"/>`, x0, top, max(x1-x0, 0.5), height, colors[l.Color])
			if room := float64(len(l.Text)) * 6.6; x1-x0 > room && l.Color != "transparent" {
				d.add(`<text x="%.1f" y="%.1f" text-anchor="middle" style="fill:#fff">%s</text>`, (x0+x1)/2, top+height/2+4, esc(l.Text))
			}
		}
		i = j + 1
	}
}
