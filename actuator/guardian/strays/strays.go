// Package strays counts the processes that Laxity stopped, that nothing wanted stopped any more,
// and that the guardian's sweeper continued. The count is kept in the state folder, so that it
// survives guardian and actuator.
//
// It imports the standard library only, like the guardian's other packages.
package strays

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// name of the file in the state folder. Its size is the count: appending is atomic
// between processes, and needs neither a lock nor a second file.
const name = "strays"

// Add adds n. It does not wait for the disk: losing a count to a power cut stops no process.
func Add(stateDir string, n int) error {
	if n <= 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(stateDir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("count stray stops: %w", err)
	}
	_, err = f.Write(bytes.Repeat([]byte("."), n))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("count stray stops: %w", err)
	}
	return nil
}

// Count returns the sum of what was added.
func Count(stateDir string) (uint64, error) {
	s, err := os.Stat(filepath.Join(stateDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the count of stray stops: %w", err)
	}
	return uint64(s.Size()), nil
}
