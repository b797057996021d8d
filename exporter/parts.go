package exporter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/docker"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/nvml"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/exporter/tracker/store"
)

// openParts fills in the adapters that Options.Parts does not give.
func (e *Exporter) openParts(t *tracker.Options) error {
	p := e.opt.Parts
	if err := e.openDevice(t, p.Device); err != nil {
		return err
	}
	if t.Containers = p.Containers; t.Containers == nil {
		engine, err := docker.New(docker.Options{Host: e.opt.DockerHost, Log: e.log})
		if err != nil {
			return err
		}
		e.closers = append(e.closers, engine)
		t.Containers = engine
	}
	if e.opt.Keep != nil {
		t.Containers = container.Filtered{Source: t.Containers, Keep: e.opt.Keep}
	}
	if t.Exits = p.Exits; t.Exits == nil {
		exits, err := pidfd.New()
		if err != nil {
			return fmt.Errorf("ends of tasks cannot be seen: %w", err)
		}
		e.closers = append(e.closers, exits)
		t.Exits = exits
	}
	if t.Processes = p.Processes; t.Processes == nil {
		t.Processes = NewProcesses(e.opt.Proc)
	}
	switch e.opt.Sensor {
	case "", "auto":
		t.Starts = p.Starts
	case "device": // the list alone
	default:
		return fmt.Errorf("no such sensor %q: write auto or device", e.opt.Sensor)
	}
	return e.openStore(t)
}

func (e *Exporter) openDevice(t *tracker.Options, d device.Device) error {
	if d == nil {
		var err error
		if d, err = OpenDevice(e.opt.Device); err != nil {
			return err
		}
	}
	guard := device.NewGuard(d, e.opt.DeviceTimeout)
	e.closers = append(e.closers, guard)
	t.Device = guard
	return nil
}

func (e *Exporter) openStore(t *tracker.Options) error {
	if e.opt.StateDir == "" {
		return nil
	}
	file, aside, err := store.Open(e.opt.StateDir)
	if err != nil {
		return err
	}
	if aside != nil {
		e.log.Warn("the stored state was given up", "err", aside)
	}
	e.closers = append(e.closers, file)
	t.Store = file
	return nil
}

// OpenDevice opens the GPUs that spec names: auto or nvml for those of this
// machine, sim:SOCKET for simulated ones. The error wraps device.ErrUnavailable
// where there are none, and says what to do.
func OpenDevice(spec string) (device.Device, error) {
	if socket, ok := strings.CutPrefix(spec, "sim:"); ok {
		if socket == "" {
			return nil, errors.New(`device "sim:" names no socket: write sim:/path/to/gpu.sock`)
		}
		return sim.Dial(socket)
	}
	switch spec {
	case "", "auto", "nvml":
		return nvml.Open()
	default:
		return nil, fmt.Errorf("no such device %q: write auto, nvml, or sim:/path/to/gpu.sock", spec)
	}
}
