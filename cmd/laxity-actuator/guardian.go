package main

import (
	"context"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"

	"github.com/laxity/laxity/cmd/internal/guardian"
)

type guardianCommand struct {
	name string
	o    guardian.Options
}

func newGuardianCommand(app *kingpin.Application) *guardianCommand {
	g := &guardianCommand{}
	cmd := app.Command(guardian.Name, "Wait for the actuator's end, whatever its cause, and release at once what it left held.")
	g.o.Register(cmd, defaultStateDir)
	g.name = cmd.FullCommand()
	return g
}

func (g *guardianCommand) run(ctx context.Context) error {
	return g.o.Run(ctx, promslog.New(&promslog.Config{}))
}
