package collector

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// chunk is how many cells of a page are made at once.
const chunk = 128

// page is what one scrape says, up to a limit on series. It is written by one
// scrape, read until that is sent, and then written again by another: a node with
// 100 containers has 1,500 series, and making them anew each time would be most of
// what the collector costs.
type page struct {
	left, dropped int
	families      []dto.MetricFamily // by family.at
	cells         [][]cell
	used          int // cells
	view          view
	answer        []byte
}

// cell is a gauge or a counter with its value.
type cell struct {
	metric  dto.Metric
	gauge   dto.Gauge
	counter dto.Counter
	value   float64
}

func newPage() *page {
	p := &page{families: make([]dto.MetricFamily, len(families))}
	for i, f := range families {
		mf := &p.families[i]
		mf.Name, mf.Help, mf.Type = &f.name, &f.help, &f.kind
	}
	return p
}

// clear makes the page empty, with room for so many series.
func (p *page) clear(limit int) {
	p.left, p.dropped, p.used = limit, 0, 0
	for i := range p.families {
		p.families[i].Metric = p.families[i].Metric[:0]
	}
}

// put adds a series, or counts it as dropped.
func (p *page) put(f *family, m *dto.Metric) {
	if p.left <= 0 {
		p.dropped++
		return
	}
	p.left--
	mf := &p.families[f.at]
	mf.Metric = append(mf.Metric, m)
}

// set adds a gauge or counter. Its labels are in the order of their names.
func (p *page) set(f *family, v float64, labels ...label) {
	if p.left <= 0 {
		p.dropped++
		return
	}
	c := p.next()
	c.value = v
	c.metric.Label = labels
	c.metric.Gauge, c.metric.Counter = nil, nil
	if f.kind == dto.MetricType_COUNTER {
		c.metric.Counter = &c.counter
	} else {
		c.metric.Gauge = &c.gauge
	}
	p.put(f, &c.metric)
}

func (p *page) next() *cell {
	if p.used == chunk*len(p.cells) {
		cells := make([]cell, chunk)
		for i := range cells {
			cells[i].gauge.Value, cells[i].counter.Value = &cells[i].value, &cells[i].value
		}
		p.cells = append(p.cells, cells)
	}
	c := &p.cells[p.used/chunk][p.used%chunk]
	p.used++
	return c
}

// sorted returns the families that have series, and others, by name.
func (p *page) sorted(others []*dto.MetricFamily) []*dto.MetricFamily {
	out := make([]*dto.MetricFamily, 0, len(p.families)+len(others))
	for i := range p.families {
		if mf := &p.families[i]; len(mf.Metric) > 0 {
			out = append(out, mf)
		}
	}
	out = append(out, others...)
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}
