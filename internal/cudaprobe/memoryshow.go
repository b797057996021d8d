package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Show lowers the driver's answer to a question to these numbers of bytes, if they are less. alive
// reports whether the process that asked has not ended. Show calls it between opening the PID's
// memory and writing to it, so that it never writes into another process with that PID. It writes
// only while the thread stands at the return of the question. Otherwise the program sees the driver's
// answer, and the error says why. Show does not continue the process.
func (g *MemoryGuard) Show(c Call, free, total uint64, alive func() bool) error {
	memory, err := os.OpenFile(filepath.Join(g.proc, strconv.Itoa(c.PID), "mem"), os.O_RDWR, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("memory of process %d: %w", c.PID, err), g.end(c))
	}
	defer memory.Close()
	err = g.atReturn(c, alive, func() error {
		return errors.Join(lower(memory, c.out, free), lower(memory, c.more, total), g.end(c))
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

// lower replaces a number at this address of the process by value, if that is less.
func lower(memory *os.File, address, value uint64) error {
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
	binary.NativeEndian.PutUint64(word[:], value)
	if _, err := memory.WriteAt(word[:], int64(address)); err != nil {
		return fmt.Errorf("change what a process was answered: %w", err)
	}
	return nil
}
