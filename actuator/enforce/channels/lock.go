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

// lock is the right to act on one process. It is a byte of the lock file, so that there is
// nothing to clean up for each process. The kernel gives it up when its program dies.
type lock struct {
	file    *os.File
	records records
}

// lockName is the lock file's, in the folder of the record.
const lockName = "lock"

// retryLock is how often a lock that somebody else has is tried again. Only guardian and
// actuator can meet here, or two calls for one process.
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

// tryLock returns nil without an error where it is to be tried again: somebody else has the
// lock, or the folder went while we opened it.
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

// take locks bytes of the file (length 0: all from start on), unless somebody else has one.
// They are of this open file, not of this program: two calls in one program exclude each
// other too.
func (l *lock) take(start, length int64) (bool, error) {
	at := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: length}
	err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &at)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// current reports whether the file is still the one that others lock: the folder may have
// gone, and come again, before we had the lock.
func (l *lock) current() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	theirs, err := os.Stat(filepath.Join(l.records.dir, lockName))
	return err == nil && os.SameFile(ours, theirs)
}

// unlock gives the right back, and takes the folder away where nothing is on record any
// more and nobody else has a lock there.
func (l *lock) unlock() {
	defer l.file.Close()
	if !l.records.none() {
		return
	}
	if all, err := l.take(0, 0); err != nil || !all || !l.records.none() {
		return
	}
	// Nobody writes now. A record that its writer's death left half-written says nothing; what
	// was put aside stays.
	names, _ := l.records.names()
	for _, name := range names {
		if strings.HasSuffix(name, suffix+".tmp") {
			_ = os.Remove(filepath.Join(l.records.dir, name))
		}
	}
	_ = os.Remove(filepath.Join(l.records.dir, lockName)) // who waits for it sees that it is not current
	_ = os.Remove(l.records.dir)                          // somebody else's file keeps it
}

// make makes the folder, which is nobody else's. Those above it may be others' too.
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
