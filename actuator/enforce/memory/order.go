package memory

import (
	"math/bits"
	"slices"
)

// order is how a process counts the GPUs of its container: by its ordinal of a GPU, the index in
// Target.GPUs. Most processes count them as they are given. A program may leave some out, or change
// their order (CUDA_VISIBLE_DEVICES), and CUDA itself puts the fastest of unequal ones first. Nobody
// tells us; it shows once the device lists the process on other GPUs than it made contexts on.
type order []int

func asGiven(gpus int) order {
	o := make(order, gpus)
	for i := range o {
		o[i] = i
	}
	return o
}

// shown is what a process's contexts have shown of its order.
type shown struct {
	order order
	facts uint32 // the ordinals (a bit set) whose GPU the device has listed; that of the others is a guess
	late  bool   // it had contexts before it was guarded: what is listed says nothing of those made since
}

// learn returns the order by which contexts on the ordinals made (a bit set) show on the GPUs listed (a
// bit set of indices), and what is known now. What is known stays while it explains what is listed, and while not
// all is listed that was made. A program that leaves GPUs out mostly keeps the order of the others, so several that
// are new are taken in order.
func (s shown) learn(made, listed uint32) (order, shown) {
	made &= 1<<len(s.order) - 1
	have, want := bits.OnesCount32(made), bits.OnesCount32(listed)
	switch {
	case s.late:
		return s.order, s
	case s.order.gpus(made) == listed:
		s.facts |= made
		return s.order, s
	case have > want:
		return s.order, s
	case have < want: // of some contexts nobody saw the making, or it goes on: nothing is certain now, and nothing forgotten
		return asGiven(len(s.order)), s
	}
	s = s.pair(made, listed)
	return s.order, s
}

// pair keeps the facts that fit to what is listed, takes the rest of made and listed in order, and leaves other
// ordinals as they are given where it can.
func (s shown) pair(made, listed uint32) shown {
	var all uint32 = 1<<len(s.order) - 1
	next := shown{order: make(order, len(s.order)), facts: made}
	next.order.match(made, listed, func(ordinal int) (int, bool) { return s.order[ordinal], s.facts&(1<<ordinal) != 0 })
	next.order.match(all&^made, all&^listed, func(ordinal int) (int, bool) { return ordinal, true })
	return next
}

// match gives each of the ordinals one of as many gpus (bit sets): its own, if it has one among them, and the rest in order.
func (o order) match(ordinals, gpus uint32, own func(ordinal int) (gpu int, ok bool)) {
	var left uint32
	for _, ordinal := range indices(ordinals) {
		if gpu, ok := own(ordinal); ok && gpus&(1<<gpu) != 0 {
			o[ordinal] = gpu
			gpus &^= 1 << gpu
		} else {
			left |= 1 << ordinal
		}
	}
	rest := indices(gpus)
	for i, ordinal := range indices(left) {
		o[ordinal] = rest[i]
	}
}

// gpus returns the GPUs (a bit set of indices) at ordinals (a bit set).
func (o order) gpus(ordinals uint32) (set uint32) {
	for ordinal, gpu := range o {
		if ordinals&(1<<ordinal) != 0 {
			set |= 1 << gpu
		}
	}
	return set
}

// of returns the ordinals (a bit set) of GPUs (a bit set of indices).
func (o order) of(gpus uint32) (set uint32) {
	for ordinal, gpu := range o {
		if gpus&(1<<gpu) != 0 {
			set |= 1 << ordinal
		}
	}
	return set
}

// indices lists the bits of a set, the lowest first.
func indices(set uint32) (all []int) {
	for ; set != 0; set &= set - 1 {
		all = append(all, bits.TrailingZeros32(set))
	}
	return all
}

// reorder makes a process's allocations count on the GPUs that they are on. What it was granted on another one
// until now is in the usage of the right one.
func (g *Guard) reorder(p *process, o order) {
	if slices.Equal(o, p.order) {
		return
	}
	g.o.Logger.Debug("a process counts its GPUs in another order", "container", p.of.ID, "pid", p.pid, "order", o)
	p.order = o
	clear(p.took)
	slots := make([]uint32, len(o))
	for ordinal, gpu := range o {
		slots[ordinal] = p.of.slots[gpu]
	}
	g.note(g.kernel.Reorder(p.pid, slots))
}
