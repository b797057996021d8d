package guardian

import (
	"context"
	"fmt"
	"time"
)

// undoPatience is how long Undo retries a container that the engine fails to release.
const undoPatience = 10 * time.Second

// Undo undoes all that is on record, and returns when that is done or ctx ends. While the engine does
// not answer it retries; what cannot be undone though it answers is an error, after 10 s. The caller
// holds the actuator's lock. A guardian may watch or not.
func (g *Guardian) Undo(ctx context.Context) error {
	for began := g.o.Now(); ; {
		left, err := g.undo(ctx)
		if err != nil || left == 0 {
			return err
		}
		if g.kept == 0 || !g.away() && g.o.Now().Sub(began) >= undoPatience {
			return fmt.Errorf("%d containers or processes could not be released; the log says why", left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(g.records.wait):
		}
	}
}

// undo tries to undo what is on record, and returns how much of it is left. The caller holds the
// actuator's lock.
func (g *Guardian) undo(ctx context.Context) (left int, err error) {
	done, channels, stopped := make(chan struct{}), make(chan int, 1), make(chan int, 1)
	// In parallel: engine and driver may both be slow.
	go func() { channels <- g.restoreUntil(ctx, done) }()
	go func() { stopped <- g.continueStoppedUntil(ctx, done) }()
	held, err := g.releaseAll(ctx)
	close(done)
	left = held + <-channels + <-stopped
	if err != nil || g.away() { // to swap in takes the engine, too
		return left, err
	}
	return left + g.bringBack(ctx), nil
}
