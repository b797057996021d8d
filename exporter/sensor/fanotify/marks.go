package fanotify

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// marks are the files whose opens the queue reports. It is a libraries.Watcher. It keeps each
// file open, because only an open file can be unmarked.
type marks struct {
	queue *os.File

	mu    sync.Mutex
	files map[cudafile.ID]*os.File
}

// Watch marks the file's inode.
func (m *marks) Watch(file *cudafile.File) error {
	if _, err := file.Functions(); err != nil {
		return err
	}
	own, err := os.Open(file.Name())
	if err != nil {
		return fmt.Errorf("watch %s: %w", file.Path, err)
	}
	if err := m.mark(unix.FAN_MARK_ADD, own); err != nil {
		_ = own.Close()
		return fmt.Errorf("watch %s: fanotify_mark: %w", file.Path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[file.ID] = own
	return nil
}

// Unwatch removes the mark.
func (m *marks) Unwatch(id cudafile.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if file := m.files[id]; file != nil {
		delete(m.files, id)
		_ = m.mark(unix.FAN_MARK_REMOVE, file) // the mark ends with the file in any case
		_ = file.Close()
	}
}

// Close closes the files. Their marks end with the queue.
func (m *marks) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for id, file := range m.files {
		delete(m.files, id)
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

func (m *marks) mark(what uint, file *os.File) error {
	raw, err := m.queue.SyscallConn()
	if err != nil {
		return err
	}
	var markErr error
	err = raw.Control(func(queue uintptr) {
		markErr = unix.FanotifyMark(int(queue), what, unix.FAN_OPEN, int(file.Fd()), "")
	})
	return errors.Join(err, markErr)
}
