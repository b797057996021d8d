package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/profile"
	"github.com/laxity/laxity/cmd/laxity/internal/demo"
	"github.com/laxity/laxity/internal/engine"
)

const demoHelp = `Run three containers with deadlines on one GPU, without Laxity and with it.

  laxity demo
  laxity demo --policy=p3                 the paper's algorithm
  laxity demo --hold=pause                pause whole containers
  laxity demo --json | jq .with.hits

Needs Docker and a C compiler, but no registry and no GPU: without a GPU it simulates one
and says so. Takes about half a minute. It removes what it made, also after Ctrl-C.`

func (c *cli) addDemo() {
	o := demo.Options{}
	asJSON, hold := false, ""
	cmd := c.command("demo", demoHelp, func(ctx context.Context, log *slog.Logger) error {
		o.Out, o.Logger, o.Hold = c.out, log, config.HoldMode(hold)
		if o.DockerHost == "" {
			chosen, _ := (engine.Choice{}).Resolve(engine.This)
			o.DockerHost = chosen.DockerHost
		}
		if asJSON {
			o.Out = io.Discard
			o.JSON = func(r demo.Results) error { return writeJSON(c.out, r) }
		}
		return demo.Run(ctx, o)
	})
	cmd.Flag("device", "The GPU: auto (NVIDIA if there is one, else simulated), nvml or sim.").Default("auto").EnumVar(&o.Device, "auto", "nvml", "sim")
	cmd.Flag("policy", "How the actuator orders tasks.").Default("edf").EnumVar(&o.Policy, profile.Names...)
	cmd.Flag("hold", "How to hold containers: channels, pause, or auto.").Default(string(config.HoldAuto)).EnumVar(&hold, config.HoldModes...)
	addDockerHost(cmd, &o.DockerHost)
	cmd.Flag("metrics-file", "Write all metrics, as they are at the end, to this file.").StringVar(&o.MetricsFile)
	cmd.Flag("json", "Print the results only, as JSON.").BoolVar(&asJSON)
	c.quiet["demo"] = true
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, string(b))
	return err
}
