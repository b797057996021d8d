package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/laxity/laxity/exporter/task"
)

// prediction is what would become of a GPU's deadlines with one task more.
type prediction struct {
	// float is what the new task would end with: its deadline less its own work
	// and all that is due no later. +Inf without a deadline.
	float task.Seconds
	// demand is the work that is there without it, seconds.
	demand task.Seconds
	// reason is why it cannot be; nil when every deadline holds.
	reason *Reason
}

// predict does the work in the order of the deadlines, from now on, one task at a
// time, and looks at each deadline (the demand of EDF). A task that cannot be
// stopped once its kernel runs may still come in the way: this is an estimate.
func predict(work []Work, req Request) prediction {
	due, need := task.Seconds(math.Inf(1)), req.Estimate
	if req.Deadline > 0 {
		due = req.Deadline
		if need <= 0 {
			need = due
		}
	}
	ordered := slices.Clone(work)
	slices.SortStableFunc(ordered, func(a, b Work) int { return cmp.Compare(a.Due, b.Due) })
	var p prediction
	var before task.Seconds
	for _, w := range ordered {
		p.demand += w.Left
		if w.Due <= due {
			before += w.Left
		}
		added := task.Seconds(0)
		if w.Due > due {
			added = need
		}
		// Who misses its deadline whatever comes loses nothing by one task more: a late task
		// does not close a GPU, it is work that is there.
		if slack := w.Due - p.demand; p.reason == nil && slack >= 0 && slack < added {
			p.reason = &Reason{Code: WouldMiss, Text: wouldMiss(w, slack, need)}
		}
	}
	p.float = due - before - need
	if math.IsInf(float64(due), 1) {
		p.float = due
	}
	if p.reason == nil && p.float < 0 {
		p.reason = &Reason{Code: WorkBefore, Text: workBefore(req, before, need)}
	}
	return p
}
