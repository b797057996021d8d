package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/exporter/container"
)

const offHelp = `Undo by hand all that Laxity did to containers here, with nothing of it running.

Whatever is paused, held, swapped off its GPU, off the GPU or has another time slice goes on
as if Laxity had never been. What a person paused stays paused. No program of Laxity has to
run; an actuator that runs must be stopped first.

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
		var errs []error
		for _, dir := range state {
			o.StateDir = filepath.Join(dir, "actuator")
			if err := undo.Off(ctx, o); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(c.out, "Nothing is held any more by what has its state in %s.\n", o.StateDir)
		}
		return errors.Join(errs...)
	})
	c.quiet["off"] = true
	cmd.Flag("state-dir", "The --state-dir of laxity up, or the folder above that of laxity-actuator; repeatable.").Default(defaultStateDir()).StringsVar(&state)
	cmd.Flag("device", "The GPUs, as in laxity up: auto, nvml, or sim:SOCKET.").Default("auto").StringVar(&gpus)
	addDockerHost(cmd, &o.DockerHost)
}
