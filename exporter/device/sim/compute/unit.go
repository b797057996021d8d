// Package compute computes when the work of a simulated GPU is done.
//
// It is pure: it owns no goroutine, timer or clock. The caller passes the time
// in, asks Next when something will happen, and calls Advance at that moment
// (or later: Advance catches up turn by turn). The same calls at the same
// times always give the same result. It imports the standard library only.
//
// The model. Kernels of one owner (a process) run one after another. Owners that
// have a kernel ready take turns of their slice, in the order in which they came
// to the unit first. To take the unit from a kernel that has not ended costs a
// switch, in which nobody computes; from an owner whose kernels have ended it costs
// nothing, and an owner that is alone pays nothing. An owner that is off, or has no
// kernel, takes no turn. Transfers run beside kernels and beside each other: those
// from and to pageable memory are bound by their process's CPU, not by the bus.
package compute

import (
	"slices"
	"time"
)

// Owner is who a piece of work belongs to.
type Owner int64

// Op is one kernel or one transfer.
type Op struct {
	owner   Owner
	left    time.Duration // that it still takes with the unit to itself
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
	slice, switchCost time.Duration
	now               time.Time
	ring              []*group // who takes turns, in order of arrival
	turn              turn
	copies            []*Op
	meter             map[Owner]*Meter
	total             Meter

	watts   map[Owner]float64
	anybody float64
	spent   map[Owner]time.Duration
	energy  float64
	present presence
}

// group is what one owner has on the unit.
type group struct {
	owner Owner
	slice time.Duration
	off   bool
	ops   []*Op // kernels; ops[0] is in flight
}

func (g *group) ready() bool { return !g.off && len(g.ops) > 0 }

// NewUnit returns an idle unit whose owners have this slice at first; 0 is 2048 µs.
func NewUnit(slice, switchCost time.Duration) *Unit {
	if slice <= 0 {
		slice = 2048 * time.Microsecond
	}
	return &Unit{slice: slice, switchCost: max(switchCost, 0), meter: map[Owner]*Meter{},
		watts: map[Owner]float64{}, spent: map[Owner]time.Duration{},
		present: presence{of: map[Owner]time.Duration{}, came: map[Owner]uint64{}}}
}

// Launch queues a kernel that takes alone when it has the unit to itself.
func (u *Unit) Launch(now time.Time, owner Owner, alone time.Duration) *Op {
	u.Advance(now)
	op := newOp(owner, alone)
	g := u.groupOf(owner)
	g.ops = append(g.ops, op)
	u.give()
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
// it is through. Of an owner that is off all is thrown away.
func (u *Unit) Drop(now time.Time, owner Owner) {
	u.Advance(now)
	u.copies = slices.DeleteFunc(u.copies, func(op *Op) bool {
		if op.owner == owner {
			op.finish(now, true)
		}
		return op.owner == owner
	})
	if g := u.find(owner); g != nil && len(g.ops) > 0 {
		keep := 1
		if g.off {
			keep = 0
		}
		for _, op := range g.ops[keep:] {
			op.finish(now, true)
		}
		g.ops = g.ops[:keep]
	}
}

// Reset throws away everything, as when the GPU falls off the bus.
func (u *Unit) Reset(now time.Time) {
	u.Advance(now)
	for _, g := range u.ring {
		for _, op := range g.ops {
			op.finish(now, true)
		}
		g.ops = nil
	}
	for _, op := range u.copies {
		op.finish(now, true)
	}
	u.copies, u.turn = nil, turn{}
}

// Busy tells whether the owner has a kernel in flight or queued.
func (u *Unit) Busy(owner Owner) bool {
	g := u.find(owner)
	return g != nil && len(g.ops) > 0
}

// Next is when the next op ends if nothing is changed, false when none will.
func (u *Unit) Next() (time.Time, bool) {
	d, ok := u.untilKernel()
	for _, op := range u.copies {
		if !ok || op.left < d {
			d, ok = op.left, true
		}
	}
	return u.now.Add(d), ok
}

// Advance moves the unit to now and ends what ended on the way. A time before
// the last one does nothing.
func (u *Unit) Advance(now time.Time) {
	if u.now.IsZero() && u.turn.of == nil && len(u.copies) == 0 {
		u.now = now
	}
	for u.now.Before(now) {
		step := min(now.Sub(u.now), u.untilTurn())
		for _, op := range u.copies {
			step = min(step, op.left)
		}
		u.step(step)
	}
}

func (u *Unit) step(d time.Duration) {
	from, to := u.now, u.now.Add(d)
	u.now = to
	u.present.pass(u.turn, d)
	if g := u.turn.of; g != nil {
		u.total.Add(from, to, 1)
		u.meterOf(g.owner).Add(from, to, 1)
		u.spend(g.owner, d)
		u.work(d)
	}
	u.copies = slices.DeleteFunc(u.copies, func(op *Op) bool {
		op.left -= d
		if op.left <= 0 {
			op.finish(to, false)
			return true
		}
		return false
	})
}

// newOp makes an op that takes at least a nanosecond, so that time goes on.
func newOp(owner Owner, alone time.Duration) *Op {
	return &Op{owner: owner, left: max(alone, 1), done: make(chan struct{})}
}

func (u *Unit) find(owner Owner) *group {
	for _, g := range u.ring {
		if g.owner == owner {
			return g
		}
	}
	return nil
}

func (u *Unit) groupOf(owner Owner) *group {
	if g := u.find(owner); g != nil {
		return g
	}
	g := &group{owner: owner, slice: u.slice}
	u.ring = append(u.ring, g)
	return g
}
