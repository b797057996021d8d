// Package detect finds out which sensors work on this machine, and lists those for
// starts with the best one first: uprobes, else fanotify, else polling the device.
//
// It imports exporter/sensor, exporter/sensor/fanotify, exporter/sensor/pidfd and
// exporter/sensor/uprobe, exporter/task and the standard library.
package detect

import (
	"io"
	"log/slog"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/fanotify"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/exporter/task"
)

// Finding says whether one sensor works on this machine.
type Finding struct {
	Source task.Source
	Sees   string // what it sees, for people
	Err    error  // nil: it works; otherwise why not, and what would help
}

// All tries every sensor, the best first. It takes about 0.2 s and leaves nothing behind.
func All(proc string) []Finding {
	return []Finding{
		{task.SourceUprobe, "starts and GPU work, exactly", uprobe.Supported(uprobe.Options{Proc: proc})},
		{task.SourceFanotify, "opens of the CUDA driver", fanotify.Supported()},
		{task.SourcePidfd, "ends, exactly", pidfd.Supported()},
	}
}

// Starts is what the sensors for starts have in common. Those that can follow GPU work also
// implement sensor.BusyTracker.
type Starts interface {
	sensor.Starts
	sensor.Finder
	io.Closer
}

// Options of sensors.
type Options struct {
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	Log  *slog.Logger // nil: nothing is logged
}

// Sensor is one of the sensors for starts, whether it works on this machine or not.
type Sensor struct {
	Source task.Source
	// Open makes a new one ready each time. The error wraps sensor.ErrUnsupported where this
	// machine cannot run it.
	Open func() (Starts, error)
}

// Sensors returns the sensors for starts, the best first.
func Sensors(o Options) []Sensor {
	return []Sensor{
		{task.SourceUprobe, func() (Starts, error) { return uprobe.New(uprobe.Options{Proc: o.Proc, Log: o.Log}) }},
		{task.SourceFanotify, func() (Starts, error) { return fanotify.New(fanotify.Options{Proc: o.Proc, Log: o.Log}) }},
	}
}
