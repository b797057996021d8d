package exporter

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containerd"
	"github.com/laxity/laxity/exporter/container/crio"
	"github.com/laxity/laxity/exporter/container/docker"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/nvml"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/holds"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/detect"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/exporter/swaps"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/exporter/tracker/store"
	"github.com/laxity/laxity/internal/engine"
)

// openParts makes the adapters that Options.Parts does not give.
func (e *Exporter) openParts(t *tracker.Options) error {
	p := e.opt.Parts
	if err := e.openDevice(t, p.Device); err != nil {
		return err
	}
	if t.Containers = p.Containers; t.Containers == nil {
		if err := e.openEngine(t); err != nil {
			return err
		}
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
	if t.Starts = p.Starts; t.Starts == nil {
		var err error
		if t.Starts, err = e.startSensors(); err != nil {
			return err
		}
	}
	if t.Swaps = p.Swaps; t.Swaps == nil {
		t.Swaps = swaps.Dir(cmp.Or(e.opt.SwapDir, swaps.DefaultDir))
	}
	if t.Holds = p.Holds; t.Holds == nil {
		t.Holds = holds.Dir(cmp.Or(e.opt.HoldDir, holds.DefaultDir))
	}
	return e.openStore(t)
}

// openEngine opens the container engine that was chosen.
func (e *Exporter) openEngine(t *tracker.Options) error {
	choice, how := e.opt.Engine.Resolve(engine.This)
	if how != "" {
		e.log.Info("the container engine", "engine", choice.Kind, "because", how)
	}
	switch choice.Kind {
	case engine.Containerd:
		c, err := containerd.New(containerd.Options{Options: choice.Containerd(), Proc: e.opt.Proc, Log: e.log})
		if err != nil {
			return err
		}
		e.closers = append(e.closers, c)
		t.Containers = c
	case engine.CRIO:
		c, err := crio.New(crio.Options{Address: choice.CRIOAddress, Proc: e.opt.Proc, Log: e.log})
		if err != nil {
			return err
		}
		e.closers = append(e.closers, c)
		t.Containers = c
	default:
		c, err := docker.New(docker.Options{Host: choice.DockerHost, Log: e.log})
		if err != nil {
			return err
		}
		e.closers = append(e.closers, c)
		t.Containers = c
	}
	return nil
}

// startSensors returns the sensors to try, the best first. It returns none where the device's
// list alone is to be used. It returns an error if a sensor that was chosen by name does not
// work.
func (e *Exporter) startSensors() ([]tracker.StartSensor, error) {
	var sensors []tracker.StartSensor
	for _, s := range detect.Sensors(detect.Options{Proc: e.opt.Proc, Log: e.log}) {
		switch e.opt.Sensor {
		case "", "auto":
		case string(s.Source):
			opened, err := s.Open()
			if err != nil {
				return nil, fmt.Errorf("the chosen sensor does not work here (auto takes the best one that does): %w", err)
			}
			if err := opened.Close(); err != nil {
				return nil, err
			}
		default:
			continue
		}
		sensors = append(sensors, tracker.StartSensor{
			Source: s.Source, Open: func() (sensor.Starts, error) { return s.Open() },
		})
	}
	if len(sensors) == 0 && e.opt.Sensor != string(task.SourceDevice) {
		return nil, fmt.Errorf("no such sensor %q: write auto, uprobe, fanotify or device", e.opt.Sensor)
	}
	return sensors, nil
}

// openDevice opens d, or the device of the options, and its cards. A driver that hangs does not
// stop the exporter: the readings go on trying.
func (e *Exporter) openDevice(t *tracker.Options, d device.Device) error {
	var opened atomic.Pointer[device.Device]
	timed := device.Opening(func() (device.Source[device.Reading], error) {
		d := d
		if d == nil {
			var err error
			if d, err = OpenDevice(e.opt.Device); err != nil {
				return nil, err
			}
		}
		opened.Store(&d)
		return d, nil
	}, e.opt.DeviceTimeout)
	e.closers = append(e.closers, timed)
	t.Device = timed
	if err := e.tryOpen(timed); err != nil {
		return err
	}
	now := opened.Load()
	if now != nil {
		if _, ok := (*now).(device.WithCards); !ok {
			return nil
		}
	}
	cards := device.Opening(func() (device.Source[device.CardReading], error) {
		d := opened.Load()
		if d == nil {
			return nil, device.ErrNotAnswering
		}
		with, ok := (*d).(device.WithCards)
		if !ok {
			return nil, errors.New("the device does not report the condition of its cards")
		}
		return with.Cards()
	}, e.opt.DeviceTimeout)
	e.closers = append(e.closers, cards)
	t.Cards = cards
	if now == nil {
		return nil // its first reading opens it
	}
	return e.tryOpen(cards)
}

// tryOpen opens a reader of the device. It returns no error where the driver hangs.
func (e *Exporter) tryOpen(d interface{ Open() error }) error {
	err := d.Open()
	if errors.Is(err, device.ErrNotAnswering) {
		e.log.Warn("the driver does not answer: it hangs, or takes long to start; the exporter starts without the GPUs, and shows them once it answers", "err", err)
		return nil
	}
	return err
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
		e.log.Warn("the stored state cannot be used and was moved aside", "err", aside)
	}
	e.closers = append(e.closers, file)
	t.Store = file
	return nil
}

// OpenDevice opens the GPUs that spec names: auto or nvml for those of this machine,
// sim:SOCKET for simulated ones. Where there are none, the error wraps device.ErrUnavailable
// and says what to do.
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
		return nil, fmt.Errorf("no such device %q: write auto, nvml, or sim:/path/to/gpu.sock (laxity up also takes sim)", spec)
	}
}
