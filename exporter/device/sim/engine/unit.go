// Package engine computes when the work of a simulated GPU is done.
//
// It is pure: it owns no goroutine, timer or clock. The caller passes the time
// in, asks Next when something will happen, and calls Advance at that moment
// (or later: Advance catches up event by event). The same calls at the same
// times always give the same result. It imports the standard library only.
//
// The model. Kernels of one owner (a process) run one after another. Kernels of
// several owners share the unit by time slicing: each gets the same share of
// the time, less the cost of a context switch per slice; an owner that is alone
// pays nothing. The sharing is fluid: the slices themselves are not played out,
// only their sum. Transfers run beside kernels and beside each other: those from
// and to pageable memory are bound by their process's CPU, not by the bus.
package engine

import (
	"math"
	"slices"
	"time"
)

// Owner is who a piece of work belongs to.
type Owner int64

// Op is one kernel or one transfer.
type Op struct {
	owner   Owner
	left    float64 // nanoseconds that it still takes with the unit to itself
	done    chan struct{}
	ended   time.Time
	dropped bool
}

// Done is closed when the op has ended or was dropped.
func (o *Op) Done() <-chan struct{} { return o.done }

// Ended is when the op ended. Valid once Done is closed.
func (o *Op) Ended() time.Time { return o.ended }

// Dropped tells that the op was thrown away before its end. Valid once Done is
// closed.
func (o *Op) Dropped() bool { return o.dropped }

func (o *Op) finish(at time.Time, dropped bool) {
	o.ended, o.dropped = at, dropped
	close(o.done)
}

// Unit is one GPU, or one MIG instance. It is not safe for concurrent use.
type Unit struct {
	efficiency float64 // share of the time left for work when owners alternate
	now        time.Time
	kernels    []*queue // owners with at least one kernel, in order of arrival
	copies     []*Op
	meter      map[Owner]*Meter
	total      Meter
}

type queue struct {
	owner Owner
	ops   []*Op // ops[0] is in flight
}

// NewUnit returns an idle unit. Between slices of different owners the unit
// loses switchCost for each slice of work.
func NewUnit(slice, switchCost time.Duration) *Unit {
	efficiency := 1.0
	if slice > 0 && switchCost > 0 {
		efficiency = float64(slice) / float64(slice+switchCost)
	}
	return &Unit{efficiency: efficiency, meter: map[Owner]*Meter{}}
}

// Launch queues a kernel that takes alone when it has the unit to itself.
func (u *Unit) Launch(now time.Time, owner Owner, alone time.Duration) *Op {
	u.Advance(now)
	op := newOp(owner, alone)
	if q := u.queueOf(owner); q != nil {
		q.ops = append(q.ops, op)
	} else {
		u.kernels = append(u.kernels, &queue{owner: owner, ops: []*Op{op}})
	}
	return op
}

// Copy starts a transfer that takes length.
func (u *Unit) Copy(now time.Time, owner Owner, length time.Duration) *Op {
	u.Advance(now)
	op := newOp(owner, length)
	u.copies = append(u.copies, op)
	return op
}

// Drop throws away the owner's transfers and the kernels that have not begun.
// The one in flight stays: a launched kernel cannot be stopped. Busy tells when
// it is through.
func (u *Unit) Drop(now time.Time, owner Owner) {
	u.Advance(now)
	u.copies = slices.DeleteFunc(u.copies, func(op *Op) bool {
		if op.owner == owner {
			op.finish(now, true)
		}
		return op.owner == owner
	})
	if q := u.queueOf(owner); q != nil {
		for _, op := range q.ops[1:] {
			op.finish(now, true)
		}
		q.ops = q.ops[:1]
	}
}

// Reset throws away everything, as when the GPU falls off the bus.
func (u *Unit) Reset(now time.Time) {
	u.Advance(now)
	for _, q := range u.kernels {
		for _, op := range q.ops {
			op.finish(now, true)
		}
	}
	for _, op := range u.copies {
		op.finish(now, true)
	}
	u.kernels, u.copies = nil, nil
}

// Busy tells whether the owner has a kernel in flight or queued.
func (u *Unit) Busy(owner Owner) bool { return u.queueOf(owner) != nil }

// Next is when the next op ends if nothing is added, false when all is idle.
func (u *Unit) Next() (time.Time, bool) {
	d, ok := u.untilNext()
	return u.now.Add(d), ok
}

// Advance moves the unit to now and ends what ended on the way. A time before
// the last one does nothing.
func (u *Unit) Advance(now time.Time) {
	for u.now.Before(now) {
		step := now.Sub(u.now)
		if d, ok := u.untilNext(); ok && d < step {
			step = d
		}
		u.step(step)
	}
}

// untilNext rounds up to a nanosecond, so that the op is through by then.
func (u *Unit) untilNext() (time.Duration, bool) {
	least := math.Inf(1)
	rate := u.rate()
	for _, q := range u.kernels {
		least = min(least, q.ops[0].left/rate)
	}
	for _, op := range u.copies {
		least = min(least, op.left)
	}
	if math.IsInf(least, 1) {
		return 0, false
	}
	const longest = float64(math.MaxInt64 / 4)
	return time.Duration(math.Ceil(min(max(least, 1), longest))), true
}

// rate is the work per time that each owner in flight gets.
func (u *Unit) rate() float64 {
	if n := len(u.kernels); n > 1 {
		return u.efficiency / float64(n)
	}
	return 1
}

func (u *Unit) step(d time.Duration) {
	from, to := u.now, u.now.Add(d)
	u.now = to
	if n := len(u.kernels); n > 0 {
		u.total.Add(from, to, 1)
		rate := u.rate()
		for _, q := range u.kernels {
			u.meterOf(q.owner).Add(from, to, 1/float64(n))
			q.ops[0].left -= float64(d) * rate
		}
	}
	u.kernels = slices.DeleteFunc(u.kernels, func(q *queue) bool {
		if through(q.ops[0]) {
			q.ops[0].finish(to, false)
			q.ops = q.ops[1:]
		}
		return len(q.ops) == 0
	})
	u.copies = slices.DeleteFunc(u.copies, func(op *Op) bool {
		op.left -= float64(d)
		if through(op) {
			op.finish(to, false)
			return true
		}
		return false
	})
}

// through allows for the rounding of floating point: far less than the
// nanosecond to which Next is rounded.
func through(op *Op) bool { return op.left <= 1e-3 }

func newOp(owner Owner, alone time.Duration) *Op {
	return &Op{owner: owner, left: float64(max(alone, 0)), done: make(chan struct{})}
}

func (u *Unit) queueOf(owner Owner) *queue {
	for _, q := range u.kernels {
		if q.owner == owner {
			return q
		}
	}
	return nil
}
