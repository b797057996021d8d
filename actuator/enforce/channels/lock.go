package channels

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock is the right to act on one process. It is one byte of the lock file, so no process leaves a
// file to clean up. The kernel releases it when its program dies.
type lock struct {
	file    *os.File
	records records
}

// lockName is the name of the lock file in the folder of the record.
const lockName = "lock"

// retryLock is how often we try again for a lock that is taken. Only guardian and actuator compete
// here, or two calls for one process.
const retryLock = time.Millisecond

// lock waits for the right to act on a process until ctx ends.
func (r records) lock(ctx context.Context, pid int) (*lock, error) {
	var tick *time.Ticker
	for {
		l, err := r.tryLock(pid)
		if l != nil || err != nil {
			return l, err
		}
		if tick == nil {
			tick = time.NewTicker(retryLock)
			defer tick.Stop()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("channels of process %d: another call for it has not ended: %w", pid, ctx.Err())
		}
	}
}

// tryLock returns nil and no error where the caller should try again: the lock is taken, or the
// folder was removed while we opened it.
func (r records) tryLock(pid int) (*lock, error) {
	f, err := r.openLock()
	if errors.Is(err, fs.ErrNotExist) {
		if err := r.make(); err != nil {
			return nil, fmt.Errorf("lock channels: %w", err)
		}
		if f, err = r.openLock(); errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // see above
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock channels: %w", err)
	}
	l := &lock{f, r}
	got, err := l.take(int64(pid), 1)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock channels of process %d: %w", pid, err)
	}
	if !got || !l.current() {
		f.Close()
		return nil, nil //nolint:nilnil // see above
	}
	return l, nil
}

// take locks bytes of the file (length 0: all from start on), unless they are locked. Locks belong
// to this open file, not to this program, so two calls in one program exclude each other too.
func (l *lock) take(start, length int64) (bool, error) {
	at := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: length}
	err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &at)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// current reports whether the file is still the one that others lock: somebody may have removed the
// folder and made it again before we had the lock.
func (l *lock) current() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Stat(filepath.Join(l.records.dir, lockName))
	return err == nil && os.SameFile(ours, theirs)
}

// unlock releases the lock. It removes the folder if nothing is on record and nobody else has a
// lock there.
func (l *lock) unlock() {
	defer l.file.Close()
	if !l.records.none() {
		return
	}
	if all, err := l.take(0, 0); err != nil || !all || !l.records.none() {
		return
	}
	// Nobody writes now. A half-written record of a dead writer has nothing to undo. What was put
	// aside stays.
	names, _ := l.records.names()
	for _, name := range names {
		if strings.HasSuffix(name, suffix+".tmp") {
			_ = os.Remove(filepath.Join(l.records.dir, name))
		}
	}
	_ = os.Remove(filepath.Join(l.records.dir, lockName)) // callers that wait for it see that it is not current
	_ = os.Remove(l.records.dir)                          // fails, and may, if another file is in it
}

// make makes the folder, for this user only. The folders above it may be shared.
func (r records) make() error {
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir, 0o700); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func (r records) openLock() (f *os.File, err error) {
	path := filepath.Join(r.dir, lockName)
	err = r.despite(path, func() (err error) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		return err
	})
	return f, err
}
