package undo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/statefolder"
)

// ErrActuatorLives means that an actuator of this state folder runs; it would redo what Off
// undoes.
var ErrActuatorLives = errors.New("an actuator runs")

// lockPatience is how long Off waits for a guardian that undoes at the moment.
const lockPatience = 2 * time.Second

// Off undoes all that is on record in the state folder, without an actuator or a guardian. It
// unpauses containers, continues stopped processes, swaps in, restores time slices and switches
// channels on. It returns when nothing is left, or an error that says what is. Without a state
// folder nothing is known of what may be held, which is an error too.
func Off(ctx context.Context, o Options) error {
	if _, err := os.Stat(o.StateDir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no state folder at %s: nothing of Laxity's is known there; name it with --state-dir", o.StateDir)
	}
	// Before anything is opened: a living actuator's files are its own.
	lock, err := journal.LockWithin(ctx, journal.ActuatorLock(o.StateDir), lockPatience)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w with the state folder %s: stop it first, it releases everything itself; or its guardian does so at the moment, by the engine in %s: try again",
			ErrActuatorLives, o.StateDir, EngineFile(o.StateDir))
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	g, closeAll, err := o.open()
	if err != nil {
		return err
	}
	defer closeAll()
	former := o.former(ctx, statefolder.ByPath(o.StateDir))
	return errors.Join(former, g.Undo(ctx))
}
