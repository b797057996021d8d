// Package replace writes files atomically: a reader, even after a crash, finds all of the old
// content or all of the new. It uses renameio, and adds the sync of the folder, so that the rename
// itself is on disk.
package replace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// File replaces the file at path, with this mode whatever the umask. When it returns nil, the new
// content survives a crash of this process and of the machine.
func File(path string, content []byte, mode fs.FileMode) error {
	return FileBy(path, content, mode, func(rename func() error) error { return rename() })
}

// Changed is File where the content is another one. A file that is right stays: the disk may be full.
func Changed(path string, content []byte, mode fs.FileMode) error {
	if former, err := os.ReadFile(path); err == nil && bytes.Equal(former, content) {
		return nil
	}
	return File(path, content, mode)
}

// FileBy is File with the last step left to the caller: last calls rename, which is short because
// the content is on disk by then, or returns an error, after which nothing has changed.
func FileBy(path string, content []byte, mode fs.FileMode, last func(rename func() error) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s (is the disk full?): %w", path, err)
		}
	}()
	folder := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(folder), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }() // it does nothing once renamed
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := last(f.CloseAtomicallyReplace); err != nil {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
