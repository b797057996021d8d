// Package strays counts the processes that the guardian's sweeper found stopped by
// Laxity though nobody wanted them stopped, and continued. The count stands in the
// state folder, so that it survives guardian and actuator.
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

// Add counts n processes more. It does not wait for the disk: a count that a power cut
// takes is no loss to anybody who stands still.
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

// Count returns how many there were.
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
