package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// Show lowers the driver's answer to a question to these numbers of bytes, if they are less. alive
// reports whether the process that asked has not ended. Show calls it between opening the PID's
// memory and writing to it, so that it never writes into another process with that PID. It writes
// only while the thread stands at the return of the question. Otherwise the program sees the driver's
// answer, and the error says why; so also where its memory cannot be reached within a second. Show does
// not continue the process.
func (g *MemoryGuard) Show(c Call, free, total uint64, alive func() bool) error {
	err := g.atReturn(c, alive, func(a *attempt, memory *os.File) error {
		return errors.Join(lower(a, memory, c.out, free), lower(a, memory, c.more, total),
			a.change(func() error { return g.end(c) }))
	})
	if err != nil {
		return errors.Join(fmt.Errorf("a process is not shown its limit: %w", err), g.end(c))
	}
	return nil
}

// Held returns the held call of a thread that began at this time; held is false once it does not wait
// any more: it was answered, or it ran as somebody else continued its process, or another program
// replaced its own. Calls may leave a call out while others end; Held does not.
func (g *MemoryGuard) Held(pid, tid int, at time.Duration) (c Call, held bool, err error) {
	c, ok, err := g.Call(tid)
	if err != nil || !ok || !c.Held || !c.Same(Call{PID: pid, TID: tid, At: at}) {
		return Call{}, false, err
	}
	totals, err := g.totals(pid)
	return c, err == nil && c.epoch == totals.Epoch, err
}

// lower replaces a number at this address of the process by value, if that is less. Where the write hangs
// and the attempt is given up meanwhile, the number still gets lower, and the thread sees no other: it
// stays seized until then.
func lower(a *attempt, memory *os.File, address, value uint64) error {
	if address == 0 {
		return nil
	}
	var word [8]byte
	if _, err := memory.ReadAt(word[:], int64(address)); err != nil {
		return fmt.Errorf("read what a process was answered: %w", err)
	}
	if binary.NativeEndian.Uint64(word[:]) <= value {
		return nil
	}
	if err := a.unlessLate(func() error { return nil }); err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(word[:], value)
	if _, err := memory.WriteAt(word[:], int64(address)); err != nil {
		return fmt.Errorf("change what a process was answered: %w", err)
	}
	return nil
}
