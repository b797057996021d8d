package sensor

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrHanging means that a call about a process has not returned in time.
var ErrHanging = errors.New("it does not return: perhaps the server of a network file system is down")

// maxHanging bounds the calls that hang at the same time: each keeps a thread. maxPutOff bounds those
// that wait for them.
const maxHanging, maxPutOff = 64, 4096

// Calls runs calls about processes that may never return: a container may have mounted a network
// file system, and who opens a file there waits for its server.
type Calls struct {
	// Limit is how long Do waits; 0 means 1 s.
	Limit time.Duration

	mu      sync.Mutex
	running map[int]*running // by PID
	putOff  map[int]job      // by PID: those for which there is no room
}

// running is the job about a process that runs. then follows it, unless its do is nil.
type running struct{ then job }

// job is a call, and who waits for its result; done has room for it.
type job struct {
	do   func() error
	done chan error
}

func newJob(do func() error) job { return job{do, make(chan error, 1)} }

// Do runs call, and waits for it up to the limit or until ctx ends. After the limit the error wraps
// ErrHanging, and the call runs on. So does the error, at once, while an earlier call about the process
// runs, or too many others hang: then this call is put off until they have returned. Of several calls
// about a process that are put off only the last one runs.
func (c *Calls) Do(ctx context.Context, pid int, call func() error) error {
	j := newJob(call)
	if !c.begin(pid, j) {
		return ErrHanging
	}
	limit := c.Limit
	if limit <= 0 {
		limit = time.Second
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-j.done:
		return err
	case <-timer.C:
		return ErrHanging
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Then runs f, which must not hang: after the call about the process that hangs, if one does, else now.
// It takes the place of a call that was put off.
func (c *Calls) Then(pid int, f func()) {
	c.mu.Lock()
	if r := c.running[pid]; r != nil {
		r.then = newJob(func() error { f(); return nil })
		c.mu.Unlock()
		return
	}
	delete(c.putOff, pid)
	c.mu.Unlock()
	f()
}

// begin runs a job in a goroutine, or puts it off and returns false.
func (c *Calls) begin(pid int, j job) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.running[pid]; r != nil {
		r.then = j
		return false
	}
	if len(c.running) >= maxHanging {
		if c.putOff == nil {
			c.putOff = map[int]job{}
		}
		if _, is := c.putOff[pid]; is || len(c.putOff) < maxPutOff {
			c.putOff[pid] = j
		}
		return false
	}
	c.start(pid, j)
	return true
}

// start must be called with mu held.
func (c *Calls) start(pid int, j job) {
	if c.running == nil {
		c.running = map[int]*running{}
	}
	c.running[pid] = &running{}
	go func() {
		for j.do != nil {
			err := j.do()
			following := c.next(pid) // first, so that who has the result finds no call about the process
			j.done <- err
			j = following
		}
	}()
}

// next returns the job that follows another. If there is none, the room goes to one that was put off.
func (c *Calls) next(pid int) job {
	c.mu.Lock()
	defer c.mu.Unlock()
	if then := c.running[pid].then; then.do != nil {
		c.running[pid].then = job{}
		return then
	}
	delete(c.running, pid)
	for other, j := range c.putOff {
		delete(c.putOff, other)
		c.start(other, j)
		break
	}
	return job{}
}
