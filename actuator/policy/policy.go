// Package policy orders tasks: who is in turn before whom. It says nothing of
// how many run at once, nor of when a running one is stopped for another; that
// is package plan's.
//
// Pure: it imports the standard library and exporter/task only.
package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Job is one unfinished task with what an order may depend on.
type Job struct {
	task.Task
	// Batch: its container's class is batch. A deadline that it has all the same
	// does not count.
	Batch bool
	// Remaining is how long it still computes when nothing disturbs it, estimated
	// high; Least is the same, estimated low. Meaningless unless Known.
	Remaining, Least time.Duration
	Known            bool
	// Waited is how long it has been standing still for others, in one piece.
	Waited time.Duration
	// Expedited: somebody asked for it to go to the front.
	Expedited bool
}

// Urgent reports whether the job has a deadline that counts.
func (j Job) Urgent() bool { return j.HasDeadline() && !j.Batch }

// Order says which of two unfinished tasks is in turn first.
type Order interface {
	// Compare is negative when a comes before b. At any one moment it MUST be a
	// strict total order over jobs with different ids.
	Compare(a, b Job) int
}

// Sort returns the jobs in order, without touching the argument.
func Sort(o Order, jobs []Job) []Job {
	return slices.SortedStableFunc(slices.Values(jobs), o.Compare)
}

// FIFO orders by start; equal starts by PID, as P3 does.
type FIFO struct{}

// Compare implements Order.
func (FIFO) Compare(a, b Job) int { return byStart(a, b) }

func byStart(a, b Job) int {
	return cmp.Or(a.Start.Time.Compare(b.Start.Time), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ID, b.ID))
}

// DefaultPatience is how long a batch task waits for tasks with deadlines before
// it is counted among them.
const DefaultPatience = 30 * time.Second

// rank puts jobs into groups; within each the order's own key decides.
type rank int

const (
	expedited rank = iota // asked to the front, and its deadline can still be met
	timed                 // has a deadline, or has been patient for long enough
	batch                 // everybody else, by start
)

// group is what EDF and LLF have in common: tasks without a deadline come after
// those with one, until they have waited for as long as patience lasts.
func group(j Job, now time.Time, patience time.Duration) rank {
	switch {
	case j.Expedited && j.Urgent() && now.Before(j.Deadline):
		return expedited
	case j.Urgent(), aged(j, patience):
		return timed
	default:
		return batch
	}
}

func aged(j Job, patience time.Duration) bool { return !j.Urgent() && j.Waited >= patience }

// EDF orders by deadline: earliest deadline first.
type EDF struct {
	Now time.Time
	// Patience is DefaultPatience if 0.
	Patience time.Duration
}

// Compare implements Order.
func (e EDF) Compare(a, b Job) int {
	p := cmp.Or(e.Patience, DefaultPatience)
	ra, rb := group(a, e.Now, p), group(b, e.Now, p)
	if c := cmp.Compare(ra, rb); c != 0 || ra == batch {
		return cmp.Or(c, byStart(a, b))
	}
	return cmp.Or(e.due(a, p).Compare(e.due(b, p)), byStart(a, b))
}

// due is the deadline; of a batch task the moment at which its patience ended.
func (e EDF) due(j Job, patience time.Duration) time.Time {
	if j.Urgent() {
		return j.Deadline
	}
	return e.Now.Add(patience - j.Waited)
}

// LLF orders by laxity: the time that a task can still waste before it must
// compute without a break to meet its deadline. Least laxity first.
type LLF struct {
	Now time.Time
	// Patience is DefaultPatience if 0.
	Patience time.Duration
}

// Compare implements Order.
func (l LLF) Compare(a, b Job) int {
	p := cmp.Or(l.Patience, DefaultPatience)
	ra, rb := group(a, l.Now, p), group(b, l.Now, p)
	if c := cmp.Compare(ra, rb); c != 0 || ra == batch {
		return cmp.Or(c, byStart(a, b))
	}
	return cmp.Or(cmp.Compare(l.laxity(a, p), l.laxity(b, p)), a.Deadline.Compare(b.Deadline), byStart(a, b))
}

func (l LLF) laxity(j Job, patience time.Duration) time.Duration {
	if !j.Urgent() {
		return patience - j.Waited
	}
	return Laxity(j, l.Now)
}

// Laxity is deadline − now − remaining time, of a job with a deadline. Of a job
// about which nothing is known the worst is assumed that leaves it a chance: it
// needs all the time that is left.
func Laxity(j Job, now time.Time) time.Duration {
	left := j.Deadline.Sub(now)
	if !j.Known {
		return min(left, 0)
	}
	return left - j.Remaining
}

// LateLast orders as Order does, but puts tasks that cannot meet their deadline
// any more behind those that can: under overload a late task would otherwise make
// the next one late too, and so on. Tasks without a deadline still come last. Who
// has waited for as long as patience lasts is not put back.
type LateLast struct {
	Order
	Now time.Time
	// Patience is DefaultPatience if 0.
	Patience time.Duration
}

// Compare implements Order.
func (o LateLast) Compare(a, b Job) int {
	return cmp.Or(cmp.Compare(o.rank(a), o.rank(b)), o.Order.Compare(a, b))
}

func (o LateLast) rank(j Job) int {
	p := cmp.Or(o.Patience, DefaultPatience)
	switch {
	case group(j, o.Now, p) == batch:
		return 2
	case j.Urgent() && j.Waited < p && Late(j, o.Now):
		return 1
	default:
		return 0
	}
}

// Late reports whether the job, which has a deadline, has missed it, or needs
// twice the time that is left even by a low estimate: estimates err, and who is
// late by mistake loses its turn.
func Late(j Job, now time.Time) bool {
	left := j.Deadline.Sub(now)
	return left < 0 || (j.Known && left < j.Least/2)
}
