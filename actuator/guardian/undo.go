package guardian

import (
	"context"
	"fmt"
	"time"
)

// Undo undoes all that is on record, and returns when that is done or ctx ends. The caller holds
// the actuator's lock. A guardian may watch or not.
func (g *Guardian) Undo(ctx context.Context) error {
	for {
		left, err := g.undo(ctx)
		if err != nil || left == 0 {
			return err
		}
		if g.silent == 0 {
			return fmt.Errorf("%d containers or processes could not be released; the log says why", left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(g.records.wait):
		}
	}
}

// undo undoes what is on record, and returns how much of it is left. It retries stops and pauses
// until they are undone, an actuator may begin though they are not, or ctx ends. The caller holds
// the actuator's lock.
func (g *Guardian) undo(ctx context.Context) (left int, err error) {
	done, channels, stopped := make(chan struct{}), make(chan int, 1), make(chan int, 1)
	// In parallel: engine and driver may both be slow.
	go func() { channels <- g.restoreUntil(ctx, done) }()
	go func() { stopped <- g.continueStoppedUntil(ctx, done) }()
	held, err := g.releaseAll(ctx)
	close(done)
	left = held + <-channels + <-stopped
	if err != nil || g.silent > 0 { // to swap in takes the engine, too
		return left, err
	}
	return left + g.bringBack(ctx), nil
}
