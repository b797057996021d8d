package channels

import (
	"runtime"
	"sync/atomic"
	"time"
)

// watch follows a counter: when it moved last, and when it moved first since somebody asked.
type watch struct {
	base        time.Time
	last, first atomic.Int64 // since base; first 0: not yet
	stop, done  chan struct{}
}

// follow looks at a counter again and again, with a rest between two looks; 0: none, which
// takes a core.
func follow(beat func() uint32, rest time.Duration) *watch {
	w := &watch{base: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for was := beat(); ; {
			select {
			case <-w.stop:
				return
			default:
			}
			if is := beat(); is != was {
				was = is
				now := int64(time.Since(w.base))
				w.last.Store(now)
				w.first.CompareAndSwap(0, now)
			}
			if rest > 0 {
				time.Sleep(rest)
			}
		}
	}()
	return w
}

func (w *watch) end() { close(w.stop); <-w.done }

// arm forgets when it moved first.
func (w *watch) arm() { w.first.Store(0) }

// movedFirst is when it moved first since arm; false: not yet.
func (w *watch) movedFirst() (time.Time, bool) {
	at := w.first.Load()
	return w.base.Add(time.Duration(at)), at != 0
}

// movedLast is when it moved last.
func (w *watch) movedLast() time.Time { return w.base.Add(time.Duration(w.last.Load())) }
