// Package detect finds out which sensors work on this machine, and opens the best
// one: uprobes, else fanotify, else none, which leaves polling the device.
//
// It imports exporter/sensor and its adapters, exporter/task, and the standard
// library.
package detect

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/fanotify"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/exporter/task"
)

// Finding is whether one sensor works here.
type Finding struct {
	Source task.Source
	Sees   string // what it sees, for people
	Err    error  // nil: it works; else why not, and what would help
}

// All tries every sensor, the best first. It takes some 0.2 s, and leaves nothing
// behind.
func All(proc string) []Finding {
	return []Finding{
		{task.SourceUprobe, "starts and GPU work, exactly", uprobe.Supported(uprobe.Options{Proc: proc})},
		{task.SourceFanotify, "opens of the CUDA driver", fanotify.Supported()},
		{task.SourcePidfd, "ends, exactly", pidfd.Supported()},
	}
}

// Starts is what the sensors for starts have in common. Those that can follow GPU
// work are sensor.BusyTracker too.
type Starts interface {
	sensor.Starts
	sensor.Finder
	io.Closer
}

// ErrUnknown means that a sensor of this name does not exist.
var ErrUnknown = errors.New("no such sensor")

// Options say which sensor to open.
type Options struct {
	// Name is auto (or empty), uprobe, fanotify, or device (none).
	Name string
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	Log  *slog.Logger // nil: nothing is logged
}

// Sensor is one that exists, whether it works here or not.
type Sensor struct {
	Source task.Source
	// Open makes it ready, each time anew. The error wraps sensor.ErrUnsupported
	// where this machine cannot run it.
	Open func() (Starts, error)
}

// Sensors returns the sensors for starts, the best first. Of the options, Name
// does not matter.
func Sensors(o Options) []Sensor {
	return []Sensor{
		{task.SourceUprobe, func() (Starts, error) { return uprobe.New(uprobe.Options{Proc: o.Proc, Log: o.Log}) }},
		{task.SourceFanotify, func() (Starts, error) { return fanotify.New(fanotify.Options{Proc: o.Proc, Log: o.Log}) }},
	}
}

// Open opens a sensor for starts. With auto it returns the best one that works;
// skipped says why each better one does not. starts is nil with device, and with
// auto where none works. A sensor that was asked for by name and does not work is
// an error that wraps sensor.ErrUnsupported.
func Open(o Options) (starts Starts, source task.Source, skipped []Finding, err error) {
	auto := o.Name == "" || o.Name == "auto"
	for _, candidate := range Sensors(o) {
		if !auto && o.Name != string(candidate.Source) {
			continue
		}
		opened, err := candidate.Open()
		if err == nil {
			return opened, candidate.Source, skipped, nil
		}
		if !auto {
			return nil, "", nil, err
		}
		skipped = append(skipped, Finding{Source: candidate.Source, Err: err})
	}
	if !auto && o.Name != string(task.SourceDevice) {
		return nil, "", nil, fmt.Errorf("%w: %q (auto, uprobe, fanotify or device)", ErrUnknown, o.Name)
	}
	return nil, task.SourceDevice, skipped, nil
}
