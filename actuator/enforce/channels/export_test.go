package channels

import (
	"context"
	"time"
)

// OnStep calls f before and after each write of the record.
func (e *Enforcer) OnStep(f func(string)) { e.step = f }

// SetDeadline changes Options.Deadline, for the calls that begin later.
func (e *Enforcer) SetDeadline(d time.Duration) { e.o.Deadline = d }

// Leases is how many leases the enforcer remembers.
func (e *Enforcer) Leases() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.leases)
}

// Lock takes the right to act on one process, and returns what gives it back.
func (e *Enforcer) Lock(ctx context.Context, pid int) (unlock func(), err error) {
	l, err := e.records.lock(ctx, pid)
	if err != nil {
		return nil, err
	}
	return l.unlock, nil
}
