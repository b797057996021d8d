package channels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock is the right to act on one process. It is a byte of the lock file, so that there is
// nothing to clean up. The kernel gives it up when its program dies.
type lock struct{ file *os.File }

// retryLock is how often a lock that somebody else has is tried again. Only guardian and
// actuator can meet here, or two calls for one process.
const retryLock = time.Millisecond

// lock waits for the right to act on a process until ctx ends.
func (r records) lock(ctx context.Context, pid int) (*lock, error) {
	f, err := r.openLock()
	if errors.Is(err, os.ErrNotExist) {
		if err = r.make(); err == nil {
			f, err = r.openLock()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock channels: %w", err)
	}
	var tick *time.Ticker
	for {
		// Of this open file, not of this program: two calls in one program exclude each other too.
		at := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(pid), Len: 1}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &at)
		switch {
		case err == nil:
			return &lock{f}, nil
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, fmt.Errorf("lock channels of process %d: %w", pid, err)
		}
		if tick == nil {
			tick = time.NewTicker(retryLock)
			defer tick.Stop()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("channels of process %d: another call for it has not ended: %w", pid, ctx.Err())
		}
	}
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

func (r records) openLock() (*os.File, error) {
	return os.OpenFile(filepath.Join(r.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
}

func (l *lock) unlock() { l.file.Close() }
