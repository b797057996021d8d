package guardian

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/journal"
)

// ErrActuator means that an actuator of this state folder runs.
var ErrActuator = errors.New("an actuator runs")

// lockPatience is how long Undo waits for a guardian that undoes at the moment.
const lockPatience = 2 * time.Second

// Undo undoes all that is on record, and returns when that is done or ctx ends. It returns
// ErrActuator while an actuator lives. A guardian may watch or not.
func (g *Guardian) Undo(ctx context.Context) error {
	lock, err := journal.LockWithin(ctx, journal.ActuatorLock(g.o.StateDir), lockPatience)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w: %s", ErrActuator, g.o.StateDir)
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	left, err := g.undo(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d containers or processes could not be released; the log says why", left)
	}
	return err
}

// undo undoes what is on record, and returns how much of it is left. It retries stops and pauses
// until they are undone or ctx ends. The caller holds the actuator's lock.
func (g *Guardian) undo(ctx context.Context) (left int, err error) {
	done, channels, stopped := make(chan struct{}), make(chan int, 1), make(chan int, 1)
	// In parallel: engine and driver may both be slow.
	go func() { channels <- g.restoreUntil(ctx, done) }()
	go func() { stopped <- g.continueStoppedUntil(ctx, done) }()
	held, err := g.releaseAll(ctx)
	close(done)
	left = held + <-channels + <-stopped
	if err != nil {
		return left, err
	}
	return left + g.bringBack(ctx), nil
}
