// Package guardian is the command `guardian` of programs that carry an actuator: laxity-actuator's own,
// and the hidden one by which others start themselves again as their guardian.
package guardian

import (
	"context"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/sandbox"
)

// Name is the command.
const Name = "guardian"

// Options are the command's flags.
type Options struct {
	o      undo.Options
	device string
}

// Register adds the flags to a command. stateDir is the default of --state-dir; empty: it must be given.
func (o *Options) Register(cmd *kingpin.CmdClause, stateDir string) {
	folder := cmd.Flag("state-dir", "The actuator's --state-dir.")
	if stateDir == "" {
		folder.Required()
	} else {
		folder.Default(stateDir)
	}
	folder.StringVar(&o.o.StateDir)
	usage.Engine(cmd, &o.o.Engine)
	cmd.Flag("once", "End when no actuator lives and nothing is on record. The actuator starts its own guardian like this.").BoolVar(&o.o.Once)
	cmd.Flag("device", "The GPUs whose time slices and channels the guardian restores, as the actuator's --device.").Default("auto").StringVar(&o.device)
}

// Run watches until ctx ends, or with --once until there is nothing to watch.
func (o *Options) Run(ctx context.Context, log *slog.Logger) error {
	o.o.Logger = log.With("component", Name)
	o.o.ContainerOf = container.Proc("/proc").OfPID
	o.o.Channels = channeldriver.Later(o.device)
	o.o.Lacks = sandbox.Check(sandbox.Guardian(enforce.RunDir, o.o.StateDir))
	return undo.RunGuardian(ctx, o.o)
}
