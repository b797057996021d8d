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

// lockPatience is how long Undo waits for a guardian that is at it.
const lockPatience = 2 * time.Second

// Undo undoes once all that is on record, and returns when it is, or when ctx ends. It
// returns ErrActuator while an actuator lives. Whether a guardian watches does not matter.
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

// undo undoes what is on record, and returns how much of it is left. What is stopped or
// paused is tried until it goes, or ctx ends. The caller holds the actuator's lock.
func (g *Guardian) undo(ctx context.Context) (left int, err error) {
	done, channels, stopped := make(chan struct{}), make(chan int, 1), make(chan int, 1)
	// At once: the engine takes its time, and so may a driver.
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
