package cudaprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// waited is how long a call must have taken to prove that it waited for the GPU,
// nanoseconds: an asynchronous copy that really is asynchronous returns within a
// few microseconds.
const waited = 100_000

// launch counts a launch of a tracked process, and tells it if all launches
// before it are known to be done.
//
// Launches and the ends of calls may run at once on several CPUs. launch adds
// before it looks at what is done; done changes that before it looks at the
// launches; both are atomic operations that the CPU does not reorder. So one of
// the two sees the other, and a process that computes never passes for idle.
func launch(m maps) asm.Instructions {
	b := &builder{maps: m}
	b.who()
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.FetchAdd, asm.R0, asm.R1, busyLaunched), // r1 = launches before
		asm.LoadMem(asm.R2, asm.R0, busyDone, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "exit"),
	)
	b.now()
	b.noMarks()
	b.send(Launched)
	b.lost()
	return b.finish()
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
func done(m maps, mustWait bool) asm.Instructions {
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
	b.delete(m.calls, scratch)
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.JEq.Imm(state, 0, "exit"), // nothing was ever launched
		asm.LoadMem(asm.R1, asm.R0, busyLaunched, asm.DWord),
		asm.JNE.Reg(asm.R1, state, "exit"), // launched meanwhile
	)
	if !mustWait {
		b.add(
			asm.LoadMem(asm.R1, asm.R0, busyDone, asm.DWord),
			asm.JNE.Reg(asm.R1, state, "publish"),
		)
	}
	b.add(
		asm.JLT.Imm(task, waited, "exit"),
		asm.Mov.Reg(asm.R1, state).WithSymbol("publish"),
		atomicOp(asm.Xchg, asm.R0, asm.R1, busyDone),
		asm.LoadMem(asm.R1, asm.R0, busyLaunched, asm.DWord),
		asm.JNE.Reg(asm.R1, state, "exit"), // launched at this moment
	)
	b.noMarks()
	b.send(Done)
	b.lost()
	return b.finish()
}
