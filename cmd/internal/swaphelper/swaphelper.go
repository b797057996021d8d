// Package swaphelper is the process that calls the CUDA driver's checkpoint API, as a hidden
// command of both programs: a fault of the driver's library affects only this process.
package swaphelper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/libcuda"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
)

// Name of the command.
const Name = "checkpoint-helper"

// Command is the helper's command line with this program, for checkpoint.HelperOptions.
// device is as in `laxity up --device`.
func Command(device string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start the checkpoint helper: %w", err)
	}
	if device == "" {
		device = "auto"
	}
	return []string{self, Name, "--device=" + device}, nil
}

// Options of the command.
type Options struct{ Device, Library string }

// Register adds the command's flags.
func (o *Options) Register(cmd *kingpin.CmdClause) {
	cmd.Hidden()
	cmd.Flag("device", "auto, nvml, or sim:SOCKET.").Default("auto").StringVar(&o.Device)
	cmd.Flag("library", "The driver's library. Default: libcuda.so.1, or the simulated GPU's.").StringVar(&o.Library)
}

// Run is the whole helper: it answers on standard output the questions on standard input, until
// that ends.
func (o Options) Run() error {
	if socket, ok := strings.CutPrefix(o.Device, "sim:"); ok {
		if err := os.Setenv(cuda.EnvSocket, socket); err != nil {
			return err
		}
	}
	memory := &deviceMemory{spec: o.Device}
	// A library that cannot be had is the answer, and no reason to end: whoever started the
	// helper waits for what it has to say.
	return checkpoint.Serve(os.Stdin, os.Stdout, checkpoint.ServeOptions{Memory: memory, Open: func() (checkpoint.Library, int, error) {
		path, err := o.library()
		if err != nil {
			return nil, 0, errors.Join(checkpoint.ErrUnavailable, err)
		}
		l, err := libcuda.Open(path)
		if l == nil {
			return nil, 0, errors.Join(checkpoint.ErrUnavailable, err)
		}
		return l, l.Version, err
	}})
}

// library is the path of what to open; empty is the driver's.
func (o Options) library() (string, error) {
	if o.Library != "" || !strings.HasPrefix(o.Device, "sim:") {
		return o.Library, nil
	}
	dir := os.Getenv(cuda.EnvLibrary)
	if dir == "" {
		var err error
		if dir, err = cuda.Build(""); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "libcuda.so.1"), nil
}

// deviceMemory reads the GPUs' memory through exporter/device.
type deviceMemory struct {
	spec string

	mu     sync.Mutex
	device device.Device
}

// GPUs implements checkpoint.Memory.
func (m *deviceMemory) GPUs(ctx context.Context) ([]checkpoint.GPU, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.device == nil {
		d, err := exporter.OpenDevice(m.spec)
		if err != nil {
			return nil, err
		}
		m.device = d
	}
	r, err := m.device.Read(ctx)
	if err != nil {
		return nil, err
	}
	gpus := make([]checkpoint.GPU, 0, len(r.GPUs))
	for _, g := range r.GPUs {
		one := checkpoint.GPU{UUID: g.UUID, Total: g.MemoryTotal, Used: g.MemoryUsed}
		if g.ProcessesErr == nil {
			one.Processes = map[int]uint64{}
			for _, p := range g.Processes {
				one.Processes[p.PID] = p.MemoryUsed
			}
		} else {
			one.Used = math.MaxUint64 // restore nothing there
		}
		gpus = append(gpus, one)
	}
	return gpus, nil
}
