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

// Timed is a Device whose Read returns within the limit, whatever the driver does. At most
// one call is inside the driver at any time, so that a hanging driver costs one goroutine and
// no more. When that call returns, its result is old: Timed drops it, and the next Read calls
// the driver again.
type Timed struct {
	device Device
	limit  time.Duration

	mu     sync.Mutex
	call   *call // the call inside the driver; nil when there is none
	closed bool
}

type call struct {
	began  time.Time
	done   chan struct{}
	result Reading
	err    error
}

// WithTimeout bounds the time of d's Read by limit; 0 means 2 s.
func WithTimeout(d Device, limit time.Duration) *Timed {
	if limit <= 0 {
		limit = 2 * time.Second
	}
	return &Timed{device: d, limit: limit}
}

// Read implements Device. It returns an error that wraps ErrNotAnswering at
// once while an earlier call still hangs.
func (t *Timed) Read(ctx context.Context) (Reading, error) {
	c, err := t.enter(ctx)
	if err != nil {
		return Reading{}, err
	}
	timer := time.NewTimer(t.limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.result, c.err
	case <-timer.C:
		return Reading{}, notAnswering(c.began)
	case <-ctx.Done():
		return Reading{}, ctx.Err()
	}
}

func notAnswering(since time.Time) error {
	return fmt.Errorf("%w since %s; if it lasts, look for Xid errors in the kernel log (dmesg) and reload the driver",
		ErrNotAnswering, since.UTC().Format(time.RFC3339))
}

// enter begins a call, unless one is inside the driver already.
func (t *Timed) enter(ctx context.Context) (*call, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.New("device is closed")
	}
	if t.call != nil {
		return nil, notAnswering(t.call.began)
	}
	c := &call{began: time.Now(), done: make(chan struct{})}
	t.call = c
	go func() {
		c.result, c.err = t.device.Read(ctx)
		t.leave(c)
	}()
	return c, nil
}

func (t *Timed) leave(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = nil
	close(c.done)
	if t.closed {
		_ = t.device.Close() // put off by Close; nobody is left to tell
	}
}

// Close implements Device. While a call hangs it returns an error that wraps
// ErrNotAnswering, and the device is closed when the call returns.
func (t *Timed) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	if t.call != nil {
		return notAnswering(t.call.began)
	}
	return t.device.Close()
}
