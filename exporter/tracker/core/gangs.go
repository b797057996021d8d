package core

import (
	"cmp"
	"slices"

	"github.com/laxity/laxity/exporter/task"
)

// agree compares the labels of the members of a gang again, after one of them changed, came or
// left. A disagreement counts as an invalid label of each.
func (m *Core) agree(gang string) {
	if gang == "" {
		return
	}
	var members []*containerState
	var list []task.Container
	for _, b := range m.containers {
		if b.bare().GangID() == gang {
			members = append(members, b)
		}
	}
	slices.SortFunc(members, func(a, b *containerState) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	for _, b := range members {
		list = append(list, b.bare())
	}
	why := task.GangConflicts(list)[gang]
	for _, b := range members {
		b.conflict = why
	}
}

// bare is what GangID and GangConflicts read.
func (b *containerState) bare() task.Container {
	return task.Container{ID: b.ID, Name: b.Name, Spec: b.spec}
}

// invalidLabels lists the labels that could not be read, sorted, and that of a gang whose members
// disagree.
func (b *containerState) invalidLabels() []task.InvalidLabel {
	if b.conflict == "" {
		return b.invalid
	}
	all := append(slices.Clone(b.invalid), task.InvalidLabel{Label: task.LabelGang, Value: b.spec.Gang, Hint: b.conflict})
	slices.SortFunc(all, func(a, b task.InvalidLabel) int { return cmp.Compare(a.Label, b.Label) })
	return all
}
