package cudaprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// waited is how long a call must have taken to prove that it waited for the GPU,
// nanoseconds: an asynchronous copy that really is asynchronous returns within a
// few microseconds.
const waited = 100_000

// A process launches fast when so many launches, a power of two, take less than so
// many nanoseconds: 2,000 a second. By then its traps have cost as much as taking
// the probe off and putting it on again, some 1 ms; at fewer a second they cost less
// than 0.15 % of its time.
const fastLaunches, fastWithin = 1024, 512_000_000

// What the mark of a process says: its launches are followed one by one; it launches
// fast, and they are not; the first of them will show that it does again.
const fastNot, fastNow, fastAgain = 0, 1, 2

// launch counts a launch of a tracked process, and tells it if all launches
// before it are known to be done.
//
// Launches and the ends of calls may run at once on several CPUs. launch adds
// before it looks at what is done; done changes that before it looks at the
// launches; both are atomic operations that the CPU does not reorder. So one of
// the two sees the other, and a process that computes never passes for idle.
//
// It tells too, once, that the process launches fast. From then on done tells
// nothing: it looks at the mark after it has read the clock, and here the clock is
// read after the mark is set, so whatever was told to be done was so before.
func launch(m maps) asm.Instructions {
	const behind = task // launches before this one that are not known to be done
	b := &builder{maps: m}
	b.who()
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(state, asm.R0),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.FetchAdd, state, asm.R1, busyLaunched), // r1 = launches before
		asm.LoadMem(asm.R2, state, busyDone, asm.DWord),
		asm.Mov.Reg(behind, asm.R1),
		asm.Sub.Reg(behind, asm.R2),
		asm.And.Imm(asm.R1, fastLaunches-1),
		asm.JNE.Imm(asm.R1, 0, "slow"),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, state, busyMark, asm.DWord),
		asm.StoreMem(state, busyMark, asm.R0, asm.DWord),
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.JLT.Imm(asm.R0, fastWithin, "fast"),
	)
	b.label("slow")
	b.add(
		asm.JNE.Imm(behind, 0, "exit"),
		asm.LoadMem(asm.R1, state, busyFast, asm.DWord),
		asm.JNE.Imm(asm.R1, fastAgain, "first"),
	)
	b.label("fast")
	b.add(
		asm.Mov.Imm(asm.R1, fastNow),
		atomicOp(asm.Xchg, state, asm.R1, busyFast),
		asm.JEq.Imm(asm.R1, fastNow, "known"),
	)
	b.sinceReturn()
	b.output(fast)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, fastNot), // nobody has heard of it
		asm.StoreMem(state, busyFast, asm.R1, asm.DWord),
		asm.Ja.Label("lost"),
	)
	b.label("known")
	b.add(asm.JNE.Imm(behind, 0, "exit"))
	b.label("first")
	b.sinceReturn()
	b.send(Launched)
	b.lost()
	return b.finish()
}

// sinceReturn puts the clock into the event, and when the last call returned.
func (b *builder) sinceReturn() {
	b.now()
	b.noMarks()
	b.lookup(b.maps.returned, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.StoreMem(frame, evStart, asm.R1, asm.DWord),
	)
}

// begin notes how much had been launched when a synchronising call began.
func begin(m maps) asm.Instructions {
	b := &builder{maps: m}
	b.who()
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, busyLaunched, asm.DWord),
		asm.StoreMem(frame, callAt+callLaunched, asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(frame, callAt+callBegun, asm.R0, asm.DWord),
		asm.StoreMem(frame, scratch, pidTID, asm.DWord),
		asm.LoadMapPtr(asm.R1, m.calls.FD()),
	)
	b.arg(asm.R2, scratch)
	b.arg(asm.R3, callAt)
	b.add(asm.Mov.Imm(asm.R4, int32(ebpf.UpdateAny)), asm.FnMapUpdateElem.Call())
	return b.finish()
}

// done tells that a synchronising call returned and nothing had been launched
// since it began: all work is done. It is told again for a call that returns
// later and had waited: another stream was still at work. With mustWait only a
// call that waited counts.
//
// Of a process that launches fast every such call counts, as its launches are not
// seen, and is not told. When it returned is noted before the call is forgotten:
// who finds no call under way finds that time.
func done(m maps, mustWait bool) asm.Instructions {
	const process = asm.R6
	b := &builder{maps: m}
	b.now()
	b.who()
	b.add(asm.StoreMem(frame, scratch, pidTID, asm.DWord))
	b.lookup(m.calls, scratch)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"), // it began before the process was tracked
		asm.LoadMem(state, asm.R0, callLaunched, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, callBegun, asm.DWord),
		asm.LoadMem(task, frame, evTime, asm.DWord),
		asm.Sub.Reg(task, asm.R1), // how long it took
	)
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "over"),
		asm.Mov.Reg(process, asm.R0),
		asm.JEq.Imm(state, 0, "over"), // nothing was ever launched
		asm.LoadMem(asm.R1, process, busyLaunched, asm.DWord),
		asm.JNE.Reg(asm.R1, state, "over"), // launched meanwhile
	)
	if !mustWait {
		b.add(
			asm.LoadMem(asm.R1, process, busyFast, asm.DWord),
			asm.JEq.Imm(asm.R1, fastNow, "counts"),
			asm.LoadMem(asm.R1, process, busyDone, asm.DWord),
			asm.JNE.Reg(asm.R1, state, "counts"),
		)
	}
	b.add(asm.JLT.Imm(task, waited, "over"))
	b.label("counts")
	b.noteReturn()
	b.delete(m.calls, scratch)
	b.add(
		asm.LoadMem(asm.R1, process, busyFast, asm.DWord),
		asm.JEq.Imm(asm.R1, fastNow, "exit"),
		asm.Mov.Reg(asm.R1, state),
		atomicOp(asm.Xchg, process, asm.R1, busyDone),
		asm.LoadMem(asm.R1, process, busyLaunched, asm.DWord),
		asm.JNE.Reg(asm.R1, state, "exit"), // launched at this moment
	)
	b.noMarks()
	b.send(Done)
	b.label("over")
	b.delete(m.calls, scratch)
	b.add(asm.Ja.Label("exit"))
	b.lost()
	return b.finish()
}

// noteReturn notes the time of the event as that of the last return, if it is.
func (b *builder) noteReturn() {
	b.lookup(b.maps.returned, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "noted"),
		asm.LoadMem(asm.R1, frame, evTime, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
		asm.JGE.Reg(asm.R2, asm.R1, "noted"),
		atomicOp(asm.Xchg, asm.R0, asm.R1, 0),
	)
	b.label("noted")
}
