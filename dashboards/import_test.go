package dashboards_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An import by hand asks for the data source, which becomes the one that is chosen, and knows
// what the dashboard needs.
func TestImport(t *testing.T) {
	for file, d := range read(t) {
		if len(d.Inputs) != 1 || d.Inputs[0].Type != "datasource" || d.Inputs[0].PluginID != "prometheus" {
			t.Fatalf("%s: inputs %v", file, d.Inputs)
		}
		if v := d.Templating.List[0]; v.Name != "datasource" || v.Current.Value != "${"+d.Inputs[0].Name+"}" {
			t.Errorf("%s: the data source that was asked for is not chosen: %+v", file, v)
		}
		needs := map[string]bool{"grafana grafana": true, "datasource prometheus": true}
		for _, p := range d.Panels {
			if p.Type != "row" {
				needs["panel "+p.Type] = true
			}
		}
		says := map[string]bool{}
		for _, r := range d.Requires {
			says[r.Type+" "+r.ID] = true
		}
		if !maps.Equal(needs, says) {
			t.Errorf("%s needs %v and says %v", file, slices.Sorted(maps.Keys(needs)), slices.Sorted(maps.Keys(says)))
		}
		if len(d.Links) != 1 || d.Links[0].Type != "dashboards" || !slices.Equal(d.Links[0].Tags, []string{"laxity"}) {
			t.Errorf("%s does not lead to the others: %v", file, d.Links)
		}
	}
}

// Nobody has to know a UUID: a legend names a GPU by index and model, and so does its variable.
func TestGPUsHaveNames(t *testing.T) {
	for file, d := range read(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if strings.Contains(q.LegendFormat, "{{gpu}}") {
					t.Errorf("%s: %s shows a UUID: %s", file, p.Title, q.LegendFormat)
				}
			}
		}
		for _, v := range d.Templating.List {
			if v.Name != "gpu" {
				continue
			}
			// As Grafana writes a series of the answer, its labels in order.
			const answer = `{gpu="GPU-3f1d",text="gpu-1 0:1 NVIDIA H200"} 1 1800000000000`
			r := regexp.MustCompile(strings.ReplaceAll(strings.Trim(v.Regex, "/"), "(?<", "(?P<"))
			parts := r.FindStringSubmatch(answer)
			if parts == nil {
				t.Fatalf("%s: %s finds nothing in %s", file, v.Regex, answer)
			}
			if text, value := parts[r.SubexpIndex("text")], parts[r.SubexpIndex("value")]; text != "gpu-1 0:1 NVIDIA H200" || value != "GPU-3f1d" {
				t.Errorf("%s: %s finds %q, %q", file, v.Regex, text, value)
			}
		}
	}
}

// A quantile is asked of classic buckets and of native ones, and is no answer while nothing was
// observed.
func TestQuantiles(t *testing.T) {
	found := 0
	for file, d := range read(t) {
		for _, q := range d.Queries(file) {
			if !strings.Contains(q.Expr, "histogram_quantile") {
				continue
			}
			found++
			classic, native, both := strings.Cut(q.Expr, " or ")
			_, name, _ := strings.Cut(classic, "(rate(")
			name, _, _ = strings.Cut(name, "_bucket{")
			for part, want := range map[string]string{classic: name + "_bucket{", native: "(rate(" + name + "{"} {
				if !both || !strings.Contains(part, want) || !strings.HasSuffix(part, " >= 0") {
					t.Error(fmt.Sprintf("%s: %s", file, q.Panel), "wants", want, "and >= 0:", q.Expr)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d quantiles: are those all?", found)
	}
}
