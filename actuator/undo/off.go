package undo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/laxity/laxity/actuator/guardian"
)

// ErrActuatorLives means that an actuator of this state folder runs; it would redo what Off
// undoes.
var ErrActuatorLives = errors.New("an actuator runs")

// Off undoes all that is on record in the state folder, without an actuator or a guardian. It
// unpauses containers, continues stopped processes, swaps in, restores time slices and switches
// channels on. It returns when nothing is left, or an error that says what is.
func Off(ctx context.Context, o Options) error {
	if _, err := os.Stat(o.StateDir); errors.Is(err, fs.ErrNotExist) {
		return nil // no actuator ever used it
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
