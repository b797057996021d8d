package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/papers"
	"github.com/laxity/laxity/cmd/internal/guardian"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
)

// addHidden adds the commands that experiments start. An actuator inside this program starts
// the program again as its guardian and its checkpoint helper.
func (c *cli) addHidden() {
	var g guardian.Options
	g.Register(c.command(guardian.Name, "Release what a dead experiment held. Started by an experiment.", g.Run).Hidden(), "")

	var helper swaphelper.Options
	helper.Register(c.command(swaphelper.Name, "Call the CUDA driver's checkpoint API. Started by an experiment.",
		func(context.Context, *slog.Logger) error { return helper.Run() }))

	var spec string
	var length time.Duration
	monitor := c.command("papers-monitor", "Watch as the papers do. Started by `laxity-bench cost`.",
		func(ctx context.Context, _ *slog.Logger) error { return c.papersMonitor(ctx, spec, length) }).Hidden()
	monitor.Flag("device", "nvml or sim:SOCKET.").Required().StringVar(&spec)
	monitor.Flag("for", "How long.").Required().DurationVar(&length)
}

func (c *cli) papersMonitor(ctx context.Context, spec string, length time.Duration) error {
	var simulated device.Device
	if strings.HasPrefix(spec, "sim:") {
		var err error
		if simulated, err = exporter.OpenDevice(spec); err != nil {
			return err
		}
		defer simulated.Close()
	}
	m, err := papers.New("", simulated)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	began := time.Now()
	_, passes, err := m.Watch(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	usage, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		return err
	}
	seconds := make([]float64, len(passes))
	for i, p := range passes {
		seconds[i] = p.Seconds()
	}
	return writeJSON(c.out, map[string]any{
		"passes_seconds": seconds, "rss_anon_bytes": usage.RSSAnon, "wall_seconds": time.Since(began).Seconds(),
	})
}
