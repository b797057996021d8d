package swaphelper

import (
	"context"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/engine"
)

// OpenOptions of a Swapper. StateDir is the actuator's own; LockDir contains the folder of the
// notices of swaps.
type OpenOptions struct {
	StateDir, LockDir string
	Engine            engine.Choice
	// Device is as in `laxity up --device`.
	Device string
	Logger *slog.Logger
}

// openTimeout bounds the start of the helper, which loads the driver's library.
const openTimeout = 30 * time.Second

// Open makes the Swapper of a machine that can swap. On others it returns nil without an error, and
// logs why; not while a container is swapped out, which comes back as soon as that works again.
func (o OpenOptions) Open() (enforce.Swapper, error) {
	command, err := Command(o.Device)
	if err != nil {
		return nil, err
	}
	s, err := swapping.Open(swapping.Options{
		StateDir: o.StateDir, Engine: o.Engine, Helper: command, NoticeDir: swapping.NoticeDir(o.LockDir),
		ContainerOf: container.Proc("/proc").OfPID, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := checkpoint.Check(ctx, s.Helper); err != nil {
		if list, lerr := s.Swapped(); lerr != nil || len(list) > 0 {
			o.Logger.Warn("containers cannot be swapped off their GPUs here now; who is swapped out comes back as soon as that works", "why", err, "swapped_out", len(list))
			return s, nil
		}
		o.Logger.Info("containers cannot be swapped off their GPUs here", "why", err)
		return nil, s.Close()
	}
	return s, nil
}
