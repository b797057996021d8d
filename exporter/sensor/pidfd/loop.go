package pidfd

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
)

const (
	wakeToken = 0 // of the eventfd; processes count from 1
	batch     = 128
)

// arm asks epoll for one event. Epoll returns the token, not the file descriptor: by then its
// number may belong to another process.
func (w *Watcher) arm(fd int, token uint64) error {
	event := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLONESHOT,
		Fd:     int32(uint32(token)), Pad: int32(uint32(token >> 32)),
	}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// wait takes the ends that epoll reports and adds the time. It never waits for a reader, so
// that the times stay true.
func (w *Watcher) wait() {
	events := make([]unix.EpollEvent, batch)
	emptyAt := time.Now() // all earlier ends are taken
	for {
		begin := time.Now()
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // the epoll instance is ours: only Close can make it invalid
		}
		now := time.Now()
		if !w.take(events[:n], now, WakeBound+begin.Sub(emptyAt)) {
			return
		}
		if n < len(events) { // otherwise more ends may have waited
			emptyAt = now
		}
	}
}

func (w *Watcher) take(events []unix.EpollEvent, now time.Time, bound time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, event := range events {
		token := uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32
		entry, ok := w.byToken[token]
		if !ok {
			continue // forgotten meanwhile
		}
		entry.exit = sensor.Exit{Process: entry.process, Time: now, ErrorBound: bound}
		w.drop(entry)
		w.pending = append(w.pending, entry)
	}
	w.delivered.Broadcast()
	return true
}

// deliver sends the ends to the reader, one after the other.
func (w *Watcher) deliver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.pending) == 0 && !w.closed {
			w.delivered.Wait()
		}
		if w.closed {
			return
		}
		entry := w.pending[0]
		w.pending[0] = nil
		w.pending = w.pending[1:]
		w.current = entry
		w.mu.Unlock()
		select {
		case w.out <- entry.exit:
		case <-entry.cancel:
		}
		w.mu.Lock()
		w.current = nil
		w.delivered.Broadcast()
	}
}

// ended reports whether the process behind a pidfd has ended.
func ended(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
