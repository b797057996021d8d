package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

func sorted(times map[time.Time]bool) []time.Time {
	return slices.SortedFunc(maps.Keys(times), time.Time.Compare)
}

// cell is a value of a table: a label's text, or a number.
type cell struct {
	text   string
	number float64
	is     bool // a number
}

// table draws the present values: labels and values are fields, as in Grafana's frames.
func (d *drawing) table(p panel, data []answer) {
	rows := merge(data)
	exclude, rename, index := map[string]bool{}, map[string]string{}, map[string]int{}
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			exclude, rename, index = t.Options.ExcludeByName, t.Options.RenameByName, t.Options.IndexByName
		}
	}
	names := map[string]bool{}
	for _, r := range rows {
		for name := range r {
			names[name] = !exclude[name] && rename[name] != "" // others have no place of their own
		}
	}
	var fields []string
	for name, shown := range names {
		if shown {
			fields = append(fields, name)
		}
	}
	slices.SortFunc(fields, func(a, b string) int { return cmp.Or(cmp.Compare(index[a], index[b]), strings.Compare(a, b)) })
	order(rows, p, rename)
	d.add(`<table><tr>`)
	for _, f := range fields {
		d.add(`<th>%s</th>`, esc(rename[f]))
	}
	d.add(`</tr>`)
	for _, r := range rows {
		d.add(`<tr>`)
		for _, f := range fields {
			look, c := d.override(p, rename[f]), r[f]
			switch {
			case !c.is:
				d.add(`<td>%s</td>`, esc(c.text))
			default:
				color := "var(--text)"
				if l, ok := look.look(number(c.number, 6)); ok {
					color = colors[l.Color]
				}
				d.add(`<td style="color:%s">%s</td>`, color, esc(show(look, c.number)))
			}
		}
		d.add(`</tr>`)
	}
	d.add(`</table>`)
}

// merge makes a row of what has the same labels in each answer.
func merge(data []answer) (rows []map[string]cell) {
	byLabels := map[string]map[string]cell{}
	for i, a := range data {
		value := "Value"
		if len(data) > 1 {
			value += " #" + string(rune('A'+i))
		}
		for _, s := range a.series {
			labels := maps.Clone(s.labels)
			for _, own := range []string{"__name__", "job", "instance", "alertstate"} {
				delete(labels, own)
			}
			key, _ := json.Marshal(labels) //nolint:errchkjson // strings
			row := byLabels[string(key)]
			if row == nil {
				row = map[string]cell{}
				byLabels[string(key)] = row
				rows = append(rows, row)
				for name, text := range labels {
					row[name] = cell{text: text}
				}
			}
			row[value] = cell{number: s.last(), is: true}
		}
	}
	return rows
}

// order sorts the rows as the panel says.
func order(rows []map[string]cell, p panel, rename map[string]string) {
	for _, t := range p.Transformations {
		for _, by := range t.Options.Sort {
			for name, title := range rename {
				if title != by.Field {
					continue
				}
				slices.SortStableFunc(rows, func(a, b map[string]cell) int {
					c := cmp.Or(cmp.Compare(a[name].number, b[name].number), strings.Compare(a[name].text, b[name].text))
					if by.Desc {
						c = -c
					}
					return c
				})
			}
		}
	}
}

// override is the field of a column.
func (d *drawing) override(p panel, title string) field {
	f := d.field
	for _, o := range p.FieldConfig.Overrides {
		if o.Matcher.Options != title {
			continue
		}
		for _, property := range o.Properties {
			var err error
			switch property.ID {
			case "unit":
				err = json.Unmarshal(property.Value, &f.Unit)
			case "mappings":
				err = json.Unmarshal(property.Value, &f.Mappings)
			}
			if err != nil {
				f.Unit = ""
			}
		}
	}
	return f
}
