package exporter

import (
	"log/slog"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
)

// Sensors are the ways to learn when tasks start: auto is the best one that works here, device the
// device's list alone.
var Sensors = []string{"auto", string(task.SourceUprobe), string(task.SourceFanotify), string(task.SourceDevice)}

// Options are what an Exporter is made of. The zero value watches the GPUs of
// this machine and the containers of its engine, and forgets on exit.
type Options struct {
	// Node names this machine in snapshots. Default: the host name.
	Node string
	// Device is where the GPUs are: auto (NVML), nvml, or sim:SOCKET. Default auto.
	Device string
	// Engine is the container engine.
	Engine engine.Choice
	// Keep, if not nil, selects the containers that this exporter watches.
	Keep func(container.Container) bool
	// Sensor is how starts are learned, one of Sensors. Default auto.
	Sensor string
	// StateDir keeps unfinished tasks, history, changed deadlines and shares over a restart.
	// Empty: nothing survives.
	StateDir string
	// SwapDir is the folder of notices of swapped tasks (package swaps). Default
	// swaps.DefaultDir.
	SwapDir string
	// HoldDir is the folder of records of tasks whose channels are off the GPU (package
	// holds). Default holds.DefaultDir.
	HoldDir string
	// Proc is the host's proc file system. Default /proc.
	Proc string

	// FastPoll and SlowPoll are the shortest and the longest time between two
	// readings of the device. Defaults 20 ms and 1 s.
	FastPoll, SlowPoll time.Duration
	// DeviceTimeout is how long a reading, or opening the device, may take before the device
	// counts as not answering. Default 2 s.
	DeviceTimeout time.Duration
	// BusyGap closes a busy interval (laxity.release=busy). Default 10 ms.
	BusyGap time.Duration
	// MaxEnded bounds the history of ended tasks. Default 100.
	MaxEnded int

	// Retention and MaxSeries are those of collector.Options.
	Retention time.Duration
	MaxSeries int
	// RuntimeMetrics adds metrics of this process and of its Go runtime: process_*, go_*.
	RuntimeMetrics bool

	// Limits bound what a container may claim, by label or at run time.
	Limits task.Limits

	// Access says who may change deadlines and shares by HTTP; by default clients of this
	// machine. Its Refuse and Logger are the exporter's.
	Access access.Options

	Logger *slog.Logger
	// Parts replaces parts that New would make from the options above. It is for tests, and
	// for programs that have a part already.
	Parts Parts
}

// Parts are the adapters. New makes those that are nil from Options.
type Parts struct {
	Device     device.Device
	Containers container.Source
	Exits      sensor.Exits
	Processes  tracker.Processes
	Starts     []tracker.StartSensor
	Swaps      tracker.Swaps
	Holds      tracker.Holds
}
