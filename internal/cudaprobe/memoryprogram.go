package cudaprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Places on the stack of the memory guard's programs, below those of program.go.
const (
	newSpent = -72 // what a slot has spent with this call
	device   = -80 // ordinal of the GPU that a call is for; -1: not known
	key16    = -96 // a key of 16 bytes: holdKey, or process and pointer
	callTo   = -160
	buffer   = -192 // 32 bytes read from the process
)

// regs holds the registers of the caller, in every program here.
const regs = asm.R6

// tooMuch is a size that no GPU has: it is not added to anything.
const tooMuch = 50 // as a power of two

// readUser copies size bytes at the address in register from onto the stack.
func (b *builder) readUser(to, size int32, from asm.Register, offset int32) {
	b.add(asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, offset))
	b.arg(asm.R1, to)
	b.add(asm.Mov.Imm(asm.R2, size), asm.FnProbeReadUser.Call())
}

// store puts a register into the call.
func (b *builder) store(at int32, r asm.Register, size asm.Size) {
	b.add(asm.StoreMem(frame, int16(callTo+at), r, size))
}

// allocation runs at the entry of a function that allocates memory. A call that
// the slot's budget covers goes on at once. Another one is held: put on record,
// and its process stopped, until somebody has decided.
//
// The signal goes to the calling thread itself: it takes it before it is back in
// its program, and the others stop with it. One to the process could be taken by
// another thread, and this one would be in the middle of the call by then.
//
// Its cookie is the function's kind.
func allocation(m memoryMaps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m.maps, task: t}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.lookup(m.guarded, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"), asm.Mov.Reg(task, asm.R0)) // task: guardedValue
	b.notNested(m)
	b.add(asm.StoreImm(frame, device, -1, asm.Word))
	b.size() // state: bytes
	b.onCurrent(m)
	b.slot()
	b.call()
	b.ofNode()
	b.pooled(m)
	b.update(m.inCalls, evTID, callTo)
	b.spend(m)
	b.hold(m)
	return b.finish()
}

// notNested goes on unless the thread is in another allocation that is being
// counted, higher up its stack.
func (b *builder) notNested(m memoryMaps) {
	b.lookup(m.inCalls, evTID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "outermost"),
		asm.LoadMem(asm.R1, asm.R0, cStack, asm.DWord),
		asm.LoadMem(asm.R2, regs, ptSP, asm.DWord),
		asm.JGT.Reg(asm.R1, asm.R2, "exit"),
	)
	b.label("outermost")
}

// ifReturns goes on where the call returns that the thread has in a map, with the stack
// at its entry in this place of the value, which r0 points to then; not where one inside
// it does.
func (b *builder) ifReturns(calls *ebpf.Map, stack int16) {
	b.lookup(calls, evTID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, stack, asm.DWord),
		asm.Add.Imm(asm.R1, 8),
		asm.LoadMem(asm.R2, regs, ptSP, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "exit"),
	)
}

// slot finds the budget that the call is on. The register task must point to the
// process's guardedValue.
func (b *builder) slot() {
	b.add(
		asm.StoreImm(frame, int16(callTo+cSlot), -1, asm.Word),
		asm.LoadMem(asm.R1, task, guardedOrdinals, asm.Word),
		asm.Mov.Imm(asm.R2, 0),
		asm.JEq.Imm(asm.R1, 1, "ordinal"),
		asm.LoadMem(asm.R2, frame, device, asm.Word),
		asm.JGE.Reg(asm.R2, asm.R1, "no slot"),
		asm.JGE.Imm(asm.R2, maxOrdinals, "no slot"),
	)
	b.label("ordinal")
	b.add(
		asm.JGE.Imm(asm.R2, maxOrdinals, "no slot"), // for the verifier
		asm.LSh.Imm(asm.R2, 2),
		asm.Mov.Reg(asm.R1, task),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R1, asm.R1, guardedSlots, asm.Word),
	)
	b.store(cSlot, asm.R1, asm.Word)
	b.label("no slot")
}

