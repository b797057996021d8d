package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// asked runs when a process asks how much memory there is: it notes where the
// answer goes. Its cookie is the function's kind.
func asked(m memoryMaps) asm.Instructions {
	b := &builder{maps: m.maps}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.lookup(m.guarded, evPID)
	b.add(asm.JEq.Imm(asm.R0, 0, "exit"), asm.Mov.Reg(task, asm.R0))
	b.add(asm.StoreImm(frame, device, -1, asm.Word))
	b.kind()
	b.add(
		asm.LoadMem(asm.R1, regs, ptDI, asm.DWord), asm.StoreMem(frame, buffer+infoFree, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, regs, ptSI, asm.DWord), asm.StoreMem(frame, buffer+infoTotal, asm.R1, asm.DWord),
		asm.JNE.Imm(asm.R0, int32(cudafile.TotalMem), "both"),
		// (size_t *total, CUdevice)
		asm.StoreMem(frame, device, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, frame, buffer+infoFree, asm.DWord), asm.StoreMem(frame, buffer+infoTotal, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(frame, buffer+infoFree, asm.R1, asm.DWord),
	)
	b.label("both")
	b.onCurrent(m)
	b.slot()
	b.add(
		asm.LoadMem(asm.R1, regs, ptSP, asm.DWord), asm.StoreMem(frame, buffer+infoStack, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, frame, callTo+cSlot, asm.Word), asm.StoreMem(frame, buffer+infoSlot, asm.R1, asm.DWord),
	)
	b.update(m.infos, evTID, buffer)
	return b.finish()
}

// answered runs when the driver has answered. Where a limit is to be shown, the
// thread is held as if it were in an allocation of nothing, for somebody to lower
// the answer. (A program could write it, but not where the kernel is locked down.)
func answered(m memoryMaps, t *taskOffsets) asm.Instructions {
	b := &builder{maps: m.maps, task: t}
	b.add(asm.Mov.Reg(regs, asm.R1))
	b.who()
	b.lookup(m.infos, evTID)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, infoStack, asm.DWord),
		asm.StoreMem(frame, callTo+cStack, asm.R1, asm.DWord),
		asm.Add.Imm(asm.R1, 8),
		asm.LoadMem(asm.R2, regs, ptSP, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "exit"), // of another call
		asm.LoadMem(asm.R1, asm.R0, infoFree, asm.DWord), asm.StoreMem(frame, callTo+cOut, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, infoTotal, asm.DWord), asm.StoreMem(frame, callTo+cReturn, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, infoSlot, asm.DWord), asm.StoreMem(frame, callTo+cSlot, asm.R1, asm.Word),
	)
	b.delete(m.infos, evTID)
	b.add(asm.LoadMem(asm.R1, regs, ptAX, asm.Word), asm.JNE.Imm(asm.R1, 0, "exit"))
	b.lookup(m.budgets, callTo+cSlot)
	b.add(
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.R0, budgetLimit, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "exit"),
	)
	b.jumpIfOpen(m.until, "exit")
	b.now()
	b.kind()
	b.add(
		asm.LoadMem(asm.R1, frame, evTime, asm.DWord), asm.StoreMem(frame, callTo+cTime, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(frame, callTo+cSize, asm.R1, asm.DWord), asm.StoreMem(frame, callTo+cEntry, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, frame, evPID, asm.Word), asm.StoreMem(frame, callTo+cPID, asm.R1, asm.Word),
		asm.StoreImm(frame, callTo+cState, int64(callHeld), asm.Word),
	)
	b.update(m.inCalls, evTID, callTo)
	b.hold(m)
	return b.finish()
}

// Question reports whether the call is no allocation, but a question for how much
// memory there is, which is answered by Show.
func (c Call) Question() bool { return c.Kind == cudafile.MemInfo || c.Kind == cudafile.TotalMem }

// Show lowers what the driver has answered to a question to these numbers of
// bytes, where they are less. It does not continue the process.
func (g *MemoryGuard) Show(c Call, free, total uint64) error {
	err := errors.Join(lower(c.PID, c.out, free), lower(c.PID, c.ret, total))
	if err := g.maps.inCalls.Delete(uint32(c.TID)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return err
}

// lower writes a number to where a process has a larger one.
func lower(pid int, address, value uint64) error {
	if address == 0 {
		return nil
	}
	var word [8]byte
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: 8}}
	if _, err := unix.ProcessVMReadv(pid, local, remote, 0); err != nil {
		return fmt.Errorf("read what process %d was answered: %w", pid, err)
	}
	if binary.NativeEndian.Uint64(word[:]) <= value {
		return nil
	}
	binary.NativeEndian.PutUint64(word[:], value)
	if _, err := unix.ProcessVMWritev(pid, local, remote, 0); err != nil {
		return fmt.Errorf("change what process %d was answered: %w", pid, err)
	}
	return nil
}
