package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/engine"
)

const offHelp = `Undo everything that Laxity did to the containers here. No program of Laxity has to run.

It continues every container that Laxity paused, held or swapped, switches its channels on and
restores its time slice. A container that a person paused stays paused. Stop a running actuator
first.

  sudo laxity off
  sudo laxity off --state-dir=/srv/laxity`

func (c *cli) addOff() {
	var (
		o     undo.Options
		state []string
		gpus  string
	)
	cmd := c.command("off", offHelp, func(ctx context.Context, log *slog.Logger) error {
		o.Logger = log
		o.ContainerOf = container.Proc("/proc").OfPID
		o.Channels = channeldriver.Open(gpus)
		o.Using = func(e engine.Choice, because string) {
			fmt.Fprintf(c.out, "The container engine is %s: %s.\n", e, because)
		}
		var errs []error
		for _, dir := range state {
			o.StateDir = filepath.Join(dir, "actuator")
			if err := undo.Off(ctx, o); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(c.out, "Nothing is held: everything on record in %s is released.\n", o.StateDir)
		}
		return errors.Join(errs...)
	})
	c.quiet["off"] = true
	cmd.Flag("state-dir", "The --state-dir of laxity up, or the folder above that of laxity-actuator; repeatable.").Default(defaultStateDir()).StringsVar(&state)
	cmd.Flag("device", "The GPUs, as in laxity up: auto, nvml, or sim:SOCKET.").Default("auto").StringVar(&gpus)
	usage.Engine(cmd, &o.Engine)
}
