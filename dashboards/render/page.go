package main

import (
	_ "embed"
	"html/template"
	"os"
	"path/filepath"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// Sizes in pixels, as Grafana's: a column is a 24th of the page, a line 30 pixels.
const (
	columns = 24
	line    = 38 // a line, and the gap below it
	gap     = 8
	narrow  = 769 // below this width each panel is as wide as the page
	padding = 10
	heading = 32
)

// box is one panel on the page.
type box struct {
	Row                bool
	Title, Description string
	Style              template.CSS
	Body               template.HTML
}

// write draws one dashboard.
func write(path string, d dashboard, data map[int][]answer, theme string, width int, from, to time.Time) error {
	var boxes []box
	y := 0
	for i, p := range d.Panels {
		g := p.GridPos
		w, h := float64(width-2*gap)/columns*float64(g.W)-gap, g.H*line-gap
		if width < narrow {
			w = float64(width - 2*gap)
			if p.Type == "stat" {
				w = (w - gap) / 2
			}
		}
		b := box{Row: p.Type == "row", Title: p.Title, Description: p.Description}
		if width < narrow {
			b.Style = css("width:%.0fpx;height:%dpx", w, h)
		} else {
			b.Style = css("position:absolute;left:%.1fpx;top:%dpx;width:%.1fpx;height:%dpx", float64(gap)+float64(width-2*gap)/columns*float64(g.X), g.Y*line, w, h)
			y = max(y, (g.Y+g.H)*line)
		}
		if !b.Row {
			b.Body = body(p, data[i], w-2*padding, float64(h-heading-padding), from, to)
		}
		boxes = append(boxes, b)
	}
	var chosen []string
	for _, v := range d.Templating.List {
		if v.Type != "datasource" {
			chosen = append(chosen, v.Label+": "+map[bool]string{true: "0.99", false: "All"}[v.Type == "custom"])
		}
	}
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}
	err = page.Execute(f, map[string]any{
		"Title": d.Title, "Description": d.Description, "Theme": theme, "Width": width, "Height": y, "Wide": width >= narrow,
		"Chosen": chosen, "Time": from.UTC().Format("15:04:05") + " – " + to.UTC().Format("15:04:05 MST"), "Boxes": boxes,
	})
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// body draws what is in a panel of this size.
func body(p panel, data []answer, w, h float64, from, to time.Time) template.HTML {
	found := false
	for _, a := range data {
		found = found || len(a.series) > 0
	}
	d := &drawing{field: p.FieldConfig.Defaults, w: w, h: h, from: from, to: to}
	switch {
	case !found:
		text := p.FieldConfig.Defaults.NoValue
		if text == "" {
			text = "No data"
		}
		return template.HTML(`<p class="none">` + template.HTMLEscapeString(text) + `</p>`) //nolint:gosec // escaped
	case p.Type == "stat":
		d.stat(data, p.Options.GraphMode != "none")
	case p.Type == "state-timeline":
		d.timeline(data)
	case p.Type == "table":
		d.table(p, data)
	default:
		d.graph(data)
	}
	return template.HTML(d.out.String()) //nolint:gosec // each text in it is escaped
}
