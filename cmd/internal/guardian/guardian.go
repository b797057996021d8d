// Package guardian is the hidden command `guardian` of programs that carry an actuator, which
// starts the program again as its guardian.
package guardian

import (
	"context"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter/container"
)

// Name is the command.
const Name = "guardian"

// Options are the command's flags.
type Options struct {
	o      undo.Options
	device string
}

// Register adds the flags to a command, and hides it: people do not start it.
func (o *Options) Register(cmd *kingpin.CmdClause) {
	cmd.Hidden()
	cmd.Flag("state-dir", "The actuator's.").Required().StringVar(&o.o.StateDir)
	cmd.Flag("once", "End when there is nothing to watch.").BoolVar(&o.o.Once)
	cmd.Flag("device", "The actuator's.").Default("auto").StringVar(&o.device)
	usage.Engine(cmd, &o.o.Engine)
}

// Run watches until ctx ends, or with --once until there is nothing to watch.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	o.o.Logger = log.With("component", Name)
	o.o.ContainerOf = container.Proc("/proc").OfPID
	o.o.Channels = channeldriver.Open(o.device)
	return undo.RunGuardian(ctx, o.o)
}
