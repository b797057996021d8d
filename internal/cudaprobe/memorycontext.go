package cudaprobe

import (
	"github.com/cilium/ebpf/asm"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Memory is allocated on the GPU of the thread's current context. So the programs
// here keep, for processes that see several GPUs, on which one each context is, and
// which contexts a thread has pushed: a word whose lowest byte is the current one,
// as the ordinal of its GPU and one; 0: not known. Seven may lie below it.

// The context that a thread makes: where its handle goes, the stack, the ordinal,
// and the kind of function.
const makingOut, makingStack, makingOrdinal, makingKind, makingSize = 0, 8, 16, 20, 24

// ordinalArgument puts the GPU that a function of cudafile.Contexts names into
// device. Its kind is in r0.
func (b *builder) ordinalArgument() {
	for _, one := range []struct {
		kind cudafile.Kind
		from int16
		next string
	}{
		{cudafile.ContextOnSecond, ptSI, "not second"}, {cudafile.ContextOnThird, ptDX, "not third"},
		{cudafile.ContextOnFourth, ptCX, "not fourth"}, {cudafile.ContextOnFifth, ptR8, "not fifth"},
	} {
		b.add(
			asm.JNE.Imm(asm.R0, int32(one.kind), one.next),
			asm.LoadMem(asm.R1, regs, one.from, asm.DWord),
			asm.StoreMem(frame, device, asm.R1, asm.Word),
		)
		b.label(one.next)
	}
}

// onCurrent puts the GPU of the thread's current context into device, if the call
// itself names none. The register task must point to the process's guardedValue.
func (b *builder) onCurrent(m memoryMaps) {
	b.add(
		asm.LoadMem(asm.R1, task, guardedOrdinals, asm.Word),
		asm.JEq.Imm(asm.R1, 1, "named"), // there is one only
		asm.LoadMem(asm.R1, frame, device, asm.Word),
		asm.JLT.Imm(asm.R1, maxOrdinals, "named"),
		asm.StoreMem(frame, key16, pidTID, asm.DWord),
	)
	b.lookup(m.current, key16)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "named"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.And.Imm(asm.R1, 0xff),
		asm.JEq.Imm(asm.R1, 0, "named"),
		asm.Sub.Imm(asm.R1, 1),
		asm.StoreMem(frame, device, asm.R1, asm.Word),
	)
	b.label("named")
}

// countContext counts one that was made, of a call whose kind is in r1.
func (b *builder) countContext(m memoryMaps) {
	b.add(
		asm.JLT.Imm(asm.R1, int32(cudafile.ContextOnSecond), "exit"),
		asm.JGT.Imm(asm.R1, int32(cudafile.ContextElse), "exit"),
	)
	b.countInPool(m, poolContexts)
}

// countInPool adds one to a counter of the process's poolValue.
func (b *builder) countInPool(m memoryMaps, counter int16) {
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, counter),
	)
}

// contextsSeen lets somebody be asked while the ledger may not show all contexts of the
// process: what they count for is a guess. The register task must point to the
// process's guardedValue.
func (b *builder) contextsSeen(m memoryMaps) {
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "contexts seen"),
		asm.LoadMem(asm.R1, asm.R0, poolContexts, asm.DWord),
		asm.LoadMem(asm.R2, task, guardedSeen, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "beyond"),
	)
	b.label("contexts seen")
}

// several goes on for guarded processes that see several GPUs.
func (b *builder) several(m memoryMaps) {
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.lookup(m.guarded, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, guardedOrdinals, asm.Word),
		asm.JEq.Imm(asm.R1, 1, "exit"),
	)
}

