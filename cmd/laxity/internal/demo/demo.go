// Package demo shows the main job on real containers: three tasks with deadlines
// on one GPU, once without Laxity and once with it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/cmd/laxity/internal/allinone"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/engine"
)

// Options of the demonstration.
type Options struct {
	Device     string // auto, nvml or sim
	DockerHost string
	Policy     string // of the actuator; default edf
	Hold       config.HoldMode
	Out        io.Writer
	// JSON, if not nil, takes the results.
	JSON func(Results) error
	// MetricsFile takes the exporter's metrics as they are at the end; may be empty.
	MetricsFile string
	Logger      *slog.Logger
}

// How the tasks are sized.
const (
	tasks         = 3
	simN, gpuN    = 256, 8192 // matrices; the simulated GPU is slowed to match
	simScale      = 512       // its size that takes as long as 16384 on an H200
	hostSeconds   = 0.3
	kernelSeconds = 2.4 // wanted, per task
	maxKernels    = 200
)

// demo is one run of the program.
type demo struct {
	o      Options
	start  time.Time
	stack  *allinone.Stack
	runner *tenant.Runner
	n      int
	config chan config.Config // the configuration that Reload reads, one at a time
	say    *teller
}

// Run shows the main job and prints what happens. It removes everything that it made, also
// when ctx ends early.
func Run(ctx context.Context, o Options) (err error) {
	if o.Policy == "" {
		o.Policy = "edf"
	}
	d := &demo{o: o, start: time.Now(), say: &teller{out: o.Out}, config: make(chan config.Config, 1)}
	d.say.gpus = func() *task.Snapshot { return d.stack.Exporter.Snapshot() }
	if err := d.chooseDevice(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "laxity-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := d.open(ctx, dir); err != nil {
		return err
	}

	stackCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := d.stack.Run(stackCtx)
		cancel(errors.Join(errors.New("laxity ended in the middle of the demo"), err))
		ended <- err
	}()
	defer func() {
		err = errors.Join(err, d.runner.Close())
		stop()
		err = errors.Join(err, <-ended)
	}()

	err = d.show(ctx)
	if errors.Is(err, context.Canceled) {
		d.say.line("stopped; containers and image are being removed")
	}
	return err
}

func (d *demo) chooseDevice() error {
	switch d.o.Device {
	case "", "auto":
		real, err := exporter.OpenDevice("auto")
		switch {
		case err == nil:
			d.o.Device = "nvml"
			return real.Close()
		case !errors.Is(err, device.ErrUnavailable):
			return err
		}
		d.o.Device = allinone.DeviceSim
		d.say.line("No NVIDIA GPU here: using the SIMULATED GPU. Containers, rules and alerts are real.")
	case "nvml", allinone.DeviceSim:
	default:
		return fmt.Errorf("--device=%s: write auto, nvml or sim", d.o.Device)
	}
	return nil
}

func (d *demo) open(ctx context.Context, dir string) (err error) {
	d.n = gpuN
	if d.o.Device == allinone.DeviceSim {
		d.n = simN
	}
	d.say.line("Starting exporter, rule evaluator and actuator in this process, and building the containers' image ...")
	name := fmt.Sprintf("demo-%d", os.Getpid())
	d.stack, err = allinone.New(allinone.Options{
		// The demo leaves other containers of this machine alone.
		Keep: func(c container.Container) bool { return c.Labels[tenant.Label] == name },
		Node: "demo", Device: d.o.Device, Engine: engine.Choice{Kind: engine.Docker, DockerHost: d.o.DockerHost}, StateDir: dir,
		Sim:     sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(simScale)}}},
		Config:  config.Config{Policy: d.o.Policy, Arbitrate: config.Never},
		Hold:    d.o.Hold,
		Swap:    config.MemoryOff, // the three tasks fit into the memory together
		Load:    func() (config.Config, error) { return <-d.config, nil },
		OnAlert: d.say.alert, Logger: d.o.Logger,
	})
	if err != nil {
		return err
	}
	d.runner, err = tenant.New(ctx, tenant.Options{
		DockerHost: d.o.DockerHost, Socket: d.stack.Socket, Name: name,
	})
	if err != nil {
		return errors.Join(err, d.stack.Close())
	}
	return nil
}

