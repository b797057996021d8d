package sensor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrHanging means that a call about a process has not returned in time.
var ErrHanging = errors.New("it does not return: perhaps the server of a network file system is down")

// maxHanging bounds the calls that hang at the same time: each keeps a thread.
const maxHanging = 64

// EndWithin waits for the goroutines of wg, no longer than the limit, and reports whether they have ended.
func EndWithin(wg *sync.WaitGroup, limit time.Duration) bool {
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// Calls runs calls about processes that may never return: a container may have mounted a network
// file system, and who opens a file there waits for its server.
type Calls struct {
	// Limit is how long Do waits; 0 means 1 s.
	Limit time.Duration

	mu      sync.Mutex
	running map[int]*running // by PID
}

type running struct{ then func() }

// Do runs call, and waits for it up to the limit or until ctx ends. After the limit the error wraps
// ErrHanging, and the call runs on. So does the error, at once and without a call, while an earlier
// call about the process runs, or too many others hang.
func (c *Calls) Do(ctx context.Context, pid int, call func() error) error {
	if err := c.begin(pid); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := call()
		c.end(pid)
		done <- err
	}()
	limit := c.Limit
	if limit <= 0 {
		limit = time.Second
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ErrHanging
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Then runs f after the call about the process that hangs, if one does, else now. Of several such f
// only the last one runs.
func (c *Calls) Then(pid int, f func()) {
	c.mu.Lock()
	if r := c.running[pid]; r != nil {
		r.then = f
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	f()
}

func (c *Calls) begin(pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[pid] != nil {
		return ErrHanging
	}
	if len(c.running) >= maxHanging {
		return fmt.Errorf("calls about %d other processes: %w", len(c.running), ErrHanging)
	}
	if c.running == nil {
		c.running = map[int]*running{}
	}
	c.running[pid] = &running{}
	return nil
}

func (c *Calls) end(pid int) {
	for then := c.next(pid); then != nil; then = c.next(pid) {
		then()
	}
}

// next returns what is to run after a call; nil if nothing is: then the call has ended.
func (c *Calls) next(pid int) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	then := c.running[pid].then
	c.running[pid].then = nil
	if then == nil {
		delete(c.running, pid)
	}
	return then
}