// makes runs when a context is asked for.
func makes(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.several(m)
	b.add(asm.StoreImm(frame, device, -1, asm.Word))
	b.kind()
	b.add(asm.StoreMem(frame, buffer+makingKind, asm.R0, asm.Word))
	b.ordinalArgument()
	b.add(
		asm.LoadMem(asm.R1, frame, device, asm.Word), asm.StoreMem(frame, buffer+makingOrdinal, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, regs, ptDI, asm.DWord), asm.StoreMem(frame, buffer+makingOut, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, regs, ptSP, asm.DWord), asm.StoreMem(frame, buffer+makingStack, asm.R1, asm.DWord),
	)
	b.update(m.making, evTID, buffer)
	return b.finish()
}

// made runs when it is there. One that was created is the thread's current one.
func made(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.several(m)
	b.ifReturns(m.making, makingStack)
	b.add(
		asm.LoadMem(state, asm.R0, makingOrdinal, asm.Word),
		asm.LoadMem(task, asm.R0, makingOut, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, makingKind, asm.Word), asm.StoreMem(frame, callTo+cKind, asm.R1, asm.Word),
	)
	b.delete(m.making, evTID)
	b.add(
		asm.LoadMem(asm.R1, regs, ptAX, asm.Word), asm.JNE.Imm(asm.R1, 0, "exit"),
		asm.JGE.Imm(state, maxOrdinals, "exit"),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
	)
	b.readUser(key16+8, 8, task, 0)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.StoreMem(frame, buffer, state, asm.DWord),
	)
	b.update(m.contexts, key16, buffer)
	b.add(
		asm.Add.Imm(state, 1),
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JEq.Imm(asm.R1, int32(cudafile.ContextOnSecond), "exit"), // it was retained
	)
	b.push(m, true)
	return b.finish()
}

// turns runs when a thread changes its current context. Its cookie is the kind.
func turns(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.several(m)
	b.kind()
	b.add(asm.JEq.Imm(asm.R0, int32(cudafile.PopContext), "pop"))
	b.add(
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, regs, ptDI, asm.DWord), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
	)
	b.lookup(m.contexts, key16)
	b.add(
		asm.Mov.Imm(state, 0),
		asm.JEq.Imm(asm.R0, 0, "found"),
		asm.LoadMem(state, asm.R0, 0, asm.DWord),
		asm.Add.Imm(state, 1),
	)
	b.label("found")
	b.add(
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JEq.Imm(asm.R1, int32(cudafile.SetContext), "set"),
	)
	b.push(m, true)
	b.add(asm.Ja.Label("exit"))
	b.label("set")
	b.push(m, false)
	b.add(asm.Ja.Label("exit"))

	b.label("pop")
	b.add(asm.StoreMem(frame, key16, pidTID, asm.DWord))
	b.lookup(m.current, key16)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.RSh.Imm(asm.R1, 8),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	)
	return b.finish()
}

// push makes the byte in state the thread's current context: above the one before,
// or in its place.
func (b *builder) push(m memoryMaps, above bool) {
	name := "first in place"
	if above {
		name = "first above"
	}
	b.add(asm.StoreMem(frame, key16, pidTID, asm.DWord))
	b.lookup(m.current, key16)
	b.add(
		asm.Mov.Imm(asm.R1, 0),
		asm.JEq.Imm(asm.R0, 0, name),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
	)
	b.label(name)
	if above {
		b.add(asm.LSh.Imm(asm.R1, 8))
	} else {
		b.add(asm.And.Imm(asm.R1, -256))
	}
	b.add(asm.Or.Reg(asm.R1, state), asm.StoreMem(frame, buffer, asm.R1, asm.DWord))
	b.update(m.current, key16, buffer)
}

// forgetContexts drops what is known of a process's contexts.
func (g *MemoryGuard) forgetContexts(pid int) {
	forgetOf(g.maps.contexts, pid)
	var thread, value uint64
	var threads []uint64
	for entries := g.maps.current.Iterate(); entries.Next(&thread, &value); {
		if thread>>32 == uint64(pid) {
			threads = append(threads, thread)
		}
	}
	for _, key := range threads {
		_ = g.maps.current.Delete(key)
	}
}
