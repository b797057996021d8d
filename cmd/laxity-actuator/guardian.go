package main

import (
	"context"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/sandbox"
)

type guardianCommand struct {
	name   string
	device string
	o      undo.Options
}

func newGuardianCommand(app *kingpin.Application) *guardianCommand {
	g := &guardianCommand{}
	cmd := app.Command("guardian", "Wait for the actuator's end, whatever its cause, and release at once what it left held.")
	cmd.Flag("state-dir", "The actuator's --state-dir.").Default(defaultStateDir).StringVar(&g.o.StateDir)
	usage.Engine(cmd, &g.o.Engine)
	cmd.Flag("once", "End when no actuator lives and nothing is on record. The actuator starts its own guardian like this.").BoolVar(&g.o.Once)
	cmd.Flag("device", "The GPUs whose time slices and channels the guardian restores, as the actuator's --device.").Default("auto").StringVar(&g.device)
	g.name = cmd.FullCommand()
	return g
}

func (g *guardianCommand) run(ctx context.Context) error {
	g.o.Logger = promslog.New(&promslog.Config{})
	g.o.ContainerOf = container.Proc("/proc").OfPID
	g.o.Channels = channeldriver.Later(g.device)
	g.o.Lacks = sandbox.Check(sandbox.Guardian(enforce.RunDir, g.o.StateDir))
	return undo.RunGuardian(ctx, g.o)
}
