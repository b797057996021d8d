package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrCannotDeny means that a held call cannot be made to fail: the process is being traced, or is
// no longer at the entry of the call.
var ErrCannotDeny = errors.New("the call cannot be denied")

const (
	outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

	// longestInstruction on this processor, bytes: a held thread has executed at most the first
	// instruction of the function.
	longestInstruction = 15
	// frameOf the first instruction, bytes: what it may have put on the stack.
	frameOf = 4096
)

// Deny makes a held call return CUDA_ERROR_OUT_OF_MEMORY without running, once its process is
// continued. alive reports whether the process that made the call has not ended. Deny calls it when
// the thread can no longer end, so that it never changes another thread with that number. If
// denying is impossible, or takes more than a second, the error wraps ErrCannotDeny, and the call will
// run.
func (g *MemoryGuard) Deny(c Call, alive func() bool) error {
	check := func() error { return g.living(c, alive) }
	err := g.attempts.run(c.PID, func(a *attempt) error {
		return c.seize(a, check, func() error {
			regs, err := c.turnedBack()
			if err != nil {
				return err
			}
			return a.change(func() error {
				if err := unix.PtraceSetRegs(c.TID, &regs); err != nil {
					return fmt.Errorf("set its registers: %w", err)
				}
				return g.end(c) // before it runs again it must not count as held any more
			})
		})
	})
	if err != nil {
		return fmt.Errorf("%w: thread %d: %w", ErrCannotDeny, c.TID, err)
	}
	return nil
}

// atEntry reports whether a thread at this address has executed at most the function's first
// instruction. That may be a jump of one function to another that does its work. The probe hides
// the first byte of the instruction, so everything that the rest could mean counts.
func (c Call) atEntry(at uint64) bool {
	if at >= c.entry && at <= c.entry+longestInstruction {
		return true
	}
	var code [6]byte
	if _, err := unix.PtracePeekText(c.TID, uintptr(c.entry), code[:]); err != nil {
		return false
	}
	near := int32(binary.NativeEndian.Uint32(code[1:]))
	if at == c.entry+5+uint64(near) || at == c.entry+2+uint64(int8(code[1])) { // jmp rel32, jmp rel8
		return true
	}
	var to [8]byte // jmp *disp32(%rip)
	pointer := c.entry + 6 + uint64(int32(binary.NativeEndian.Uint32(code[2:])))
	_, err := unix.PtracePeekData(c.TID, uintptr(pointer), to[:])
	return err == nil && at == binary.NativeEndian.Uint64(to[:])
}

// turnedBack returns the thread's registers as they are after the return. It takes the return
// address from the stack as it is now: if the return has a probe, that address leads to it, as the
// probe expects.
func (c Call) turnedBack() (regs unix.PtraceRegs, err error) {
	if err := unix.PtraceGetRegs(c.TID, &regs); err != nil {
		return regs, fmt.Errorf("read its registers: %w", err)
	}
	if !c.atEntry(regs.Rip) || regs.Rsp > c.stack || regs.Rsp < c.stack-frameOf {
		return regs, fmt.Errorf("it is at %#x, not at its call's entry %#x", regs.Rip, c.entry)
	}
	var word [8]byte
	if _, err := unix.PtracePeekData(c.TID, uintptr(c.stack), word[:]); err != nil {
		return regs, fmt.Errorf("read its stack: %w", err)
	}
	regs.Rip = binary.NativeEndian.Uint64(word[:])
	regs.Rsp = c.stack + 8
	regs.Rax = outOfMemory
	regs.Orig_rax = ^uint64(0) // restart no system call
	return regs, nil
}