// show runs one task alone, then three at once without and with arbitration.
func (d *demo) show(ctx context.Context) error {
	select {
	case <-d.stack.Exporter.Ready():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s := d.stack.Exporter.Snapshot()
	for _, g := range s.GPUs {
		d.say.line("GPU %s: %s, %s", view.GPUName(s, g.UUID), g.Name, view.Bytes(g.MemoryTotal))
	}
	size, err := d.calibrate(ctx)
	if err != nil {
		return err
	}
	d.say.line("One task alone takes about %.1fs: %d matrix multiplications (n=%d), %.1fs of them on the GPU.",
		size.alone, size.kernels, d.n, size.kernelTotal)

	without, err := d.round(ctx, "Without Laxity (arbitration off)", config.Never, size)
	if err != nil {
		return err
	}
	with, err := d.round(ctx, "With Laxity (policy "+d.o.Policy+")", config.Auto, size)
	if err != nil {
		return err
	}
	if d.o.MetricsFile != "" {
		if err := prometheus.WriteToTextfile(d.o.MetricsFile, d.stack.Metrics); err != nil {
			return err
		}
	}
	results := Results{Device: d.o.Device, Policy: d.o.Policy, Alone: size.alone, Without: without, With: with}
	var text strings.Builder
	if err := results.Write(&text); err != nil {
		return err
	}
	d.say.line("%s", strings.TrimSuffix(text.String(), "\n")) // alerts may still come meanwhile
	d.say.line("\nDone in %.0fs. `laxity up` does this for your own containers.", time.Since(d.start).Seconds())
	if d.o.JSON != nil {
		return d.o.JSON(results)
	}
	return nil
}

// size has the lengths of one task's parts, seconds.
type size struct {
	kernels            int
	alone, kernelTotal float64
}

// args of the workload for this task.
func (d *demo) args(kernels int) []string {
	return []string{
		"--n", strconv.Itoa(d.n), "--kernels", strconv.Itoa(kernels), "--sync-each",
		"--host-seconds", fmt.Sprint(hostSeconds), "--destroy",
	}
}

// calibrate runs a short task alone, and computes how many kernels make a task of the wanted length on
// this GPU. On a simulated one it runs three, of which the fastest counts.
func (d *demo) calibrate(ctx context.Context) (size, error) {
	probes := 1
	if d.o.Device == allinone.DeviceSim { // a busy machine slows its kernels, too
		probes = 3
	}
	one, rest := math.Inf(1), math.Inf(1)
	for range probes {
		kernel, other, err := d.probe(ctx)
		if err != nil {
			return size{}, err
		}
		one, rest = min(one, kernel), min(rest, other)
	}
	kernels := int(min(max(math.Round(kernelSeconds/one), 1), maxKernels))
	total := one * float64(kernels)
	return size{kernels, rest + total, total}, nil
}

// probe runs a short task, and returns how long one of its kernels takes, and all besides kernels, seconds.
func (d *demo) probe(ctx context.Context) (one, rest float64, err error) {
	const kernels = 2
	t, err := d.runner.Start(ctx, tenant.Spec{Name: d.name("alone"), Args: d.args(kernels)})
	if err != nil {
		return 0, 0, err
	}
	defer t.Remove() //nolint:errcheck // Close removes it again
	if err := t.Wait(ctx); err != nil {
		return 0, 0, err
	}
	events, err := t.Timeline(ctx)
	if err != nil {
		return 0, 0, err
	}
	at := map[string]time.Time{}
	for _, e := range events {
		at[e.Name] = e.Time
	}
	between := func(from, to string) float64 { return at[to].Sub(at[from]).Seconds() }
	one = between("launch", "kernels_end") / kernels
	if !(one > 0) {
		return 0, 0, fmt.Errorf("the task's time line has no kernels: %v", events)
	}
	return one, between("start", "exit") - kernels*one, nil
}

func (d *demo) name(suffix string) string {
	return fmt.Sprintf("laxity-demo-%d-%s", os.Getpid(), suffix)
}
