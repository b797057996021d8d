// Package dashboards holds Grafana dashboards, which the command generate beside
// it writes, and lists the queries in them so that tests can ask a Prometheus every
// one.
//
// It imports the standard library only.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// FS holds *.json, one dashboard each.
//
//go:embed *.json
var FS embed.FS

// Query is one PromQL expression of a panel or an annotation.
type Query struct {
	File, Panel string
	// Expr has the dashboard's variables replaced: all nodes, GPUs and containers, an
	// objective of 0.99, and ranges of one minute.
	Expr string
	// Linked are the labels of the answer that the panel's links are made of,
	// separated by blanks.
	Linked string
}

// Dashboard is what is read of one; Grafana knows more.
type Dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Inputs        []struct{ Name, Type, PluginID string } `json:"__inputs"`
	Requires      []struct{ Type, ID string }             `json:"__requires"`
	Panels        []Panel
	Templating    struct{ List []Variable }
	Links         []struct {
		Type string
		Tags []string
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

// Variable is one choice of the viewer.
type Variable struct {
	Name, Type string
	Definition string
	// Regex takes text and value from what a query_result says.
	Regex   string
	Current struct{ Value any }
}

// definition is a query of Grafana's data source for Prometheus.
var definition = regexp.MustCompile(`^(?:label_values\((.+), ([a-z]+)|query_result\((.+))\)$`)

// Expr is the PromQL expression in the variable's definition; empty for a variable that asks nobody.
func (v Variable) Expr() string {
	parts := definition.FindStringSubmatch(v.Definition)
	if v.Type != "query" || parts == nil {
		return ""
	}
	return parts[1] + parts[3]
}

// Panel is one panel, or a row.
type Panel struct {
	ID                 int
	Type               string
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	Datasource         struct{ Type, UID string }
	FieldConfig        struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []struct{ Color string } }
			Links      []Link
		}
		Overrides []struct {
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
	Targets []Target
}

// Link leads to another dashboard.
type Link struct{ Title, URL string }

// Links returns the panel's links, those of a table's columns too.
func (p Panel) Links() ([]Link, error) {
	all := p.FieldConfig.Defaults.Links
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID != "links" {
				continue
			}
			var links []Link
			if err := json.Unmarshal(property.Value, &links); err != nil {
				return nil, fmt.Errorf("links of %s: %w", p.Title, err)
			}
			all = append(all, links...)
		}
	}
	return all, nil
}

// Target is one query of a panel.
type Target struct {
	RefID, LegendFormat string
	Expr                string
	Datasource          struct{ Type, UID string }
}

// Read returns the dashboards by file name.
func Read() (map[string]Dashboard, error) {
	names, err := fs.Glob(FS, "*.json")
	if err != nil {
		return nil, err
	}
	all := map[string]Dashboard{}
	for _, name := range names {
		content, err := FS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var d Dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = d
	}
	return all, nil
}

// variables has the longer names first.
var variables = strings.NewReplacer(
	"$__rate_interval", "1m", "$__interval", "1m", "$__range", "1m", "$node", ".*", "$container", ".*", "$gpu", ".*", "$objective", "0.99",
)

// fieldLabel is how a link takes a label of a series.
var fieldLabel = regexp.MustCompile(`\$\{__field\.labels\.([a-z]+)\}`)

// Queries returns every query of the dashboard.
func (d Dashboard) Queries(file string) []Query {
	var all []Query
	for _, p := range d.Panels {
		var linked []string
		for _, l := range p.FieldConfig.Defaults.Links {
			for _, label := range fieldLabel.FindAllStringSubmatch(l.URL, -1) {
				linked = append(linked, label[1])
			}
		}
		for _, t := range p.Targets {
			all = append(all, Query{File: file, Panel: p.Title, Expr: variables.Replace(t.Expr), Linked: strings.Join(linked, " ")})
		}
	}
	for _, v := range d.Templating.List {
		if expr := v.Expr(); expr != "" {
			all = append(all, Query{File: file, Panel: "variable " + v.Name, Expr: variables.Replace(expr)})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, Query{File: file, Panel: "annotation " + a.Name, Expr: variables.Replace(a.Expr)})
	}
	return all
}
