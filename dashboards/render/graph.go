package main

import (
	"math"
	"time"
)

// legendRows is how many series a legend shows; Grafana scrolls the others.
const legendRows = 4

// graph draws series over time, with a legend below.
func (d *drawing) graph(data []answer) {
	var all []series
	for _, a := range data {
		all = append(all, a.series...)
	}
	rows := min(len(all), legendRows)
	height := d.h - float64(rows+1)*16 - 4
	if len(all) > legendRows {
		height -= 16
	}
	drawn := all
	stacked := d.field.Custom.Stacking.Mode == "normal"
	if stacked {
		drawn = stack(all)
	}
	low, high := d.scale(drawn, stacked)
	ticks, position := ticks(low, high, d.field), func(v float64) float64 { return v }
	if d.field.Custom.ScaleDistribution.Type == "log" && low > 0 {
		low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
		ticks, position = nil, math.Log10
		for t := low; t < high*1.5; t *= 10 {
			ticks = append(ticks, t)
		}
	}
	left := 0.0
	for _, t := range ticks {
		left = max(left, float64(len([]rune(show(d.field, t))))*6.6+6)
	}
	width, bottom := d.w-left-2, height-18
	y := func(v float64) float64 {
		return 6 + (bottom-6)*(position(high)-position(v))/(position(high)-position(low))
	}
	d.add(`<svg width="%.1f" height="%.1f">`, d.w, height)
	d.areas(left, width, low, high, y)
	for _, t := range ticks {
		d.add(`<path d="M%.1f %.1fh%.1f" stroke="var(--grid)"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left, y(t), width, left-5, y(t)+3.5, esc(show(d.field, t)))
	}
	for i := len(drawn) - 1; i >= 0; i-- { // the first on top
		d.line(drawn, i, left, width, stacked, y, y(max(low, min(high, 0))))
	}
	d.axis(left, width, height-4)
	d.add(`</svg>`)
	d.legend(all)
}

// line draws one series of a graph.
func (d *drawing) line(all []series, i int, left, width float64, stacked bool, y func(float64) float64, zero float64) {
	s, color := all[i], palette[i%len(palette)]
	if d.field.Custom.DrawStyle == "bars" {
		w := max(width/resolution-0.5, 1)
		for j, p := range s.points {
			base := zero
			if stacked && i > 0 {
				base = y(all[i-1].points[j].value)
			}
			if top := y(p.value); base-top > 0.2 {
				d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".8"/>`, d.x(p.at, left, width), top, w, base-top, color)
			}
		}
		return
	}
	from := 0
	for _, part := range d.parts(s.points) {
		if fill := d.field.Custom.FillOpacity; fill > 0 && (stacked || len(all) == 1) {
			var below []point
			if stacked && i > 0 {
				below = all[i-1].points[from : from+len(part)]
			}
			d.add(`<path d="%s" fill="%s" fill-opacity="%.2f"/>`, d.under(part, below, left, width, y, zero), color, fill/100)
		}
		from += len(part)
		d.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.3"/>`, d.path(part, left, width, y, d.field.Custom.LineInterpolation == "stepAfter"), color)
	}
}

// areas draws the thresholds.
func (d *drawing) areas(left, width, low, high float64, y func(float64) float64) {
	steps := d.field.Thresholds.Steps
	switch d.field.Custom.ThresholdsStyle.Mode {
	case "line":
		for _, s := range steps {
			if s.Value != nil && *s.Value > low && *s.Value < high {
				d.add(`<path d="M%.1f %.1fh%.1f" stroke="%s"/>`, left, y(*s.Value), width, colors[s.Color])
			}
		}
		return
	case "area":
	default:
		return
	}
	for i, s := range steps {
		from, to := low, high
		if s.Value != nil {
			from = max(low, *s.Value)
		}
		if i+1 < len(steps) && steps[i+1].Value != nil {
			to = min(high, *steps[i+1].Value)
		}
		if from < to && s.Color != "transparent" {
			d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity=".1"/>`, left, y(to), width, y(from)-y(to), colors[s.Color])
		}
	}
}

func (d *drawing) legend(all []series) {
	d.add(`<table class="legend"><tr><th></th><th class="n">last</th><th class="n">max</th></tr>`)
	for i, s := range all {
		if i == legendRows {
			d.add(`<tr><th colspan="3">and %d more</th></tr>`, len(all)-i)
			break
		}
		d.add(`<tr><td><i style="background:%s"></i>%s</td><td class="n">%s</td><td class="n">%s</td></tr>`,
			palette[i%len(palette)], esc(s.name), esc(show(d.field, s.last())), esc(show(d.field, s.max())))
	}
	d.add(`</table>`)
}

// scale is what a graph shows: what is in it, 0 where all is above, and what the field says.
func (d *drawing) scale(all []series, stacked bool) (low, high float64) {
	low, high = bounds(all)
	if stacked || low > 0 && low < high*0.7 && d.field.Custom.ScaleDistribution.Type != "log" {
		low = min(low, 0)
	}
	if d.field.Min != nil {
		low = *d.field.Min
	}
	if d.field.Max != nil {
		high = *d.field.Max
	} else {
		high += (high - low) * 0.05
	}
	if high <= low {
		margin := max(math.Abs(low)*0.1, 0.5)
		if low -= margin; low < 0 && high >= 0 && d.field.Unit != "s" {
			low = 0
		}
		high += margin
	}
	return low, high
}

// stack puts each series on top of those before it. One that has no point at a time counts as 0 there.
func stack(all []series) (out []series) {
	times := map[time.Time]bool{}
	for _, s := range all {
		for _, p := range s.points {
			times[p.at] = true
		}
	}
	ordered := sorted(times)
	sum := map[time.Time]float64{}
	for _, s := range all {
		for _, p := range s.points {
			sum[p.at] += p.value
		}
		one := series{name: s.name}
		for _, at := range ordered {
			one.points = append(one.points, point{at, sum[at]})
		}
		out = append(out, one)
	}
	return out
}

// ticks are round values for the axis.
func ticks(low, high float64, f field) (all []float64) {
	base, steps := 10.0, []float64{1, 2, 5, 10}
	if f.Unit == "bytes" {
		base, steps = 2, []float64{1, 2}
	}
	rough := (high - low) / 4
	size := math.Pow(base, math.Floor(math.Log(rough)/math.Log(base)))
	for _, s := range steps {
		if size*s >= rough {
			size *= s
			break
		}
	}
	if f.Decimals != nil && *f.Decimals == 0 {
		size = max(size, 1)
	}
	for t := math.Ceil(low/size) * size; t <= high+size/1e6; t += size {
		all = append(all, math.Round(t/size)*size)
	}
	return all
}
