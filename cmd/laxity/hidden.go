package main

import (
	"context"
	"log/slog"

	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/guardian"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
)

// addHidden adds commands that other commands start, not people.
func (c *cli) addHidden() {
	var g guardian.Options
	g.Register(c.command(guardian.Name, "Release what a dead laxity up held. Started by laxity up itself.", g.Run).Hidden(), "")

	c.command(channeldriver.HelperName, channeldriver.HelperMeans, func(context.Context, *slog.Logger) error { return channeldriver.Help() }).Hidden()

	var helper swaphelper.Options
	helper.Register(c.command(swaphelper.Name, "Call the CUDA driver's checkpoint API. Started by laxity up itself.",
		func(context.Context, *slog.Logger) error { return helper.Run() }))
}
