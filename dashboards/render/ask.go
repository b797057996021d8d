package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// answer is what one query of a panel was answered.
type answer struct{ series []series }

type series struct {
	name   string
	labels map[string]string
	points []point // in order of time
}

type point struct {
	at    time.Time
	value float64
}

func (s series) last() float64 { return s.points[len(s.points)-1].value }

func (s series) max() float64 {
	most := math.Inf(-1)
	for _, p := range s.points {
		most = max(most, p.value)
	}
	return most
}

// points over the width of a graph.
const resolution = 300

// ask returns the answers to each panel's queries, in their order.
func ask(ctx context.Context, url string, d dashboard, span time.Duration, end time.Time, chosen map[string]string) (map[int][]answer, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	prometheus := promapi.NewAPI(client)
	step := max(time.Second, (span / resolution).Truncate(time.Second))
	// As Grafana reckons it, for samples that are a second apart.
	rate := max(step+time.Second, 4*time.Second)
	value := func(name string) string { return cmp.Or(chosen[name], ".*") }
	variables := strings.NewReplacer("$__rate_interval", seconds(rate), "$__interval", seconds(step), "$__range", seconds(span),
		"$node", value("node"), "$container", value("container"), "$gpu", value("gpu"), "$objective", "0.99")
	all := map[int][]answer{}
	for i, p := range d.Panels {
		for _, t := range p.Targets {
			expr := variables.Replace(t.Expr)
			var v model.Value
			if t.Format == "table" {
				v, _, err = prometheus.Query(ctx, expr, end)
			} else {
				v, _, err = prometheus.QueryRange(ctx, expr, promapi.Range{Start: end.Add(-span), End: end, Step: step})
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", p.Title, expr, err)
			}
			all[i] = append(all[i], answer{seriesOf(v, t.LegendFormat)})
		}
	}
	return all, nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }

func seriesOf(v model.Value, legend string) (all []series) {
	switch v := v.(type) {
	case model.Matrix:
		for _, s := range v {
			one := named(s.Metric, legend)
			for _, p := range s.Values {
				if f := float64(p.Value); !math.IsNaN(f) && !math.IsInf(f, 0) {
					one.points = append(one.points, point{p.Timestamp.Time(), f})
				}
			}
			if len(one.points) > 0 {
				all = append(all, one)
			}
		}
	case model.Vector:
		for _, s := range v {
			one := named(s.Metric, legend)
			one.points = []point{{s.Timestamp.Time(), float64(s.Value)}}
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b series) int { return strings.Compare(a.name, b.name) })
	return all
}

var placeholder = regexp.MustCompile(`\{\{ *([a-zA-Z_]+) *\}\}`)

func named(metric model.Metric, legend string) series {
	s := series{labels: map[string]string{}}
	for k, v := range metric {
		s.labels[string(k)] = string(v)
	}
	s.name = placeholder.ReplaceAllStringFunc(legend, func(m string) string { return s.labels[placeholder.FindStringSubmatch(m)[1]] })
	return s
}
