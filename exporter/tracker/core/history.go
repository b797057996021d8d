package core

import (
	"slices"

	"github.com/laxity/laxity/exporter/task"
)

// history holds ended tasks, latest end first.
type history struct {
	tasks []task.Task
}

func (h *history) add(t task.Task) {
	i, _ := slices.BinarySearchFunc(h.tasks, t, func(a, b task.Task) int {
		return b.End.Time.Compare(a.End.Time)
	})
	h.tasks = slices.Insert(h.tasks, i, t)
}

// trim keeps the latest max tasks. It also keeps the latest task of each running container,
// and of the max containers that worked last and are gone: one server with many short tasks
// must not push out the tasks of others. It returns the ids of the dropped tasks.
func (h *history) trim(max int, runs func(containerID string) bool) []string {
	if len(h.tasks) <= max {
		return nil
	}
	seen, gone := map[string]bool{}, 0
	var dropped []string
	kept := h.tasks[:0]
	for i, t := range h.tasks {
		keep := i < max
		if !seen[t.ContainerID] {
			seen[t.ContainerID] = true
			if !runs(t.ContainerID) {
				gone++
			}
			keep = keep || runs(t.ContainerID) || gone <= max
		}
		if keep {
			kept = append(kept, t)
			continue
		}
		dropped = append(dropped, t.ID)
	}
	clear(h.tasks[len(kept):])
	h.tasks = kept
	return dropped
}

// trimHistory bounds the history and publishes a new copy, because readers hold the old one.
// Before the engine has listed its containers, any of them may run.
func (m *Core) trimHistory() {
	dropped := m.history.trim(m.opt.MaxEnded, func(id string) bool { return !m.listed || m.containers[id] != nil })
	m.changes.drop(dropped)
	m.ended = slices.Clone(m.history.tasks)
}
