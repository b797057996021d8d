// Command render draws the dashboards without Grafana: it asks a Prometheus the queries of their
// panels, and writes one HTML page for each dashboard, theme and width, with what was answered.
//
//	go run ./dashboards/render --prometheus=http://127.0.0.1:9090 --range=10m OUT
//
// It knows the kinds of panels, options and units that dashboards/generate uses, and nothing else
// of Grafana: it is for the pictures in the documentation, and for looking at a change. A panel
// that has no data says so.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/dashboards"
)

func main() {
	app := kingpin.New("render", "Draw the dashboards with what a Prometheus answers.")
	url := app.Flag("prometheus", "URL of the Prometheus.").Default("http://127.0.0.1:9090").String()
	span := app.Flag("range", "Time that is shown, up to now.").Default("10m").Duration()
	end := app.Flag("end", "Unix time at which it ends. Default: now.").Default("0").Int64()
	chosen := app.Flag("var", "Value of a variable, a regular expression: container=web-.*; repeatable. Default: all.").StringMap()
	widths := app.Flag("width", "Width of the page in pixels; repeatable.").Default("1280", "390").Ints()
	out := app.Arg("out", "Folder for NAME-THEME-WIDTH.html.").Required().String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	until := time.Now()
	if *end > 0 {
		until = time.Unix(*end, 0)
	}
	if err := render(*url, *span, until, *chosen, *widths, *out); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func render(url string, span time.Duration, end time.Time, chosen map[string]string, widths []int, out string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	names, err := fs.Glob(dashboards.FS, "*.json")
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := dashboards.FS.ReadFile(name)
		if err != nil {
			return err
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		data, err := ask(ctx, url, d, span, end, chosen)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, width := range widths {
			for _, theme := range []string{"light", "dark"} {
				page := fmt.Sprintf("%s-%s-%d.html", name[:len(name)-len(filepath.Ext(name))], theme, width)
				if err := write(filepath.Join(out, page), d, data, theme, width, end.Add(-span), end); err != nil {
					return err
				}
			}
		}
		for i, p := range d.Panels {
			if p.Type != "row" && !slices.ContainsFunc(data[i], func(a answer) bool { return len(a.series) > 0 }) {
				fmt.Fprintf(os.Stderr, "%s: %s: no data\n", name, p.Title)
			}
		}
	}
	return nil
}
