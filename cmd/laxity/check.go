package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/cmd/laxity/internal/check"
)

const checkHelp = `Examine this machine: does what Laxity needs work here?

Examines the GPU driver, control of time slices and channels, the container engine, permissions,
what the kernel can do, and the chain from Prometheus to the actuator. Each finding says what it
means and what to do. It changes nothing.

  sudo laxity check
  sudo laxity check --device=sim                                       without a GPU
  sudo laxity check --prometheus.url=http://prom:9090 --alertmanager.url=http://am:9093
  sudo laxity check --send-test-alert                                  does an alert reach the actuator?
  sudo laxity check --json | jq '.[] | select(.level == "fail")'

The engine is the one that the last actuator used, by its record in --state-dir, unless a flag,
DOCKER_HOST or CONTAINERD_ADDRESS names one.

check skips a program that does not answer at its default address. At an address that you give,
no answer is a failure.

Exit codes: 0 nothing fails (there may be warnings), 3 something fails.`

// checkSwap starts the helper that calls the driver's checkpoint API, and ends it.
func checkSwap(ctx context.Context, device string) error {
	command, err := swaphelper.Command(device)
	if err != nil {
		return err
	}
	helper := checkpoint.NewHelper(checkpoint.HelperOptions{Command: command})
	err = checkpoint.Check(ctx, helper)
	return errors.Join(err, helper.Close())
}

// errFindings is the error of a check that ran and found a failure.
var errFindings = errors.New("something fails")

func (c *cli) addCheck() {
	var (
		o      = check.Options{Proc: "/proc"}
		asJSON bool
		notes  []func()

		prometheus string
		state      []string
	)
	cmd := c.command("check", checkHelp, func(ctx context.Context, _ *slog.Logger) error {
		for _, note := range notes {
			note()
		}
		var err error
		if o.Exporter.Client, err = c.client(); err != nil {
			return err
		}
		o.Actuator.Client = o.Exporter.Client
		if o.Prometheus.Client, err = httpClient(prometheus, tokenSource{}); err != nil {
			return err
		}
		o.Alertmanager.Client = o.Prometheus.Client
		w := &check.Writer{Out: c.out, Paint: view.ColoursOn(c.out), Width: view.Width(c.out)}
		report := w.Write
		if asJSON {
			report = func(check.Finding) {}
		}
		for _, dir := range state {
			o.StateDirs = append(o.StateDirs, filepath.Join(dir, "actuator"))
		}
		o.Swap = func(ctx context.Context) error { return checkSwap(ctx, o.Device) }
		all := check.Run(ctx, o, report)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if asJSON {
			if err := writeJSON(c.out, all); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(c.out, "\n%s\n", check.Summary(all))
		}
		if check.Failed(all) {
			return errFindings
		}
		return nil
	})
	address := func(flag, env, standard, help string, a *check.Address) {
		byUser := false
		usage.Address(cmd.Flag(flag, help).Envar(env).IsSetByUser(&byUser), standard, &a.URL)
		notes = append(notes, func() { a.Given = given(byUser, env) })
	}
	cmd.Flag("device", "The GPUs, as in laxity up: auto, nvml, sim or sim:SOCKET.").Default("auto").StringVar(&o.Device)
	cmd.Flag("state-dir", "The --state-dir of laxity up, or the folder above that of laxity-actuator, where self-tests and the container engine are remembered; repeatable.").Default(defaultStateDir()).StringsVar(&state)
	usage.Engine(cmd, &o.Engine)
	address("exporter.url", exporterEnv, defaultExporter, "Address of the exporter (or of laxity up).", &o.Exporter)
	address("actuator.url", actuatorEnv, defaultActuator, "Address of the actuator (or of laxity up's).", &o.Actuator)
	address("prometheus.url", "", "http://127.0.0.1:9090", "Address of Prometheus.", &o.Prometheus)
	address("alertmanager.url", "", "http://127.0.0.1:9093", "Address of Alertmanager.", &o.Alertmanager)
	cmd.Flag("prometheus.config.file", "Credentials and TLS towards Prometheus and Alertmanager: an http_config of Prometheus.").StringVar(&prometheus)
	cmd.Flag("nodes.file", "A nodes.yaml to check; its exporters and actuators are asked.").StringVar(&o.NodesFile)
	cmd.Flag("send-test-alert", "Post an alert to Alertmanager and wait for it at the actuator, which notes it and does nothing.").BoolVar(&o.SendTestAlert)
	cmd.Flag("json", "Print JSON.").BoolVar(&asJSON)
	c.quiet["check"] = true
}
