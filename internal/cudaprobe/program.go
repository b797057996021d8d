package cudaprobe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// license lets the programs call the helpers that read kernel memory, which the
// kernel gives to GPL-compatible programs only.
const license = "Dual BSD/GPL"

// rearm is how long after a process made a context the destruction of one lets
// its next one be told again, nanoseconds: so at most 100 a second are told.
const rearm = 10_000_000

// Places on the stack, relative to the frame pointer. The event is what event.go
// decodes; the key is that of the map of what was told.
const (
	evTime, evStart, evPID, evTID, evKind, evExec = -32, -24, -16, -12, -8, -4
	eventAt, eventSize                            = -32, 32

	keyStart, keyPID, keyExec, keyKind, keyPad = -56, -48, -44, -40, -36
	keyAt                                      = -56

	scratch = -64 // 8 bytes
	callAt  = -80 // the value of a call: launches before it, time of its begin
)

// Offsets in the values of the maps busy and calls.
const (
	busyLaunched, busyDone, busyMark, busyFast = 0, 8, 16, 24
	callLaunched, callBegun                    = 0, 8
)

// Registers that survive the calls of helpers, and the stack.
const (
	frame               = asm.RFP
	pidTID, state, task = asm.R7, asm.R8, asm.R9
)

// builder writes one program.
type builder struct {
	maps maps
	task *taskOffsets // nil: kernel structures are not known
	code asm.Instructions
}

func (b *builder) add(code ...asm.Instruction) { b.code = append(b.code, code...) }

func (b *builder) label(name string) { b.add(asm.Mov.Reg(asm.R0, asm.R0).WithSymbol(name)) }

// finish ends the program. r0 is 0 for every way out.
func (b *builder) finish() asm.Instructions {
	b.add(asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"), asm.Return())
	return b.code
}

// now puts the clock into the event.
func (b *builder) now() {
	b.add(asm.FnKtimeGetNs.Call(), asm.StoreMem(frame, evTime, asm.R0, asm.DWord))
}

// who puts process and thread into the event, and both into r7.
func (b *builder) who() {
	b.add(
		asm.FnGetCurrentPidTgid.Call(),
		asm.Mov.Reg(pidTID, asm.R0),
		asm.StoreMem(frame, evTID, asm.R0, asm.Word),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(frame, evPID, asm.R0, asm.Word),
	)
}

// noMarks fills the event's marks of the process with "not known".
func (b *builder) noMarks() {
	b.add(
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(frame, evStart, asm.R1, asm.DWord),
		asm.StoreMem(frame, evExec, asm.R1, asm.Word),
	)
}

// marks puts into the event what tells this process, running this program, from
// all others: when it started, and how often it has called exec.
func (b *builder) marks() {
	b.noMarks()
	if b.task == nil {
		return
	}
	b.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(task, asm.R0))
	b.readKernel(evExec, 4, b.task.execs)
	b.readKernel(scratch, 8, b.task.leader)
	b.add(asm.LoadMem(task, frame, scratch, asm.DWord))
	b.readKernel(evStart, 8, b.task.start)
}

// readKernel copies size bytes of what the register task points to onto the stack.
func (b *builder) readKernel(to, size, offset int32) {
	b.add(
		asm.Mov.Reg(asm.R1, frame), asm.Add.Imm(asm.R1, to),
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, task), asm.Add.Imm(asm.R3, offset),
		asm.FnProbeReadKernel.Call(),
	)
}

// key copies the marks into the key of what was told.
func (b *builder) key(kind Kind) {
	b.add(
		asm.LoadMem(asm.R1, frame, evStart, asm.DWord), asm.StoreMem(frame, keyStart, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, keyPID, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, frame, evExec, asm.Word), asm.StoreMem(frame, keyExec, asm.R1, asm.Word),
		asm.StoreImm(frame, keyKind, int64(kind), asm.Word),
		asm.StoreImm(frame, keyPad, 0, asm.Word),
	)
}

// atomicOp is op.Mem, with the operation in the place where the kernel looks for it:
// cilium/ebpf v0.22.0 forgets to put it there, which makes an addition of all.
func atomicOp(op asm.AtomicOp, to, from asm.Register, offset int16) asm.Instruction { //nolint:unparam // as op.Mem is called
	code := op.Mem(to, from, asm.DWord, offset)
	code.Constant = int64(op >> 8)
	return code
}

// arg puts the address of something on the stack into a register.
func (b *builder) arg(r asm.Register, at int32) {
	b.add(asm.Mov.Reg(r, frame), asm.Add.Imm(r, at))
}

func (b *builder) lookup(m *ebpf.Map, keyAt int32) {
	b.add(asm.LoadMapPtr(asm.R1, m.FD()))
	b.arg(asm.R2, keyAt)
	b.add(asm.FnMapLookupElem.Call())
}

