package main

import (
	"context"
	"log/slog"

	"github.com/laxity/laxity/actuator"
)

// addHidden adds what other commands start, not people.
func (c *cli) addHidden() {
	o := actuator.GuardianOptions{}
	guardian := c.command("guardian", "Let go what a dead laxity up held. Started by laxity up itself.",
		func(ctx context.Context, log *slog.Logger) error {
			o.Logger = log.With("component", "guardian")
			return actuator.RunGuardian(ctx, o)
		}).Hidden()
	guardian.Flag("state-dir", "The actuator's.").Required().StringVar(&o.StateDir)
	guardian.Flag("once", "End when there is nothing to watch.").BoolVar(&o.Once)
	addDockerHost(guardian, &o.DockerHost)
}
