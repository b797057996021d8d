package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNotAnswering means that a driver call has not returned for too long.
var ErrNotAnswering = errors.New("device does not answer")

// Source is what both Device and Cards are: something to read, again and again.
type Source[R any] interface {
	Read(ctx context.Context) (R, error)
	Close() error
}

// Timed is a Source whose Read returns within the limit, whatever the driver does. At most
// one call is inside the driver at any time, so that a hanging driver costs one goroutine and
// no more. When that call returns, its result is old: Timed drops it, and the next Read calls
// the driver again.
type Timed[R any] struct {
	open   func() (Source[R], error)
	source Source[R] // nil until it is open; only the call inside the driver sets it
	limit  time.Duration

	mu     sync.Mutex
	call   *call[R] // the call inside the driver; nil when there is none
	closed bool
}

type call[R any] struct {
	began  time.Time
	done   chan struct{}
	result R
	err    error
	closed error // of the source's Close, where that waited for this call
}

// WithTimeout bounds the time of s's Read by limit; 0 means 2 s.
func WithTimeout[R any](s Source[R], limit time.Duration) *Timed[R] {
	t := Opening[R](nil, limit)
	t.source = s
	return t
}

// Opening is WithTimeout for a source that is not open yet. Open opens it, or the first Read; after
// an error the next Read tries again. The limit holds for opening and reading together.
func Opening[R any](open func() (Source[R], error), limit time.Duration) *Timed[R] {
	if limit <= 0 {
		limit = 2 * time.Second
	}
	return &Timed[R]{open: open, limit: limit}
}

// Open opens the source, unless it is open. After an error that wraps ErrNotAnswering the driver
// hangs, and Read returns that error until the driver answers.
func (t *Timed[R]) Open() error {
	_, err := t.do(context.Background(), func(Source[R]) (none R, err error) { return none, nil })
	return err
}

// Read implements Source. It returns an error that wraps ErrNotAnswering at
// once while an earlier call still hangs.
func (t *Timed[R]) Read(ctx context.Context) (R, error) {
	return t.do(ctx, func(s Source[R]) (R, error) { return s.Read(ctx) })
}

// do calls f with the open source, and waits for it within the limit.
func (t *Timed[R]) do(ctx context.Context, f func(Source[R]) (R, error)) (R, error) {
	var none R
	c, err := t.enter(f)
	if err != nil {
		return none, err
	}
	timer := time.NewTimer(t.limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.result, c.err
	case <-timer.C:
		return none, notAnswering(c.began)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func notAnswering(since time.Time) error {
	return fmt.Errorf("%w since %s; if it lasts, look for Xid errors in the kernel log (dmesg) and reload the driver",
		ErrNotAnswering, since.UTC().Format(time.RFC3339))
}

// enter begins a call, unless one is inside the driver already.
func (t *Timed[R]) enter(f func(Source[R]) (R, error)) (*call[R], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.New("device is closed")
	}
	if t.call != nil {
		return nil, notAnswering(t.call.began)
	}
	c := &call[R]{began: time.Now(), done: make(chan struct{})}
	t.call = c
	go func() {
		if t.source == nil {
			t.source, c.err = t.open()
		}
		if c.err == nil {
			c.result, c.err = f(t.source)
		}
		t.leave(c)
	}()
	return c, nil
}

func (t *Timed[R]) leave(c *call[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = nil
	if t.closed {
		c.closed = t.closeSource() // put off by Close
	}
	close(c.done)
}

// Close implements Source. It lets the call that is inside the driver return within the limit.
// If that hangs, Close returns an error that wraps ErrNotAnswering, and the device is closed when
// the call returns.
func (t *Timed[R]) Close() error {
	c, err := t.shut()
	if c == nil {
		return err
	}
	timer := time.NewTimer(time.Until(c.began.Add(t.limit)))
	defer timer.Stop()
	select {
	case <-c.done:
		return c.closed
	case <-timer.C:
		return notAnswering(c.began)
	}
}

// shut lets no further call in. It closes the source, unless a call is inside the driver: that
// call does so at its end.
func (t *Timed[R]) shut() (*call[R], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil
	}
	t.closed = true
	if t.call != nil {
		return t.call, nil
	}
	return nil, t.closeSource()
}

func (t *Timed[R]) closeSource() error {
	if t.source == nil {
		return nil
	}
	return t.source.Close()
}
