package cudaprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Numbers of the kernel's interface.
const (
	sigHup, sigInt, sigQuit, sigTerm, sigCont, sigStop = 1, 2, 3, 15, 18, 19

	pidTypeTGID = 1 // enum pid_type: the whole process
)

// jumpIfOpen goes to a label when nobody has renewed the gate, or where that
// cannot be read. Whoever is to hold must be alive and well.
func (b *builder) jumpIfOpen(until *ebpf.Map, label string) {
	b.add(asm.StoreImm(frame, scratch, 0, asm.Word))
	b.lookup(until, scratch)
	b.add(
		asm.JEq.Imm(asm.R0, 0, label),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.StoreMem(frame, scratch, asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, frame, scratch, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, label),
	)
}

// jumpIfAdmitted goes to a label when the process at keyAt may launch.
func (b *builder) jumpIfAdmitted(m gateMaps, keyAt int32, label string) {
	b.lookup(m.admitted, keyAt)
	b.add(asm.JNE.Imm(asm.R0, 0, label))
}

// gateLaunch stops a process at the entry of a launch unless it is admitted. The
// record is written first; without one nothing is stopped. Afterwards it looks
// again: whoever admits, or opens the gate, does so before it sends SIGCONT and
// takes the record away. So either that SIGCONT comes after our SIGSTOP, or we see
// the admission and take the SIGSTOP back.
//
// Of an admitted process it tells the first launch after idleness, as the
// program of Track does; see launch for why the counters can be trusted.
func gateLaunch(m gateMaps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m.maps, task: t}
	b.now()
	b.who()
	b.lookup(m.busy, evPID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"), // not gated any more
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.FetchAdd, asm.R0, asm.R1, busyLaunched), // r1 = launches before
		asm.LoadMem(asm.R2, asm.R0, busyDone, asm.DWord),
		asm.Mov.Reg(state, asm.R1),
		asm.Sub.Reg(state, asm.R2), // 0: it was idle
	)
	b.jumpIfAdmitted(m, evPID, "admitted")
	b.jumpIfOpen(m.until, "admitted")
	b.stop(m)
	b.jumpIfAdmitted(m, evPID, "undo")
	b.jumpIfOpen(m.until, "undo")
	b.send(Held)

	b.label("undo")
	b.add(asm.Mov.Imm(asm.R1, sigCont), asm.FnSendSignal.Call())
	b.label("forget")
	b.delete(m.held, evPID)
	b.label("admitted")
	b.add(asm.JNE.Imm(state, 0, "exit"))
	b.noMarks()
	b.send(Launched)
	b.lost()
	return b.finish()
}

// gateCreate stops a process that is to be kept back before it creates a context. As
// in gateLaunch the record is written first, and it looks again afterwards. The
// SIGSTOP is taken back only when the process is off the record: it is not admitted,
// so onSignal would stop it again.
func gateCreate(m gateMaps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m.maps, task: t}
	b.now()
	b.who()
	b.lookup(m.back, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.jumpIfOpen(m.until, "exit")
	b.stop(m)
	b.lookup(m.back, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "undo"))
	b.jumpIfOpen(m.until, "undo")
	b.send(HeldBack)

	b.label("undo")
	b.delete(m.held, evPID)
	b.add(
		asm.Mov.Imm(asm.R1, sigCont),
		asm.FnSendSignal.Call(),
		asm.Ja.Label("exit"),
	)
	b.label("forget")
	b.delete(m.held, evPID)
	b.add(asm.Ja.Label("exit"))
	b.lost()
	return b.finish()
}

// stop writes the process at evPID on the record, and then stops it. Without room there
// it goes on at "lost"; "forget" takes off one that could not be stopped.
func (b *builder) stop(m gateMaps) {
	b.marks()
	b.update(m.held, evPID, evTime)
	b.stopRecorded("lost")
}

// stopRecorded stops the process by its calling thread, right after the update of the
// record. If that had no room it goes on at otherwise; if it cannot be stopped, at
// "forget".
func (b *builder) stopRecorded(otherwise string) {
	b.add(
		asm.JNE.Imm(asm.R0, 0, otherwise),
		asm.Mov.Imm(asm.R1, sigStop),
		asm.FnSendSignalThread.Call(),
		asm.JNE.Imm(asm.R0, 0, "forget"),
	)
}

// ifHeld goes on only if the process at evPID is held and not admitted.
func (m gateMaps) ifHeld(b *builder) {
	b.lookup(m.held, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.jumpIfAdmitted(m, evPID, "exit")
	b.jumpIfOpen(m.until, "exit")
}

// onSignal runs whenever a signal is generated, wherever. A SIGCONT to a process
// that is held and not admitted (ifHeld goes on for such a one alone) is told, and
// stop, the number of the kernel's function for it, sends SIGSTOP at once; 0: there
// is none. Signals that ask a process to end are told too: a stopped one does not
// hear them.
func onSignal(m maps, ifHeld func(*builder), t *taskOffsets, stop int64) asm.Instructions {
	b := &builder{maps: m, task: t}
	const signal = state
	b.add(
		asm.Mov.Imm(asm.R0, 0),                    // a label reads it
		asm.LoadMem(signal, asm.R1, 0, asm.DWord), // the first argument
		asm.LoadMem(task, asm.R1, 16, asm.DWord),  // the third
		asm.JEq.Imm(signal, sigCont, "matters"),
		asm.JEq.Imm(signal, sigTerm, "matters"),
		asm.JEq.Imm(signal, sigInt, "matters"),
		asm.JEq.Imm(signal, sigHup, "matters"),
		asm.JNE.Imm(signal, sigQuit, "exit"),
	)
	b.label("matters")
	b.add(
		asm.LoadMem(asm.R0, task, int16(t.tgid), asm.Word),
		asm.StoreMem(frame, evPID, asm.R0, asm.Word),
		asm.StoreImm(frame, evTID, 0, asm.Word),
	)
	ifHeld(b)
	b.now()
	b.noMarks()
	b.add(asm.JNE.Imm(signal, sigCont, "asked"))
	if stop != 0 {
		b.add( // interrupts are off: the kernel does it the moment they are on again
			asm.Mov.Reg(asm.R1, task),
			asm.Mov.Imm(asm.R2, sigStop),
			asm.Mov.Imm(asm.R3, pidTypeTGID),
			asm.Mov.Imm(asm.R4, 0),
			asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: stop},
		)
	}
	b.send(Continued)
	b.label("asked")
	b.send(AskedToEnd)
	b.lost()
	return b.finish()
}

// onWake runs in every thread that a CPU has turned to. One of a process that is
// held and not admitted was woken by somebody's SIGCONT. onSignal's SIGSTOP can
// come an instant too late for it; this one cannot: the thread has not been back
// in its program yet.
func onWake(m gateMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.who()
	m.ifHeld(b)
	b.add(asm.Mov.Imm(asm.R1, sigStop), asm.FnSendSignalThread.Call())
	return b.finish()
}
