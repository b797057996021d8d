package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The kernel drops a flock the moment its holder dies, however it dies. So the
// lock that the actuator holds all its life is also how the guardian learns of
// its death, and the other way round.
//
// Order: whoever wants both takes actuator.lock first. The guardian acts on
// everything on record only while it holds actuator.lock, and a starting
// actuator touches nothing before it has it; so the two never act at once. A
// guardian that is about to leave gives up guardian.lock before actuator.lock:
// an actuator that got the latter and finds the former taken is watched by a
// guardian that stays.

// This is flock(2) by hand: github.com/gofrs/flock keeps its file to itself, so that it
// cannot be given a high descriptor (see last), and with a context it polls, where Wait
// sleeps in the kernel.

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock is a flock that is held until Unlock or the end of the process.
type Lock struct{ f *os.File }

// ActuatorLock is the path of the lock that an actuator holds all its life.
func ActuatorLock(stateDir string) string { return filepath.Join(stateDir, "actuator.lock") }

// GuardianLock is the path of the lock that a guardian holds all its life.
func GuardianLock(stateDir string) string { return filepath.Join(stateDir, "guardian.lock") }

func flock(path string, how int) (*Lock, error) {
	// The descriptor is close-on-exec, so no child keeps the lock alive.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", path, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{f: last(f)}, nil
}

// last gives an open file a high descriptor. When a process dies, the kernel
// closes its files one after the other, the highest descriptor first, and a probe
// takes it up to 0.1 s each: whoever waits for the lock must not wait for those.
func last(f *os.File) *os.File {
	for _, at := range []uintptr{4096, 1000} { // above the limit on open files it is refused
		fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, at)
		if errno == 0 {
			moved := os.NewFile(fd, f.Name())
			_ = f.Close() // the lock belongs to what both refer to
			return moved
		}
	}
	return f
}

// TryLock takes the lock or returns ErrLocked at once.
func TryLock(path string) (*Lock, error) { return flock(path, syscall.LOCK_EX|syscall.LOCK_NB) }

// LockWithin takes the lock, or returns ErrLocked after d. It waits for a guardian that releases
// a former actuator's holds, and for programs that call Taken.
func LockWithin(ctx context.Context, path string, d time.Duration) (*Lock, error) {
	deadline := time.Now().Add(d)
	for {
		l, err := TryLock(path)
		if !errors.Is(err, ErrLocked) || time.Now().After(deadline) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Wait blocks in the kernel until the lock is free and takes it. No polling:
// it returns at once when the holder dies. A blocked flock cannot be cancelled,
// so when ctx ends first, a goroutine stays behind that gives the lock back as
// soon as it gets it; that is fine for a process which is about to end.
func Wait(ctx context.Context, path string) (*Lock, error) {
	type result struct {
		l   *Lock
		err error
	}
	got := make(chan result, 1)
	go func() {
		l, err := flock(path, syscall.LOCK_EX)
		got <- result{l, err}
	}()
	select {
	case r := <-got:
		return r.l, r.err
	case <-ctx.Done():
		go func() {
			if r := <-got; r.l != nil {
				r.l.Unlock()
			}
		}()
		return nil, ctx.Err()
	}
}

// Taken reports whether a process holds the lock. It tries to take a shared lock for a moment.
func Taken(path string) bool {
	l, err := flock(path, syscall.LOCK_SH|syscall.LOCK_NB)
	if l != nil {
		l.Unlock()
	}
	return errors.Is(err, ErrLocked)
}

// Unlock gives the lock up. The file stays: removing it would let two processes
// hold locks on two files of one name.
func (l *Lock) Unlock() {
	if l != nil && l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}
