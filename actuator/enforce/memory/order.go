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

// learn returns the order by which contexts on the ordinals made (a bit set) show on the GPUs listed (a
// bit set of indices). It is the same one if it explains what is listed, or while not all is listed that was made. A
// program that leaves GPUs out mostly keeps the order of the others, so several are taken in order.
func (o order) learn(made, listed uint32) order {
	made &= 1<<len(o) - 1
	have, want := bits.OnesCount32(made), bits.OnesCount32(listed)
	switch {
	case o.gpus(made) == listed || have > want:
		return o
	case have < want: // it has contexts that nobody saw being made: they say nothing
		return asGiven(len(o))
	}
	learnt := asGiven(len(o))
	ordinals, gpus := indices(made&^listed), indices(listed&^made)
	for i, ordinal := range ordinals {
		learnt[ordinal], learnt[gpus[i]] = gpus[i], ordinal
	}
	return learnt
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
