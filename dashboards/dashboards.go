// Package dashboards holds Grafana dashboards, and lists the queries in them so
// that tests can ask a Prometheus every one.
//
// It imports the standard library only.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

// FS holds *.json, one dashboard each.
//
//go:embed *.json
var FS embed.FS

// Query is one PromQL expression of a panel or an annotation.
type Query struct {
	File, Panel string
	// Expr has the dashboard's variables replaced: all nodes and containers, and
	// ranges of one minute.
	Expr string
}

// Dashboard is what is read of one; Grafana knows more.
type Dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Panels        []Panel
	Templating    struct{ List []Variable }
	Annotations   struct {
		List []struct{ Name, Expr string }
	}
}

// Variable is one choice of the viewer.
type Variable struct {
	Name, Type string
	Definition string
}

// Panel is one panel, or a row.
type Panel struct {
	ID                 int
	Type               string
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	Datasource         struct{ Type, UID string }
	FieldConfig        struct {
		Defaults  struct{ Unit string }
		Overrides []json.RawMessage
	}
	Targets []Target
}

// Target is one query of a panel.
type Target struct {
	RefID      string
	Expr       string
	Datasource struct{ Type, UID string }
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
	"$__rate_interval", "1m", "$__interval", "1m", "$__range", "1m", "$node", ".*", "$container", ".*",
)

// Queries returns every query of the dashboard.
func (d Dashboard) Queries(file string) []Query {
	var all []Query
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, Query{File: file, Panel: p.Title, Expr: variables.Replace(t.Expr)})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, Query{File: file, Panel: "annotation " + a.Name, Expr: variables.Replace(a.Expr)})
	}
	return all
}
