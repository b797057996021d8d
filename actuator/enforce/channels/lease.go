package channels

import (
	"context"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// leaseAgain is when the end of a lease is tried again that the driver was too busy for.
const leaseAgain = 200 * time.Millisecond

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
		if !rec.Off() {
			e.forgetLease(p)
			return nil
		}
		if !e.late(rec, 0) { // renewed
			return nil
		}
		e.forgetLease(p)
		if state, err := e.o.State(p); err == nil && state == Gone {
			return e.gone(ctx, p)
		}
		return e.on(ctx, &rec, nil)
	})
	if err == nil {
		return
	}
	e.o.Logger.Error("cannot switch on channels whose lease has ended; it is tried again, by the guardian too", "pid", p.PID, "err", err)
	switch rec := e.records.get(p); {
	case !rec.Off():
		e.forgetLease(p)
	case e.late(rec, 0): // not renewed meanwhile
		e.waitLease(p, e.o.Now()+leaseAgain)
	}
}

func (e *Enforcer) forgetLease(p rm.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leases, p)
}
