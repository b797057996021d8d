package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
)

// simScale is the matrix size that takes the simulated GPU as long as a 16384²
// one takes an H200.
const simScale = 512

// GPU is what an experiment runs on.
type GPU struct {
	Device string        // for exporter.Options
	Socket string        // of the simulated GPU; empty on a real one
	Reader device.Device // of the simulated GPU; nil on a real one
	stop   func() error
}

// OpenGPU opens the GPUs that env names: the NVIDIA ones, or count simulated
// ones whose socket is in dir.
func (env Env) OpenGPU(ctx context.Context, dir string, count int) (*GPU, error) {
	if env.Device != "sim" {
		return &GPU{Device: env.Device, stop: func() error { return nil }}, nil
	}
	cards := make([]sim.Card, count)
	for i := range cards {
		cards[i].Speed = sim.H200().Scaled(simScale)
		cards[i].Memory = env.SimulatedMemory
	}
	gpu, err := sim.New(sim.Options{Cards: cards})
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
	return &GPU{Device: "sim:" + socket, Socket: socket, Reader: reader, stop: func() error {
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

// Close lets go of the GPU.
func (g *GPU) Close() error { return g.stop() }