// call fills in the call but for its kind, as one that is spent.
func (b *builder) call() {
	b.store(cSize, state, asm.DWord)
	for _, one := range []struct {
		at   int32
		from int16
	}{{cStack, ptSP}, {cEntry, ptIP}, {cOut, ptDI}} {
		b.add(asm.LoadMem(asm.R1, regs, one.from, asm.DWord))
		b.store(one.at, asm.R1, asm.DWord)
	}
	b.now()
	b.add(asm.LoadMem(asm.R0, frame, evTime, asm.DWord))
	b.store(cTime, asm.R0, asm.DWord)
	b.add(asm.LoadMem(asm.R1, regs, ptSP, asm.DWord))
	b.add(asm.Mov.Reg(asm.R2, asm.R1), asm.Mov.Imm(asm.R1, 0))
	b.store(cReturn, asm.R1, asm.DWord)
	b.readUser(callTo+cReturn, 8, asm.R2, 0)
	b.add(asm.LoadMem(asm.R1, frame, evPID, asm.Word))
	b.store(cPID, asm.R1, asm.Word)
	b.add(asm.StoreImm(frame, int16(callTo+cState), int64(callSpent), asm.Word))
}

// pooled marks a call whose memory its pool should have already: the pools of the
// process have had so much in use before, and have not given it back since. The
// register task must point to the process's guardedValue.
func (b *builder) pooled(m memoryMaps) {
	b.add(
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JNE.Imm(asm.R1, int32(cudafile.AllocPool), "no pool"),
	)
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "no pool"),
		asm.LoadMem(asm.R1, asm.R0, poolUsed, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, poolPeak, asm.DWord),
		asm.LoadMem(asm.R3, task, guardedTrimmed, asm.DWord),
		asm.JGE.Reg(asm.R3, asm.R2, "no pool"),
		asm.Sub.Reg(asm.R2, asm.R3),
		asm.JGT.Reg(state, asm.R2, "no pool"),
		asm.Add.Reg(asm.R1, state),
		asm.JGT.Reg(asm.R1, asm.R2, "no pool"),
		asm.StoreImm(frame, int16(callTo+cState), int64(callFree), asm.Word),
	)
	b.label("no pool")
}

// update puts a value on the stack into a map.
func (b *builder) update(m *ebpf.Map, keyAt, valueAt int32) {
	b.add(asm.LoadMapPtr(asm.R1, m.FD()))
	b.arg(asm.R2, keyAt)
	b.arg(asm.R3, valueAt)
	b.add(asm.Mov.Imm(asm.R4, int32(ebpf.UpdateAny)), asm.FnMapUpdateElem.Call())
}

// spend counts the call, and ends the program if the budget covers it, or if it
// needs none. Else it is not counted.
func (b *builder) spend(m memoryMaps) {
	const slotAt = callTo + cSlot
	b.add(asm.LoadMem(asm.R1, frame, int16(callTo+cState), asm.Word), asm.JEq.Imm(asm.R1, int32(callFree), "exit"))
	b.followed()
	b.contextsSeen(m)
	b.add(
		asm.Mov.Reg(asm.R1, state),
		asm.RSh.Imm(asm.R1, tooMuch),
		asm.JNE.Imm(asm.R1, 0, "beyond"),
	)
	b.lookup(m.spent, slotAt)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "beyond"), // its slot is not known
		asm.Mov.Reg(asm.R1, state),
		atomicOp(asm.FetchAdd, asm.R0, asm.R1, spentSpent), // r1 = spent before
		asm.Add.Reg(asm.R1, state),
		asm.StoreMem(frame, newSpent, asm.R1, asm.DWord),
	)
	b.lookup(m.budgets, slotAt)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "give back"),
		asm.LoadMem(asm.R1, asm.R0, budgetCeiling, asm.DWord),
		asm.LoadMem(asm.R2, frame, newSpent, asm.DWord),
		asm.JGT.Reg(asm.R2, asm.R1, "give back"),
	)
	b.lookup(m.spent, slotAt)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, spentPassed),
		asm.Ja.Label("exit"),
	)
	b.label("give back")
	b.giveBack(m, slotAt, "beyond")
	b.label("beyond")
	b.setState(m, callHeld)
}

