// Package swaphelper is the process in which the CUDA driver's checkpoint API is called,
// as a hidden command of both programs: whatever the driver's library does, it does
// to this process.
package swaphelper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
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

// Run is the whole helper: it answers on standard output what it is asked on standard
// input, until that ends.
func (o Options) Run() error {
	if socket, ok := strings.CutPrefix(o.Device, "sim:"); ok {
		if err := os.Setenv(cuda.EnvSocket, socket); err != nil {
			return err
		}
		if o.Library == "" {
			dir, err := cuda.Build("")
			if err != nil {
				return err
			}
			o.Library = dir + "/libcuda.so.1"
		}
	}
	memory := &deviceMemory{spec: o.Device}
	return checkpoint.Serve(os.Stdin, os.Stdout, checkpoint.ServeOptions{Memory: memory, Open: func() (checkpoint.Library, int, error) {
		l, err := libcuda.Open(o.Library)
		if l == nil {
			return nil, 0, errors.Join(checkpoint.ErrUnavailable, err)
		}
		return l, l.Version, err
	}})
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
			one.Used = math.MaxUint64 // nothing may be restored there
		}
		gpus = append(gpus, one)
	}
	return gpus, nil
}
