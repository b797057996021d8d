package dashboards_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	actuator "github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/dashboards"
	exporter "github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/rules"
)

func read(t *testing.T) map[string]dashboards.Dashboard {
	t.Helper()
	all, err := dashboards.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fleet.json", "gpu.json", "node.json", "container.json", "actuator.json"} {
		if _, ok := all[name]; !ok {
			t.Fatalf("no %s", name)
		}
	}
	return all
}

func TestStructure(t *testing.T) {
	uids := map[string]string{}
	for file, d := range read(t) {
		if d.Title == "" || d.UID == "" || d.SchemaVersion < 39 {
			t.Errorf("%s: title %q, uid %q, schemaVersion %d", file, d.Title, d.UID, d.SchemaVersion)
		}
		if other, ok := uids[d.UID]; ok {
			t.Errorf("%s and %s have the uid %s", file, other, d.UID)
		}
		uids[d.UID] = file
		kinds := map[string]string{}
		for _, v := range d.Templating.List {
			kinds[v.Name] = v.Type
		}
		if kinds["datasource"] != "datasource" || kinds["node"] != "query" {
			t.Errorf("%s: the variables datasource and node are missing: %v", file, kinds)
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", file, p.ID)
			}
			ids[p.ID] = true
			checkPanel(t, file, p)
		}
	}
}

// withoutUnit are kinds of panels whose values have units of their own, or none.
var withoutUnit = map[string]bool{"table": true, "state-timeline": true}

func checkPanel(t *testing.T, file string, p dashboards.Panel) {
	t.Helper()
	name := file + ": " + p.Title
	if p.Type == "row" {
		return
	}
	if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
		t.Errorf("%s: title, description or query is missing", name)
	}
	if p.FieldConfig.Defaults.Unit == "" && !withoutUnit[p.Type] {
		t.Errorf("%s has no unit", name)
	}
	if len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
		t.Errorf("%s has no thresholds", name)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if refs[q.RefID] {
			t.Errorf("%s: two queries %s", name, q.RefID)
		}
		refs[q.RefID] = true
		if q.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s does not ask the chosen data source", name)
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for file, d := range read(t) {
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			g := p.GridPos
			if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
				t.Errorf("%s: %s lies outside the grid of 24 columns: %+v", file, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("%s: %s and %s overlap", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Links lead to dashboards that are there, and set variables that those have.
func TestLinks(t *testing.T) {
	all := read(t)
	variables := map[string]map[string]bool{}
	for _, d := range all {
		variables[d.UID] = map[string]bool{"datasource": true}
		for _, v := range d.Templating.List {
			variables[d.UID][v.Name] = true
		}
	}
	linked := map[string]bool{}
	form := regexp.MustCompile(`^/d/([a-z-]+)\?\$\{__url_time_range\}&\$\{datasource:queryparam\}((?:&var-[a-z]+=\$\{[A-Za-z_.]+\})*)$`)
	for file, d := range all {
		for _, p := range d.Panels {
			links, err := p.Links()
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			for _, l := range links {
				parts := form.FindStringSubmatch(l.URL)
				if parts == nil || variables[parts[1]] == nil {
					t.Errorf("%s: %s: a link that leads nowhere: %s", file, p.Title, l.URL)
					continue
				}
				linked[parts[1]] = true
				for _, set := range regexp.MustCompile(`var-([a-z]+)=\$\{([A-Za-z_.]+)\}`).FindAllStringSubmatch(parts[2], -1) {
					if !variables[parts[1]][set[1]] {
						t.Errorf("%s: %s: %s has no variable %s", file, p.Title, parts[1], set[1])
					}
				}
			}
		}
	}
	for _, uid := range []string{"laxity-node", "laxity-container"} {
		if !linked[uid] {
			t.Errorf("no panel leads to %s", uid)
		}
	}
}

// known returns the names that our programs expose, our rules record, and
// Prometheus makes by itself.
func known(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"up": true, "scrape_duration_seconds": true, "ALERTS": true, "ALERTS_FOR_STATE": true}
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range []interface{ Describe(chan<- *prometheus.Desc) }{exporter.New(exporter.Options{}), actuator.New()} {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for d := range descs {
			name := fqName.FindStringSubmatch(d.String())[1]
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				names[name+suffix] = true
			}
		}
	}
	content, err := fs.ReadFile(rules.FS, "recording.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names[r.Record] = true
		}
	}
	return names
}

func TestQueriesParseAndNameWhatExists(t *testing.T) {
	names := known(t)
	p := parser.NewParser(parser.Options{})
	for file, d := range read(t) {
		for _, q := range d.Queries(file) {
			expr, err := p.ParseExpr(q.Expr)
			if err != nil {
				t.Errorf("%s: %s: %v", file, q.Panel, err)
				continue
			}
			if strings.Contains(q.Expr, "$") {
				t.Errorf("%s: %s: a variable that is not known: %s", file, q.Panel, q.Expr)
			}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok {
					checkSelector(t, file+": "+q.Panel, s, names)
				}
				return nil
			})
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" && v.Expr() == "" {
				t.Errorf("%s: the variable %s asks in a way that is not known: %s", file, v.Name, v.Definition)
			}
		}
	}
}

// checkSelector: its metric exists, and the chosen nodes limit it.
func checkSelector(t *testing.T, name string, s *parser.VectorSelector, names map[string]bool) {
	t.Helper()
	metric, node := s.Name, false
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			metric = m.Value
		}
		node = node || m.Name == "node"
	}
	if !names[metric] {
		t.Errorf("%s: nobody exposes or records %s", name, metric)
	}
	if !node && !strings.Contains(name, ": variable ") {
		t.Errorf("%s: %s is not limited to the chosen nodes", name, s)
	}
}