// giveBack takes the bytes in the register state off what a slot has spent.
func (b *builder) giveBack(m memoryMaps, slotAt int32, otherwise string) {
	b.lookup(m.spent, slotAt)
	b.add(
		asm.JEq.Imm(asm.R0, 0, otherwise),
		asm.Mov.Imm(asm.R1, 0),
		asm.Sub.Reg(asm.R1, state),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, spentSpent),
	)
}

// setState marks the thread's call; without one it ends the program.
func (b *builder) setState(m memoryMaps, s callState) {
	b.lookup(m.inCalls, evTID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"), asm.StoreImm(asm.R0, cState, int64(s), asm.Word))
}

// hold stops the process of the call, on record, unless the guard is open. See
// gateLaunch for the order.
func (b *builder) hold(m memoryMaps) {
	b.jumpIfOpen(m.until, "open")
	b.marks() // task is not guardedValue any more
	b.add(
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, frame, evTID, asm.Word), asm.StoreMem(frame, key16+4, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, frame, evTime, asm.DWord), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
	)
	b.update(m.holds, key16, evTime)
	b.add(asm.JNE.Imm(asm.R0, 0, "open"))
	b.update(m.stopped, evPID, evTime)
	b.stopRecorded("forget")
	b.jumpIfOpen(m.until, "undo")
	b.send(Held)

	b.label("undo")
	b.add(asm.Mov.Imm(asm.R1, sigCont), asm.FnSendSignal.Call())
	b.label("forget")
	b.delete(m.holds, key16)
	b.label("open")
	b.add( // a question ends here; an allocation is under way
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JEq.Imm(asm.R1, int32(cudafile.MemInfo), "end"),
		asm.JEq.Imm(asm.R1, int32(cudafile.TotalMem), "end"),
	)
	b.setState(m, callGranted)
	b.lookup(m.spent, callTo+cSlot)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, spentOpened),
		asm.Ja.Label("exit"),
	)
	b.label("end")
	b.delete(m.inCalls, evTID)
	b.add(asm.Ja.Label("exit"))
	b.lost()
}

// allocated runs at the return from such a function. A call that failed is not
// spent; what a pool gave, and managed memory, is noted by its address, as its
// use does not show in the ledger.
func allocated(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.ifReturns(m.inCalls, cStack)
	b.add(
		asm.Mov.Reg(task, asm.R0),
		asm.LoadMem(state, task, cSize, asm.DWord),
		asm.LoadMem(asm.R1, task, cSlot, asm.Word), asm.StoreMem(frame, callTo+cSlot, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, task, cState, asm.Word), asm.StoreMem(frame, callTo+cState, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, task, cKind, asm.Word), asm.StoreMem(frame, callTo+cKind, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, task, cReturn, asm.DWord), asm.StoreMem(frame, callTo+cReturn, asm.R1, asm.DWord),
		asm.LoadMem(task, task, cOut, asm.DWord),
	)
	b.noted(m) // before the call is over: at every moment it counts as one or the other
	b.delete(m.inCalls, evTID)
	b.add(asm.LoadMem(asm.R1, regs, ptAX, asm.Word), asm.JEq.Imm(asm.R1, 0, "success"))
	b.add(
		asm.LoadMem(asm.R1, frame, callTo+cState, asm.Word),
		asm.JNE.Imm(asm.R1, int32(callSpent), "exit"),
	)
	b.giveBack(m, callTo+cSlot, "exit")
	b.add(asm.Ja.Label("exit"))
	b.label("success")
	b.add(asm.LoadMem(asm.R1, frame, callTo+cState, asm.Word), asm.JEq.Imm(asm.R1, int32(callHeld), "slipped"))
	b.add(
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word),
		asm.JEq.Imm(asm.R1, int32(cudafile.AllocPool), "remember"),
		asm.JEq.Imm(asm.R1, int32(cudafile.AllocManaged), "remember"),
	)
	b.countContext(m)
	b.add(asm.Ja.Label("exit"))
	b.label("remember")
	b.remember(m)
	b.add(asm.Ja.Label("exit"))
	b.label("slipped")
	b.now()
	b.noMarks()
	b.send(Slipped)
	b.lost()
	return b.finish()
}

