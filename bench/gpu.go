package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
)

// simScale is the matrix size that takes the simulated GPU as long as a 16384²
// one takes an H200.
const simScale = 512

// simShared lets a start-up beside seven others take some 1.4 s longer, as one did on
// an H200 (0.9–1.5 s).
const simShared = 200 * time.Millisecond

// GPU is what an experiment runs on.
type GPU struct {
	Device string        // for exporter.Options
	Socket string        // of the simulated GPU; empty on a real one
	Reader device.Device // of the simulated GPU; nil on a real one
	Sim    *sim.GPU      // itself; nil on a real one
	stop   func() error
}

// Simulation are the settings of simulated GPUs, for experiments that depend on them.
var Simulation = []Setting{
	{Name: "sim-memory", Means: "simulated: GiB of each card; 141"},
	{Name: "sim-context", Means: "simulated: how long making a context takes; 200ms"},
	{Name: "sim-list", Means: "simulated: from that call until the process is listed; 150ms"},
	{Name: "sim-alloc", Means: "simulated: GiB per second of an allocation; it takes no time"},
	{Name: "sim-release", Means: "simulated: from the end of a process until its memory is free; it takes no time"},
}

// simulated says how simulated GPUs behave: as sim.Options has it, or as the settings
// say.
func (env Env) simulated(count int) (o sim.Options, err error) {
	o.Cards = make([]sim.Card, count)
	gib, err := env.Number("sim-memory", 1, 0)
	if err != nil {
		return o, err
	}
	for i := range o.Cards {
		o.Cards[i].Speed = sim.H200().Scaled(simScale)
		o.Cards[i].Memory = env.SimulatedMemory
		if gib > 0 {
			o.Cards[i].Memory = uint64(gib) << 30
		}
	}
	for name, to := range map[string]*time.Duration{"sim-context": &o.ContextTime, "sim-list": &o.ListDelay, "sim-release": &o.ReleaseTime} {
		if text, ok := env.Args[name]; ok {
			if *to, err = time.ParseDuration(text); err != nil {
				return o, fmt.Errorf("--set %s: %w", name, err)
			}
		}
	}
	if o.ContextShared = simShared; o.ContextTime != 0 {
		o.ContextShared = min(o.ContextShared, max(o.ContextTime, 0))
	}
	if text, ok := env.Args["sim-alloc"]; ok {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return o, fmt.Errorf("--set sim-alloc: %w", err)
		}
		o.AllocRate = rate * (1 << 30)
	}
	return o, nil
}

// OpenGPU opens the GPUs that env names: the NVIDIA ones, or count simulated
// ones whose socket is in dir.
func (env Env) OpenGPU(ctx context.Context, dir string, count int) (*GPU, error) {
	if env.Device != "sim" {
		return &GPU{Device: env.Device, stop: func() error { return nil }}, nil
	}
	options, err := env.simulated(count)
	if err != nil {
		return nil, err
	}
	gpu, err := sim.New(options)
	if err != nil {
		return nil, err
	}
	// A folder of its own: it is mounted into the tenants.
	folder := filepath.Join(dir, "sim")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	socket := filepath.Join(folder, "gpu.sock")
	listener, err := sim.Listen(ctx, socket)
	if err != nil {
		return nil, err
	}
	serveCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- gpu.Serve(serveCtx, listener) }()
	reader, err := sim.Dial(socket)
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("simulated GPU: %w", err), <-ended)
	}
	return &GPU{Device: "sim:" + socket, Socket: socket, Reader: reader, Sim: gpu, stop: func() error {
		cancel()
		return errors.Join(reader.Close(), <-ended)
	}}, nil
}

// Simulated reports whether this is no real GPU.
func (g *GPU) Simulated() bool { return g.Socket != "" }

// N converts a matrix size for an H200 to one that takes as long here.
func (g *GPU) N(real int) int {
	if !g.Simulated() {
		return real
	}
	return max(8, int(math.Round(float64(real)*simScale/16384)))
}

// Close closes the GPU.
func (g *GPU) Close() error { return g.stop() }
