// Package policy orders tasks: who is in turn before whom. It says nothing of
// how many run at once; that is package plan's.
//
// Pure: it imports the standard library and exporter/task only.
package policy

import (
	"cmp"
	"slices"

	"github.com/laxity/laxity/exporter/task"
)

// Order says which of two unfinished tasks is in turn first.
type Order interface {
	// Compare is negative when a comes before b. It MUST be a strict total order
	// over tasks with different ids, and MUST NOT depend on whether a task is
	// running or waits; else a plan would undo the one before it.
	Compare(a, b task.Task) int
}

// FIFO orders by start; equal starts by PID, as P3 does.
type FIFO struct{}

// Compare implements Order.
func (FIFO) Compare(a, b task.Task) int {
	return cmp.Or(a.Start.Time.Compare(b.Start.Time), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ID, b.ID))
}

// Sort returns the tasks in order, without touching the argument.
func Sort(o Order, tasks []task.Task) []task.Task {
	return slices.SortedStableFunc(slices.Values(tasks), o.Compare)
}
