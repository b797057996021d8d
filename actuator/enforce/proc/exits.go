package proc

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Exits reports when processes end, by their pidfds.
type Exits struct {
	epoll, wake int
	once        sync.Once
	done        chan struct{}
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
	return &Exits{epoll: epoll, wake: wake, done: make(chan struct{})}, nil
}

// Add watches a process; its end is reported once. PID must not be 0.
func (e *Exits) Add(pid, pidfd int) error {
	return unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(pid)})
}

// Remove stops watching a process, if it was watched.
func (e *Exits) Remove(pidfd int) {
	_ = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_DEL, pidfd, nil) // it may not be there
}

// Run calls exited for each process that ends, until Close.
func (e *Exits) Run(exited func(pid int)) error {
	defer close(e.done)
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

// Close ends Run.
func (e *Exits) Close() (err error) {
	e.once.Do(func() {
		_, err = unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	return err
}
