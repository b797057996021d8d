package undo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/laxity/laxity/actuator/guardian"
)

// ErrActuatorLives means that an actuator of this state folder runs: it would do again what
// is undone.
var ErrActuatorLives = errors.New("an actuator runs")

// Off undoes all that is on record in the state folder, with no actuator and no guardian
// running: what is paused, stopped, swapped, slowed or off its GPU goes on. It returns when
// nothing is left, or an error that says what is.
func Off(ctx context.Context, o Options) error {
	if _, err := os.Stat(o.StateDir); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was ever done from there
	}
	g, closeAll, err := o.open()
	if err != nil {
		return err
	}
	defer closeAll()
	switch err := g.Undo(ctx); {
	case errors.Is(err, guardian.ErrActuator):
		return fmt.Errorf("%w with the state folder %s: stop it first, it releases everything itself", ErrActuatorLives, o.StateDir)
	default:
		return err
	}
}