// update puts a value on the stack into a map.
func (b *builder) update(m *ebpf.Map, keyAt, valueAt int32) {
	b.add(asm.LoadMapPtr(asm.R1, m.FD()))
	b.arg(asm.R2, keyAt)
	b.arg(asm.R3, valueAt)
	b.add(asm.Mov.Imm(asm.R4, int32(ebpf.UpdateAny)), asm.FnMapUpdateElem.Call())
}

func (b *builder) delete(m *ebpf.Map, keyAt int32) {
	b.add(asm.LoadMapPtr(asm.R1, m.FD()))
	b.arg(asm.R2, keyAt)
	b.add(asm.FnMapDeleteElem.Call())
}

// send sends the event, and goes on at "lost" if there is no room.
func (b *builder) send(kind Kind) {
	b.output(kind)
	b.add(asm.JNE.Imm(asm.R0, 0, "lost"), asm.Ja.Label("exit"))
}

// output puts the event into the buffer. r0 is 0 if there was room.
func (b *builder) output(kind Kind) {
	b.add(asm.StoreImm(frame, evKind, int64(kind), asm.Word), asm.LoadMapPtr(asm.R1, b.maps.ring.FD()))
	b.arg(asm.R2, eventAt)
	b.add(asm.Mov.Imm(asm.R3, eventSize), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call())
}

// lost counts an event that had no room.
func (b *builder) lost() {
	b.label("lost")
	b.add(asm.StoreImm(frame, scratch, 0, asm.Word))
	b.lookup(b.maps.lost, scratch)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Imm(asm.R1, 1),
		atomicOp(asm.AddAtomic, asm.R0, asm.R1, 0),
	)
}

// first tells that a process called a function, once a process (and program, for
// exec begins a new one). Without the marks it tells every call: a PID alone may
// have been another process's before.
func first(m maps, t *taskOffsets, kind Kind) asm.Instructions {
	b := &builder{maps: m, task: t}
	b.now()
	b.who()
	b.marks()
	if t != nil {
		b.key(kind)
		b.add(asm.LoadMapPtr(asm.R1, m.told.FD()))
		b.arg(asm.R2, keyAt)
		b.arg(asm.R3, evTime)
		b.add(
			asm.Mov.Imm(asm.R4, int32(ebpf.UpdateNoExist)),
			asm.FnMapUpdateElem.Call(),
			asm.JEq.Imm(asm.R0, -17, "exit"), // EEXIST
		)
		b.update(m.known, evPID, evTime)
	}
	if t != nil && t.groups != nil {
		b.sendGroups(kind)
	} else {
		b.send(kind)
	}
	b.lost()
	if t != nil { // so that the next call is told instead
		b.delete(m.told, keyAt)
	}
	return b.finish()
}

// leaving tells that a process begins to destroy a context, and lets its next
// context be told again.
func leaving(m maps, t *taskOffsets, kind Kind) asm.Instructions {
	b := &builder{maps: m, task: t}
	if t == nil {
		return b.finish()
	}
	b.now()
	b.who()
	b.marks()
	b.key(kind)
	b.lookup(m.told, keyAt)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(state, asm.R0, 0, asm.DWord),
		asm.LoadMem(asm.R0, frame, evTime, asm.DWord),
		asm.Sub.Reg(asm.R0, state),
		asm.JLT.Imm(asm.R0, rearm, "exit"),
	)
	b.delete(m.told, keyAt)
	b.key(Leaving)
	b.update(m.told, keyAt, evTime)
	b.send(Leaving)
	b.lost()
	return b.finish()
}

// left tells that the call is over whose begin was told.
func left(m maps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m, task: t}
	if t == nil {
		return b.finish()
	}
	b.now()
	b.who()
	b.marks()
	b.key(Leaving)
	b.lookup(m.told, keyAt)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.delete(m.told, keyAt)
	b.send(Left)
	b.lost()
	return b.finish()
}

// exiting tells that the last thread of a process begins to exit, for processes
// that are known: by any call of theirs that was told, or by Know. It runs for every
// thread of the machine, at the tracepoint sched_process_exit, which comes before
// the process lets go of its memory and files. Letting go of a GPU takes the driver
// some 0.1 s, and only after that does a pidfd tell of the end.
func exiting(m maps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m, task: t}
	b.now()
	b.who()
	b.lookup(m.known, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"))
	b.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(task, asm.R0))
	b.readKernel(scratch, 8, t.signal)
	b.add(asm.LoadMem(task, frame, scratch, asm.DWord))
	b.readKernel(scratch, 4, t.live)
	b.add(
		asm.LoadMem(asm.R1, frame, scratch, asm.Word),
		asm.JNE.Imm(asm.R1, 0, "exit"), // other threads go on
	)
	b.delete(m.known, evPID)
	b.add(asm.JNE.Imm(asm.R0, 0, "exit")) // another thread that exits now was faster
	b.marks()
	for _, kind := range []Kind{InitCalled, ContextCalled, Leaving} {
		b.key(kind)
		b.delete(m.told, keyAt)
	}
	b.send(Exiting)
	b.lost()
	return b.finish()
}
