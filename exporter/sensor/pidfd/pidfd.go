// Package pidfd is sensor.Exits by pidfd and epoll: one file descriptor a
// process, one epoll instance and one waiting goroutine for all of them.
//
// A pidfd stands for one process and never for a later one with its PID, and it
// becomes readable when the process ends, also while the process is a zombie:
//
//   - A process ends when its last thread does. A main thread that has exited
//     while others run is no end.
//   - exec is no end: the process goes on as another program.
//   - A process that is killed while frozen ends when the kernel gets it to run:
//     at once under cgroup v2, at the thaw under cgroup v1.
//
// It imports exporter/sensor, golang.org/x/sys and the standard library.
package pidfd

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
)

// WakeBound is how long the kernel and the Go runtime may take from the end of a process
// until we read the clock. The median is 0.1 ms. The bound leaves room for a busy machine; it
// is no promise for an overloaded one.
const WakeBound = 5 * time.Millisecond

// Watcher reports the ends of the processes that it watches.
type Watcher struct {
	boot  string
	epoll int
	wake  int // eventfd that ends the wait
	out   chan sensor.Exit

	mu        sync.Mutex
	delivered *sync.Cond // delivering has changed, or pending, or closed
	byToken   map[uint64]*watch
	byID      map[string]*watch
	lastToken uint64
	pending   []*watch // ended, not delivered yet, in order
	current   *watch   // being delivered now
	closed    bool

	running sync.WaitGroup
}

// watch is one process.
type watch struct {
	process sensor.Process
	fd      int
	token   uint64
	exit    sensor.Exit
	stopped bool
	cancel  chan struct{} // closed by stop: its exit is not delivered any more
}

// stop is called with the lock held.
func (e *watch) stop() {
	if !e.stopped {
		e.stopped = true
		close(e.cancel)
	}
}

var _ sensor.Exits = (*Watcher)(nil)

// New starts to wait for ends. The error wraps sensor.ErrUnsupported where the kernel has no
// pidfd (before 5.3), or a seccomp filter forbids it.
func New() (*Watcher, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &Watcher{
		boot: boot, epoll: epoll, wake: wake,
		out:     make(chan sensor.Exit),
		byToken: map[uint64]*watch{}, byID: map[string]*watch{},
	}
	w.delivered = sync.NewCond(&w.mu)
	if err := w.arm(wake, wakeToken); err != nil {
		_, _ = unix.Close(epoll), unix.Close(wake)
		return nil, err
	}
	w.running.Go(w.wait)
	w.running.Go(w.deliver)
	return w, nil
}

// Supported returns nil where this machine can run the watcher, otherwise an error that wraps
// sensor.ErrUnsupported and gives the reason.
func Supported() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: pidfd_open: the kernel is older than 5.3", sensor.ErrUnsupported)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: pidfd_open: a seccomp filter forbids it (a newer container engine, or --security-opt seccomp=unconfined)", sensor.ErrUnsupported)
	default:
		return fmt.Errorf("pidfd_open: %w", err)
	}
}

// Exits implements sensor.Exits. The channel is closed by Close.
func (w *Watcher) Exits() <-chan sensor.Exit { return w.out }

// Watch implements sensor.Exits.
func (w *Watcher) Watch(pid int) (sensor.Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return sensor.Process{}, explainOpen(pid, err)
	}
	if ended(fd) { // a zombie
		_ = unix.Close(fd)
		return sensor.Process{}, fmt.Errorf("process %d: %w", pid, sensor.ErrGone)
	}
	mark, err := startMark(fd, pid)
	if err != nil {
		_ = unix.Close(fd)
		return sensor.Process{}, err
	}
	process := sensor.Process{PID: pid, Identity: fmt.Sprintf("%s:%d:%s", w.boot, pid, mark)}
	return process, w.add(process, fd)
}

// Gone implements sensor.Exits. Watch never gives this mark.
func (w *Watcher) Gone(pid int, started time.Duration) sensor.Process {
	return sensor.Process{PID: pid, Identity: fmt.Sprintf("%s:%d:b%d", w.boot, pid, started.Nanoseconds())}
}

// add watches the process behind fd, and closes fd in the end.
func (w *Watcher) add(p sensor.Process, fd int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = unix.Close(fd)
		return errors.New("pidfd: the watcher is closed")
	}
	if _, known := w.byID[p.Identity]; known {
		return unix.Close(fd)
	}
	w.lastToken++
	entry := &watch{process: p, fd: fd, token: w.lastToken, cancel: make(chan struct{})}
	if err := w.arm(fd, entry.token); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.byToken[entry.token], w.byID[p.Identity] = entry, entry
	return nil
}

// Alive implements sensor.Exits. A process that is not watched is not alive.
func (w *Watcher) Alive(p sensor.Process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	entry, ok := w.byID[p.Identity]
	return ok && !ended(entry.fd)
}

// Forget implements sensor.Exits. It may be called for a process that is not watched.
func (w *Watcher) Forget(p sensor.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry, ok := w.byID[p.Identity]; ok {
		w.drop(entry)
		return
	}
	for i, entry := range w.pending {
		if entry.process == p {
			w.pending = append(w.pending[:i:i], w.pending[i+1:]...)
			return
		}
	}
	if entry := w.current; entry != nil && entry.process == p {
		entry.stop()
		for w.current == entry {
			w.delivered.Wait()
		}
	}
}

// Watched returns how many processes are watched.
func (w *Watcher) Watched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}

// Close ends every watch and closes the channel of exits.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	if w.current != nil {
		w.current.stop()
	}
	w.delivered.Broadcast()
	_, err := unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	w.mu.Unlock()

	w.running.Wait()
	close(w.out)
	for _, entry := range w.byID {
		w.drop(entry)
	}
	return errors.Join(err, unix.Close(w.epoll), unix.Close(w.wake))
}

// drop ends a watch. Closing the file descriptor removes it from epoll.
func (w *Watcher) drop(entry *watch) {
	delete(w.byToken, entry.token)
	delete(w.byID, entry.process.Identity)
	_ = unix.Close(entry.fd)
}
