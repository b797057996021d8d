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
	// Request: it is a request of a server (laxity.release=busy).
	Request bool
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

// DefaultPatience is how long a task stands still for others in one piece before
// that is too long.
const DefaultPatience = 30 * time.Second

// Place is the group of a task. Whoever is in an earlier one comes first, whatever
// the deadlines; within a group the order's own key decides.
type Place int

// The places.
const (
	Expedited Place = iota // asked to the front, and its deadline can still be met
	OnTime                 // its deadline can be met, or it is a request that is not too late
	Behind                 // its deadline cannot be met any more
	Last                   // class batch, or no deadline: by start
)

// Placer is an Order that has places.
type Placer interface {
	Order
	Place(j Job) Place
}

// place is what EDF and LLF have in common.
func place(j Job, now time.Time) Place {
	switch {
	case !j.Urgent():
		return Last
	case j.Expedited && now.Before(j.Deadline):
		return Expedited
	default:
		return OnTime
	}
}

// EDF orders by deadline: earliest deadline first, and class batch last.
type EDF struct {
	Now time.Time
}

// Place implements Placer.
func (e EDF) Place(j Job) Place { return place(j, e.Now) }

// Compare implements Order.
func (e EDF) Compare(a, b Job) int {
	if c := cmp.Compare(e.Place(a), e.Place(b)); c != 0 || e.Place(a) == Last {
		return cmp.Or(c, byStart(a, b))
	}
	return cmp.Or(a.Deadline.Compare(b.Deadline), byStart(a, b))
}

// LLF orders by laxity: the time that a task can still waste before it must
// compute without a break to meet its deadline. Least laxity first, class batch last.
type LLF struct {
	Now time.Time
}

// Place implements Placer.
func (l LLF) Place(j Job) Place { return place(j, l.Now) }

// Compare implements Order.
func (l LLF) Compare(a, b Job) int {
	if c := cmp.Compare(l.Place(a), l.Place(b)); c != 0 || l.Place(a) == Last {
		return cmp.Or(c, byStart(a, b))
	}
	return cmp.Or(cmp.Compare(Laxity(a, l.Now), Laxity(b, l.Now)), a.Deadline.Compare(b.Deadline), byStart(a, b))
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

// DefaultLate is for how long a request keeps its place once it is late: longer than
// anything that we do to a server can make it late.
const DefaultLate = 2 * time.Second

// LateLast orders as Placer does, but puts tasks that cannot meet their deadline any
// more behind those that can: under overload a late task would otherwise make the next
// one late too, and so on. A request is not given up like that: its client waits, so
// it keeps the place of its deadline until it is late by more than Late. Without that
// bound one overloaded server would come first for ever.
type LateLast struct {
	Placer
	Now time.Time
	// Late is DefaultLate if 0.
	Late time.Duration
}

// Place implements Placer.
func (o LateLast) Place(j Job) Place {
	if p := o.Placer.Place(j); p == Last || !o.late(j) {
		return p
	}
	return Behind
}

func (o LateLast) late(j Job) bool {
	if j.Request {
		return o.Now.Sub(j.Deadline) > cmp.Or(o.Late, DefaultLate)
	}
	return Late(j, o.Now)
}

// Compare implements Order.
func (o LateLast) Compare(a, b Job) int {
	return cmp.Or(cmp.Compare(o.Place(a), o.Place(b)), o.Placer.Compare(a, b))
}

// Late reports whether the job, which has a deadline, has missed it, or needs
// twice the time that is left even by a low estimate: estimates err, and who is
// late by mistake loses its turn.
func Late(j Job, now time.Time) bool {
	left := j.Deadline.Sub(now)
	return left < 0 || (j.Known && left < j.Least/2)
}
