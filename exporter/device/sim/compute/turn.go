package compute

import (
	"math"
	"slices"
	"time"
)

// turn is whose turn it is.
type turn struct {
	of      *group        // nil: nobody is ready
	loading time.Duration // left of the switch that comes first
	left    time.Duration // of the slice
}

// Slice is the owner's time slice.
func (u *Unit) Slice(owner Owner) time.Duration {
	if g := u.find(owner); g != nil {
		return g.slice
	}
	return u.slice
}

// SetSlice changes the owner's slice at once: one that runs ends when the new length
// is over, counted from its begin. A slice is at least a nanosecond.
func (u *Unit) SetSlice(now time.Time, owner Owner, slice time.Duration) {
	u.Advance(now)
	g := u.groupOf(owner)
	slice = max(slice, 1)
	if u.turn.of == g {
		used := g.slice - u.turn.left
		u.turn.left = max(slice-used, 0)
	}
	g.slice = slice
	u.give()
}

// Switch takes the owner off the unit, or lets it on again. Its kernel stands meanwhile
// and goes on where it was. A kernel that is taken off costs a switch.
func (u *Unit) Switch(now time.Time, owner Owner, on bool) {
	u.Advance(now)
	g := u.groupOf(owner)
	if g.off == !on {
		return
	}
	g.off = !on
	if g.off && u.turn.of == g {
		u.pass(u.switchCost)
	}
	u.give()
}

// Off reports whether the owner is off the unit.
func (u *Unit) Off(owner Owner) bool {
	g := u.find(owner)
	return g != nil && g.off
}

// Forget drops what is known of an owner that is gone, and its place in the ring.
func (u *Unit) Forget(owner Owner) {
	delete(u.meter, owner)
	u.ring = slices.DeleteFunc(u.ring, func(g *group) bool {
		return g.owner == owner && len(g.ops) == 0 && g != u.turn.of
	})
}

// give gives the unit to somebody where nobody has it, or to the next one where the
// slice is over.
func (u *Unit) give() {
	switch g := u.turn.of; {
	case g == nil:
		u.pass(0)
	case u.turn.loading == 0 && u.turn.left <= 0:
		if u.nextReady() == g {
			u.turn.left = g.slice
			return
		}
		u.pass(u.switchCost)
	}
}

// pass gives the unit to the next one that is ready, after a switch of this cost.
func (u *Unit) pass(cost time.Duration) {
	next := u.nextReady()
	if next == nil {
		u.rotate()
		u.turn = turn{}
		return
	}
	u.rotate()
	u.turn = turn{of: next, loading: cost, left: next.slice}
}

// nextReady is who is ready after the one whose turn it is, and it itself at last.
func (u *Unit) nextReady() *group {
	at := slices.Index(u.ring, u.turn.of)
	for i := range u.ring {
		if g := u.ring[(at+1+i)%len(u.ring)]; g.ready() {
			return g
		}
	}
	return nil
}

// rotate puts the one whose turn it was at the end of the ring, so that a turn after
// nobody's begins behind it.
func (u *Unit) rotate() {
	if at := slices.Index(u.ring, u.turn.of); at >= 0 {
		u.ring = append(slices.Clone(u.ring[at+1:]), u.ring[:at+1]...)
	}
}

// work lets the one whose turn it is work for d, which is not beyond untilTurn.
func (u *Unit) work(d time.Duration) {
	t := &u.turn
	if t.loading > 0 {
		t.loading -= d
		return
	}
	op := t.of.ops[0]
	op.left -= d
	if t.left -= d; t.left < 0 { // alone: its slices follow each other
		t.left = t.of.slice - (-t.left)%t.of.slice
	}
	if op.left <= 0 {
		op.finish(u.now, false)
		if t.of.ops = t.of.ops[1:]; len(t.of.ops) == 0 {
			u.pass(0)
			return
		}
	}
	u.give()
}

// untilTurn is how long nothing changes in who computes.
func (u *Unit) untilTurn() time.Duration {
	t := u.turn
	switch {
	case t.of == nil:
		return math.MaxInt64
	case t.loading > 0:
		return t.loading
	case u.nextReady() == t.of:
		return t.of.ops[0].left
	default:
		return min(t.of.ops[0].left, t.left)
	}
}

// untilKernel is how long it takes until a kernel ends. Up to then all that are ready stay
// so, and take their turns one after another.
func (u *Unit) untilKernel() (time.Duration, bool) {
	t := u.turn
	if t.of == nil {
		return 0, false
	}
	ready := u.inOrder()
	if len(ready) == 1 {
		return t.loading + ready[0].ops[0].left, true
	}
	var round float64
	for _, g := range ready {
		round += float64(g.slice + u.switchCost)
	}
	until := math.Inf(1)
	begin := float64(t.loading) // of a group's next turn
	for i, g := range ready {
		left, first := float64(g.ops[0].left), float64(g.slice)
		if i == 0 {
			first = float64(t.left)
		}
		end := begin + left
		if left > first {
			// Besides the first turn it takes some full ones and a last one, each a round later.
			more := math.Ceil((left - first) / float64(g.slice))
			since := begin + round
			if i == 0 { // its first turn is shorter, and so the round
				since -= float64(g.slice) - first
			}
			end = since + (more-1)*round + (left - first) - (more-1)*float64(g.slice)
		}
		until = min(until, end)
		begin += first + float64(u.switchCost)
	}
	const longest = float64(math.MaxInt64 / 4)
	return time.Duration(math.Ceil(min(until, longest))), true
}

// inOrder is who is ready, beginning with the one whose turn it is.
func (u *Unit) inOrder() []*group {
	at := max(slices.Index(u.ring, u.turn.of), 0)
	var list []*group
	for i := range u.ring {
		if g := u.ring[(at+i)%len(u.ring)]; g.ready() {
			list = append(list, g)
		}
	}
	return list
}
