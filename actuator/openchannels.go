package actuator

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/laxity/laxity/actuator/enforce/channels"
)

// openChannels opens the record of slices and channels of the actuator with this state
// folder; nil where this machine has no driver for them.
func openChannels(driver channels.Driver, runDir, stateDir string, log *slog.Logger) (*channels.Enforcer, error) {
	if driver == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	return channels.New(channels.Options{Driver: driver, Logger: log,
		Dir: channelsDir(runDir, stateDir)})
}

// channelsDir is where the record is of slices and channels.
func channelsDir(runDir, stateDir string) string {
	return channels.Folder(cmp.Or(runDir, DefaultLockDir), stateDir)
}

// restoreChannels undoes what a former actuator left on GPUs. It is called with the
// actuator's lock held, before anything is changed. What it cannot undo the guardian
// tries again when this actuator ends, and ends at the end of its lease what is off.
func (a *Actuator) restoreChannels(ctx context.Context) {
	e, err := openChannels(a.o.Channels, a.o.RunDir, a.o.StateDir, a.log)
	if e == nil {
		if err != nil {
			a.log.Error("cannot read what a former actuator left on GPUs", "err", err)
		}
		return
	}
	n, err := e.Pending()
	if n == 0 && err == nil {
		return
	}
	left, err := e.RestoreAll(ctx)
	a.log.Warn("let channels on and put time slices back that a former actuator left", "processes", n, "left", left, "err", err)
}
