package main

import (
	"encoding/json"
	"strings"
)

// object is a piece of Grafana's dashboard JSON (schema 41).
type object = map[string]any

// dashboard is what one of ours says; the rest is the same for all.
type dashboard struct {
	uid, title, description string
	variables               []object
	rows                    []row
}

// row is a heading and the panels below it, from left to right and on as many
// lines as they need: so none overlaps another.
type row struct {
	title  string // empty: no heading
	panels []panel
}

// panel is one of Grafana's panels; width is in 24ths of the page, height in
// lines of 30 pixels.
type panel struct {
	kind, title, description string
	width, height            int
	unit                     string
	thresholds               []object
	queries                  []query
	options, custom          object
	overrides, links         []object
	transformations          []object
	mappings                 []object
	more                     object // of the field's defaults
}

// query is one PromQL expression; legend is its name in the panel.
type query struct {
	expr, legend string
	table        bool // the present values, as a table
}

const gridWidth = 24

func source() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// encode writes the dashboard as a file.
func (d dashboard) encode() ([]byte, error) {
	var panels []object
	id, y := 0, 0
	for _, r := range d.rows {
		if r.title != "" {
			id++
			panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
				"gridPos": object{"x": 0, "y": y, "w": gridWidth, "h": 1}})
			y++
		}
		x, line := 0, 0
		for _, p := range r.panels {
			if x+p.width > gridWidth {
				x, y, line = 0, y+line, 0
			}
			id++
			panels = append(panels, p.object(id, x, y))
			x, line = x+p.width, max(line, p.height)
		}
		y += line
	}
	out, err := json.MarshalIndent(object{
		"__inputs": []object{{"name": importedSource, "label": "Prometheus", "type": "datasource", "pluginId": "prometheus", "pluginName": "Prometheus",
			"description": "The Prometheus that scrapes exporters and actuators and loads the rules"}},
		"__requires": d.requires(),
		"uid":        d.uid, "title": d.title, "description": d.description, "tags": []string{"laxity"},
		"schemaVersion": 41, "version": 1, "editable": true, "graphTooltip": 1, "timezone": "browser",
		"refresh": "5s", "time": object{"from": "now-15m", "to": "now"},
		"templating": object{"list": d.variables}, "panels": panels,
		"links": []object{{
			"type": "dashboards", "title": "Laxity", "tags": []string{"laxity"}, "asDropdown": true,
			"includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link",
		}},
		"annotations": object{"list": []object{{
			"name": "Contention", "datasource": source(), "enable": false, "iconColor": "orange",
			"expr":        named(`ALERTS{alertname="GPUContention",alertstate="firing",node=~"$node"}`),
			"titleFormat": "contention on {{node}} {{index}} {{name}}",
		}}},
	}, "", " ")
	return append(out, '\n'), err
}

func (p panel) object(id, x, y int) object {
	steps := append([]object{}, p.thresholds...)
	if len(steps) == 0 {
		steps = []object{step(nil, "green")}
	}
	defaults := object{
		"color":      object{"mode": "palette-classic"},
		"mappings":   append([]object{}, p.mappings...),
		"thresholds": object{"mode": "absolute", "steps": steps},
		"links":      append([]object{}, p.links...),
	}
	if p.unit != "" {
		defaults["unit"] = p.unit
	}
	if p.custom != nil {
		defaults["custom"] = p.custom
	}
	for k, v := range p.more {
		defaults[k] = v
	}
	var targets []object
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source(), "expr": q.expr, "legendFormat": q.legend}
		if q.table {
			t["instant"], t["range"], t["format"] = true, false, "table"
		}
		targets = append(targets, t)
	}
	o := object{
		"id": id, "type": p.kind, "title": p.title, "description": p.description, "datasource": source(),
		"gridPos":     object{"x": x, "y": y, "w": p.width, "h": p.height},
		"fieldConfig": object{"defaults": defaults, "overrides": append([]object{}, p.overrides...)},
		"options":     p.options, "targets": targets,
	}
	if p.transformations != nil {
		o["transformations"] = p.transformations
	}
	return o
}

// step is a threshold: from this value on (nil: from the least) this colour.
func step(from any, color string) object { return object{"value": from, "color": color} }

// Thresholds that several panels share.
var (
	negativeIsBad = []object{step(nil, "red"), step(0, "transparent")}
	negativeIsRed = []object{step(nil, "red"), step(0, "green")} // for numbers, which must be seen
	fullIsBad     = []object{step(nil, "green"), step(0.9, "orange"), step(0.95, "red")}
	anyIsWarning  = []object{step(nil, "green"), step(1, "orange")}
	anyIsBad      = []object{step(nil, "green"), step(1, "red")}
	zeroIsBad     = []object{step(nil, "red"), step(1, "green")}
	hitsAreGood   = []object{step(nil, "red"), step(0.9, "orange"), step(0.99, "green")}
	burning       = []object{step(nil, "transparent"), step(1, "orange"), step(6, "red")}
)

