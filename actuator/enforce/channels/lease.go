package channels

import (
	"context"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// waitLease switches a process on when its lease ends, even if its caller hangs. The guardian does
// the same if the actuator hangs.
func (e *Enforcer) waitLease(p rm.Process, until time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if stop := e.leases[p]; stop != nil {
		stop()
	}
	e.leases[p] = e.o.After(until-e.o.Now(), func() { e.endLease(p) })
}

func (e *Enforcer) endLease(p rm.Process) {
	if !e.records.has(p) {
		e.forgetLease(p)
		return
	}
	ctx, cancel := e.undoing(context.Background())
	defer cancel()
	err := e.alone(ctx, p, func(ctx context.Context) error {
		rec := e.records.get(p)
		if !e.late(rec, 0) { // renewed, or on
			return nil
		}
		e.forgetLease(p)
		return e.on(ctx, &rec, nil)
	})
	if err != nil {
		e.o.Logger.Error("cannot switch on channels whose lease has ended; the guardian tries again", "pid", p.PID, "err", err)
	}
}

func (e *Enforcer) forgetLease(p rm.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leases, p)
}
