package main

import (
	"maps"
	"slices"
)

// importedSource is what Grafana asks for when a person imports a dashboard.
const importedSource = "DS_PROMETHEUS"

// chooseSource is the variable that every dashboard begins with. An import by hand puts the data
// source that was chosen there in its place; where files are provisioned it is none of those that
// are there, and Grafana takes the first of these.
func chooseSource() object {
	return object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
		"current": object{"text": "${" + importedSource + "}", "value": "${" + importedSource + "}"}}
}

// requires says what an import needs: Grafana, Prometheus, and the panels' kinds.
func (d dashboard) requires() []object {
	names := map[string]string{"stat": "Stat", "state-timeline": "State timeline", "table": "Table", "timeseries": "Time series"}
	used := map[string]bool{}
	for _, r := range d.rows {
		for _, p := range r.panels {
			used[p.kind] = true
		}
	}
	all := []object{
		{"type": "grafana", "id": "grafana", "name": "Grafana", "version": "11.0.0"},
		{"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
	}
	for _, kind := range slices.Sorted(maps.Keys(used)) {
		all = append(all, object{"type": "panel", "id": kind, "name": names[kind], "version": ""})
	}
	return all
}

// choose is a variable whose choices are the values of a label.
func choose(name, label, metric string) object {
	definition := "label_values(" + metric + ", " + name + ")"
	return object{
		"name": name, "label": label, "type": "query", "datasource": source(),
		"query": object{"query": definition, "refId": "v"}, "definition": definition,
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
	}
}

// chooseGPU offers GPUs by node, index and model; what is chosen are their UUIDs.
func chooseGPU() object {
	v := choose("gpu", "GPU", "")
	definition := `query_result(max by (gpu, text) (label_join(` + gpuNames + `, "text", " ", "node", "index", "name")))`
	v["query"], v["definition"] = object{"query": definition, "refId": "v"}, definition
	v["regex"] = `/gpu="(?<value>[^"]+)",text="(?<text>[^"]+)"/`
	return v
}

// chooseObjective is the share of deadlines that is to be hit.
func chooseObjective() object {
	var options []object
	for _, v := range []string{"0.9", "0.95", "0.99", "0.999"} {
		options = append(options, object{"text": v, "value": v, "selected": v == "0.99"})
	}
	return object{
		"name": "objective", "label": "Objective", "type": "custom", "query": "0.9,0.95,0.99,0.999", "options": options,
		"current": object{"text": "0.99", "value": "0.99", "selected": true}, "multi": false, "includeAll": false,
	}
}
