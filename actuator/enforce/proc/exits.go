package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Exits reports when processes end, by their pidfds.
type Exits struct {
	epoll, wake int

	mu      sync.Mutex
	running bool // Run closes the descriptors
	closed  bool
}

// NewExits makes an Exits that watches no process yet.
func NewExits() (*Exits, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), unix.Close(epoll))
	}
	return &Exits{epoll: epoll, wake: wake}, nil
}

// Add watches a process; its end is reported once. PID must not be 0. After Close it returns
// os.ErrClosed.
func (e *Exits) Add(pid, pidfd int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return os.ErrClosed
	}
	return unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(pid)})
}

// Remove stops watching a process, if it was watched.
func (e *Exits) Remove(pidfd int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	_ = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, pidfd, nil) // it may not be there
}

// Run calls exited for each process that ends, until Close. It is called once.
func (e *Exits) Run(exited func(pid int)) (err error) {
	e.mu.Lock()
	e.running = !e.closed
	e.mu.Unlock()
	if !e.running {
		return nil
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closed = true
		err = errors.Join(err, e.release())
	}()
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(e.epoll, events[:], -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the end of processes: %w", err)
		}
		for _, ev := range events[:n] {
			if ev.Fd == 0 {
				return nil
			}
			exited(int(ev.Fd))
		}
	}
}

// Close ends Run, which may return later.
func (e *Exits) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	if !e.running {
		return e.release()
	}
	_, err := unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

func (e *Exits) release() error { return errors.Join(unix.Close(e.epoll), unix.Close(e.wake)) }