// series is a graph over time, a third of the page wide. What cannot be negative is drawn from 0.
func series(title, description, unit string, queries ...query) panel {
	more := object{}
	if unit != "s" {
		more["min"] = 0
	}
	return panel{
		more: more,
		kind: "timeseries", title: title, description: description, unit: unit, queries: queries, width: 8, height: 8,
		custom: object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false},
		options: object{
			"legend":  object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}

// stat is one number, or a few.
func stat(title, description, unit string, thresholds []object, queries ...query) panel {
	return panel{
		kind: "stat", title: title, description: description, unit: unit, thresholds: thresholds, queries: queries, width: 4, height: 4,
		more: object{"color": object{"mode": "thresholds"}},
		options: object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
		},
	}
}

// timeline shows states, one bar for each series.
func timeline(title, description string, mappings object, queries ...query) panel {
	return panel{
		more: object{}, kind: "state-timeline", title: title, description: description, queries: queries, width: gridWidth, height: 8,
		mappings: []object{{"type": "value", "options": mappings}},
		custom:   object{"fillOpacity": 80, "lineWidth": 0},
		options: object{
			"mergeValues": true, "showValue": "auto", "alignValue": "center", "rowHeight": 0.85,
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "single"},
		},
	}
}

// column is one of a table: the field of the answer, its heading, and properties.
type column struct {
	field, title string
	properties   []object
}

// table shows present values; fields that are in no column are left out.
func table(title, description string, columns []column, queries ...query) panel {
	exclude, rename, index := object{}, object{}, object{}
	for _, f := range []string{"Time", "__name__", "alertstate", "job", "instance"} {
		exclude[f] = true
	}
	p := panel{kind: "table", title: title, description: description, width: 12, height: 8, more: object{}, options: object{"showHeader": true, "cellHeight": "sm"}}
	for i, c := range columns {
		if c.title == "" {
			exclude[c.field] = true
			continue
		}
		rename[c.field], index[c.field] = c.title, i
		if len(c.properties) > 0 {
			p.overrides = append(p.overrides, object{"matcher": object{"id": "byName", "options": c.title}, "properties": c.properties})
		}
	}
	for _, q := range queries {
		q.table = true
		p.queries = append(p.queries, q)
	}
	if len(queries) > 1 {
		p.transformations = append(p.transformations, object{"id": "merge", "options": object{}})
	}
	p.transformations = append(p.transformations, object{"id": "organize", "options": object{
		"excludeByName": exclude, "renameByName": rename, "indexByName": index,
	}})
	return p
}

func property(id string, value any) object { return object{"id": id, "value": value} }

// yesNo shows 1 and 0 in words and colours.
func yesNo() []object {
	return []object{
		property("mappings", []object{{"type": "value", "options": object{"0": object{"text": "no", "color": "red"}, "1": object{"text": "yes", "color": "green"}}}}),
		property("custom.cellOptions", object{"type": "color-text"}),
	}
}

// wide sets the panel's width.
func (p panel) wide(width int) panel { p.width = width; return p }

// tall sets the panel's height.
func (p panel) tall(height int) panel { p.height = height; return p }

// fraction is a graph of shares: from 0 to 1.
func fraction(p panel) panel { p.more["max"] = 1; return p }

// plain is a number without the graph behind it.
func (p panel) plain() panel { p.options["graphMode"] = "none"; return p }

// logarithmic is a graph of what differs by orders of magnitude.
func (p panel) logarithmic() panel {
	p.custom["scaleDistribution"] = object{"type": "log", "log": 10}
	return p
}

// none is what stands there without data.
func (p panel) none(text string) panel { p.more["noValue"] = text; return p }

// whole is a graph of counts: the axis has no fractions.
func (p panel) whole() panel { p.more["decimals"] = 0; return p }

// below is a graph of what can be negative.
func (p panel) below() panel { delete(p.more, "min"); return p }

// limits sets thresholds, and draws them.
func (p panel) limits(thresholds []object) panel {
	p.thresholds = thresholds
	custom := object{"thresholdsStyle": object{"mode": "area"}}
	for k, v := range p.custom {
		custom[k] = v
	}
	p.custom = custom
	return p
}

// to links each series to another dashboard, with these labels of it as variables.
func (p panel) to(uid string, labels ...string) panel {
	p.links = []object{link(uid, "${__field.labels.%s}", labels...)}
	return p
}

// link opens another dashboard; from is where a label's value comes from.
func link(uid, from string, labels ...string) object {
	url := "/d/" + uid + "?${__url_time_range}&${datasource:queryparam}"
	for _, l := range labels {
		url += "&var-" + l + "=" + strings.ReplaceAll(from, "%s", l)
	}
	return object{"title": "Open " + uid, "url": url, "targetBlank": false}
}

// stacked draws bars on top of each other.
func (p panel) stacked() panel {
	p.custom = object{"drawStyle": "bars", "lineWidth": 0, "fillOpacity": 70, "stacking": object{"mode": "normal"}}
	return p
}

// stackedArea draws areas on top of each other.
func (p panel) stackedArea() panel {
	p.custom = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 60, "showPoints": "never", "spanNulls": false, "stacking": object{"mode": "normal"}}
	return p
}
