package main

import (
	"context"
	"log/slog"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/exporter/container"
)

// addHidden adds what other commands start, not people.
func (c *cli) addHidden() {
	o, gpus := undo.Options{}, ""
	guardian := c.command("guardian", "Let go what a dead laxity up held. Started by laxity up itself.",
		func(ctx context.Context, log *slog.Logger) error {
			o.Logger = log.With("component", "guardian")
			o.ContainerOf = container.Proc("/proc").OfPID
			o.Channels = channeldriver.Open(gpus)
			return undo.Guard(ctx, o)
		}).Hidden()
	guardian.Flag("state-dir", "The actuator's.").Required().StringVar(&o.StateDir)
	guardian.Flag("once", "End when there is nothing to watch.").BoolVar(&o.Once)
	guardian.Flag("device", "The actuator's.").Default("auto").StringVar(&gpus)
	addDockerHost(guardian, &o.DockerHost)

	c.command(channeldriver.HelperName, channeldriver.HelperMeans, func(context.Context, *slog.Logger) error { return channeldriver.Help() }).Hidden()

	var helper swaphelper.Options
	helper.Register(c.command(swaphelper.Name, "Call the CUDA driver's checkpoint API. Started by laxity up itself.",
		func(context.Context, *slog.Logger) error { return helper.Run() }))
}
