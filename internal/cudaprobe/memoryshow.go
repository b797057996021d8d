package cudaprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Show lowers the driver's answer to a question to these numbers of bytes, if they are less. alive
// reports whether the process that asked has not ended. Show calls it between opening the PID's
// memory and writing to it, so that it never writes into another process with that PID. It does not
// continue the process.
func (g *MemoryGuard) Show(c Call, free, total uint64, alive func() bool) error {
	memory, err := os.OpenFile(filepath.Join(g.proc, strconv.Itoa(c.PID), "mem"), os.O_RDWR, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("memory of process %d: %w", c.PID, err), g.end(c))
	}
	defer memory.Close()
	if !alive() {
		return g.end(c)
	}
	return errors.Join(lower(memory, c.out, free), lower(memory, c.more, total), g.end(c))
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
