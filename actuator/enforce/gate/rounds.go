package gate

import (
	"context"
	"time"
)

// rounds looks at something that keeps changing for a while and then rests: a
// rest costs nothing.
type rounds struct {
	every   time.Duration
	changed <-chan struct{}     // tell at once, look within every; may be nil
	woken   <-chan struct{}     // look within every
	tell    func()              // something has changed
	look    func() (again bool) // again: look after every, though nothing changes
}

func (r rounds) run(ctx context.Context) {
	timer := time.NewTimer(r.every)
	defer timer.Stop()
	armed := true
	arm := func() {
		if !armed {
			armed = true
			timer.Reset(r.every)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.tell()
			arm()
		case <-r.woken:
			arm()
		case <-timer.C:
			armed = false
			if r.look() {
				arm()
			}
		}
	}
}
