package cudaprobe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// atReturn runs do with the process's memory while the thread of a question is seized, if it has done
// nothing since the question returned. Otherwise it returns an error: where the result went there may be
// something else by now. alive is as for Show.
func (g *MemoryGuard) atReturn(c Call, alive func() bool, do func(*attempt, *os.File) error) error {
	check := func() error {
		if err := g.living(c, alive); err != nil {
			return err
		}
		if _, held, err := g.Held(c.PID, c.TID, c.At); err != nil || !held {
			return errors.Join(errors.New("it has made another call since"), err)
		}
		if sleeps(g.proc, c.PID, c.TID) { // do not seize it: that would interrupt what it waits for
			return errors.New("somebody else continued its process")
		}
		return nil
	}
	err := g.attempts.run(c.PID, func(a *attempt) error {
		memory, err := os.OpenFile(filepath.Join(g.proc, strconv.Itoa(c.PID), "mem"), os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("memory of process %d: %w", c.PID, err)
		}
		defer memory.Close()
		return c.seize(a, check, func() error {
			if err := c.hasReturned(); err != nil {
				return err
			}
			return do(a, memory)
		})
	})
	if err != nil {
		return fmt.Errorf("thread %d: %w", c.TID, err)
	}
	return nil
}

// sleeps reports whether a thread waits for something. One that stops, or is stopped, does not.
func sleeps(proc string, pid, tid int) bool {
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "task", strconv.Itoa(tid), "stat"))
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return err == nil && bytes.HasPrefix(state, []byte("S"))
}

// hasReturned checks that the thread executes next the instruction that the question returns to.
func (c Call) hasReturned() error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(c.TID, &regs); err != nil {
		return fmt.Errorf("read its registers: %w", err)
	}
	if regs.Rip == c.entry && regs.Rsp == c.stack+8 || c.inProbe(regs) {
		return nil
	}
	return fmt.Errorf("it is at %#x, not at its call's return to %#x", regs.Rip, c.entry)
}

// inProbe reports whether the thread is behind the system call by which a return probe ends (Linux
// 6.11). From there it pops two registers and returns. The page with that code is the kernel's: as a
// rule nobody can read it.
func (c Call) inProbe(regs unix.PtraceRegs) bool {
	rest := [4]byte{0x41, 0x5b, 0x59, 0xc3} // pop %r11; pop %rcx; ret
	var code [4]byte
	var to [8]byte
	if regs.Rsp != c.stack-16 {
		return false
	}
	if _, err := unix.PtracePeekText(c.TID, uintptr(regs.Rip), code[:]); err == nil && code != rest {
		return false
	}
	_, err := unix.PtracePeekData(c.TID, uintptr(c.stack), to[:])
	return err == nil && binary.NativeEndian.Uint64(to[:]) == c.entry
}
