package collector

import (
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/exporter/task"
)

type label = *dto.LabelPair

// newLabel makes the value UTF-8: one bad byte from an engine or a driver would
// fail the whole scrape.
func newLabel(name, value string) label {
	value = valid(value)
	return &dto.LabelPair{Name: &name, Value: &value}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// newLabels makes the labels of one name, in the order of the values.
func newLabels[T ~string](name string, values []T) []label {
	out := make([]label, len(values))
	for i, v := range values {
		out[i] = newLabel(name, string(v))
	}
	return out
}

var (
	stateLabels   = newLabels("state", task.UnfinishedStates)
	outcomeLabels = newLabels("outcome", task.Outcomes)
	sensors       = []task.Source{task.SourceUprobe, task.SourceFanotify, task.SourceDevice}
	sensorLabels  = newLabels("sensor", sensors)
)

// pair are the labels of a container on a GPU: alone, and with each value of a
// third label.
type pair struct {
	alone []label
	and   [][]label
}

func newPair(container, gpu label, third []label) pair {
	p := pair{alone: []label{container, gpu}}
	for _, l := range third {
		p.and = append(p.and, []label{container, gpu, l})
	}
	return p
}

// identity is what the labels of a container are made of.
type identity struct {
	name, image string
	class       task.Class
}

// boxLabels are the labels of one container.
type boxLabels struct {
	identity
	container []label
	info      []label
	gpus      map[string]pair // with states
	round     uint64
}

// labels are those of the containers of the last scrape: they change seldom, and
// are most of what a series is made of.
type labels struct {
	boxes map[string]*boxLabels // by container id
	round uint64
}

// of returns the labels of a container.
func (l *labels) of(v *containerView) *boxLabels {
	is := identity{v.name, v.facts.Image, v.facts.Spec.Class}
	b := l.boxes[v.id]
	if b == nil || b.identity != is {
		name := newLabel("container", v.name)
		b = &boxLabels{
			identity:  is,
			container: []label{name},
			info:      []label{newLabel("class", string(is.class)), name, newLabel("id", v.id), newLabel("image", is.image)},
			gpus:      map[string]pair{},
		}
		l.boxes[v.id] = b
	}
	b.round = l.round
	return b
}

func (b *boxLabels) on(gpu string) pair {
	p, ok := b.gpus[gpu]
	if !ok {
		p = newPair(b.container[0], newLabel("gpu", gpu), stateLabels)
		b.gpus[gpu] = p
	}
	return p
}

// begin and end stand around a scrape; what it did not ask for is forgotten.
func (l *labels) begin() { l.round++ }

func (l *labels) end() {
	for id, b := range l.boxes {
		if b.round != l.round {
			delete(l.boxes, id)
		}
	}
}