// remember notes memory by its address, which the function has put where the
// register task points to; its size is in state.
func (b *builder) remember(m memoryMaps) {
	b.add(
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
	)
	b.readUser(key16+8, 8, task, 0)
	b.add(
		asm.JNE.Imm(asm.R0, 0, "exit"),
		asm.StoreMem(frame, buffer, state, asm.DWord),
		asm.LoadMem(asm.R1, frame, callTo+cKind, asm.Word), asm.StoreMem(frame, buffer+8, asm.R1, asm.DWord),
	)
	b.update(m.live, key16, buffer)
	b.add(asm.JNE.Imm(asm.R0, 0, "exit"))
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(asm.R1, state),
		asm.LoadMem(asm.R2, frame, callTo+cKind, asm.Word),
		asm.JEq.Imm(asm.R2, int32(cudafile.AllocPool), "pool"),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, poolManaged),
		asm.Ja.Label("exit"),
	)
	b.label("pool")
	b.add(
		atomicOp(asm.FetchAdd, asm.R0, asm.R1, poolUsed),
		asm.Add.Reg(asm.R1, state),
		asm.LoadMem(asm.R2, asm.R0, poolPeak, asm.DWord),
		asm.JLE.Reg(asm.R1, asm.R2, "exit"),
		// Two at once may leave the smaller peak: the next call is asked about.
		asm.StoreMem(asm.R0, poolPeak, asm.R1, asm.DWord),
	)
}

// kind puts the function's kind into the call, and leaves it in r0.
func (b *builder) kind() {
	b.add(
		asm.Mov.Reg(asm.R1, regs),
		asm.FnGetAttachCookie.Call(),
		asm.StoreMem(frame, callTo+cKind, asm.R0, asm.Word),
	)
}

// freed runs at the entry of a function that frees memory.
func freed(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.add(
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, key16, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, regs, ptDI, asm.DWord), asm.StoreMem(frame, key16+8, asm.R1, asm.DWord),
	)
	b.lookup(m.live, key16)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(state, asm.R0, 0, asm.DWord),
		asm.LoadMem(task, asm.R0, 8, asm.DWord),
	)
	b.delete(m.live, key16)
	b.add(asm.JNE.Imm(asm.R0, 0, "exit")) // two frees of one address: one counts
	b.lookup(m.pools, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 0),
		asm.Sub.Reg(asm.R1, state),
		asm.JEq.Imm(task, int32(cudafile.AllocManaged), "managed"),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, poolUsed),
		asm.Ja.Label("exit"),
	)
	b.label("managed")
	b.add(atomicOp(asm.AddAtomic, asm.R0, asm.R1, poolManaged))
	return b.finish()
}

// ifHeld goes on only if the process at evPID has a hold that is not over.
func (m memoryMaps) ifHeld(b *builder) {
	b.lookup(m.stopped, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.StoreMem(frame, newSpent, asm.R1, asm.DWord),
	)
	b.lookup(m.released, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "held"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.LoadMem(asm.R2, frame, newSpent, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "exit"),
	)
	b.label("held")
	b.jumpIfOpen(m.until, "exit")
}

// onThread runs in every thread that a CPU has turned to. One whose call is held
// was woken by somebody's SIGCONT (see onWake). It is stopped again, and that is
// told: if its hold ends at this very moment, somebody must continue it once more.
// Other threads of its process do no harm.
func onThread(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.who()
	b.lookup(m.inCalls, evTID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, cState, asm.Word),
		asm.JNE.Imm(asm.R1, int32(callHeld), "exit"),
		asm.LoadMem(asm.R1, asm.R0, cPID, asm.Word),
		asm.LoadMem(asm.R2, frame, evPID, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "exit"), // of a thread that had this number before
	)
	b.jumpIfOpen(m.until, "exit")
	b.add(asm.Mov.Imm(asm.R1, sigStop), asm.FnSendSignalThread.Call())
	b.now()
	b.noMarks()
	b.send(Continued)
	b.lost()
	return b.finish()
}
