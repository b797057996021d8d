package tracker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// board gives the latest snapshot to any number of readers.
type board struct {
	current atomic.Pointer[task.Snapshot]

	mu      sync.Mutex
	readers map[chan *task.Snapshot]struct{}
}

func newBoard(first *task.Snapshot) *board {
	b := &board{readers: map[chan *task.Snapshot]struct{}{}}
	b.current.Store(first)
	return b
}

// publish never blocks: a reader that has not taken the last snapshot gets the
// new one in its place.
func (b *board) publish(s *task.Snapshot) { b.put(s, true) }

// show is publish for changes that are not worth waking readers for. Only a reader that has
// not taken the last snapshot gets the new one, in its place.
func (b *board) show(s *task.Snapshot) { b.put(s, false) }

func (b *board) put(s *task.Snapshot, wake bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current.Store(s)
	for ch := range b.readers {
		waits := false
		select {
		case <-ch:
			waits = true
		default:
		}
		if wake || waits {
			ch <- s // there is room: only this goroutine fills it, under the lock
		}
	}
}

// confirm notes that the device reported the same facts again. It does not wake readers.
func (b *board) confirm(at time.Time) {
	s := *b.current.Load()
	if s.Time.Before(at) {
		s.Time = at
		b.current.Store(&s)
	}
}

func (b *board) watch(ctx context.Context) <-chan *task.Snapshot {
	ch := make(chan *task.Snapshot, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	ch <- b.current.Load()
	b.readers[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, ch)
		close(ch)
	})
	return ch
}
