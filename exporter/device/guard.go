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

// Guard stands before a Device whose driver may hang: Read returns within the
// limit, whatever the driver does. At most one call is inside the driver at any
// time, so that a hanging driver costs one goroutine and no more. When the call
// returns at last its result, which is old by then, is dropped, and the next
// Read asks afresh.
type Guard struct {
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

// NewGuard guards d. limit is how long one Read may take; 0 takes 2 s.
func NewGuard(d Device, limit time.Duration) *Guard {
	if limit <= 0 {
		limit = 2 * time.Second
	}
	return &Guard{device: d, limit: limit}
}

// Read implements Device. It returns an error that wraps ErrNotAnswering at
// once while an earlier call still hangs.
func (g *Guard) Read(ctx context.Context) (Reading, error) {
	c, err := g.enter(ctx)
	if err != nil {
		return Reading{}, err
	}
	timer := time.NewTimer(g.limit)
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
func (g *Guard) enter(ctx context.Context) (*call, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.New("device is closed")
	}
	if g.call != nil {
		return nil, notAnswering(g.call.began)
	}
	c := &call{began: time.Now(), done: make(chan struct{})}
	g.call = c
	go func() {
		c.result, c.err = g.device.Read(ctx)
		g.leave(c)
	}()
	return c, nil
}

func (g *Guard) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.call = nil
	close(c.done)
	if g.closed {
		_ = g.device.Close() // put off by Close; nobody is left to tell
	}
}

// Close implements Device. While a call hangs it returns an error that wraps
// ErrNotAnswering, and the device is closed when the call returns.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if g.call != nil {
		return notAnswering(g.call.began)
	}
	return g.device.Close()
}
