// Package check examines a machine: whether Laxity can observe and act on it, and
// whether the chain from Prometheus to the actuator is closed.
//
// Each area has a struct of facts with two halves: a function that gathers them,
// and a method that judges them, which is pure.
package check

import (
	"context"
	"net/http"
	"slices"

	engines "github.com/laxity/laxity/internal/engine"
)

// Level is how a finding bears on Laxity.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, with less: the finding says what is lost
	Fail Level = "fail" // it does not work
	Skip Level = "skip" // not examined: the finding says why
)

// Finding is one thing that was looked at.
type Finding struct {
	Area  string `json:"area"`
	Name  string `json:"name"`
	Level Level  `json:"level"`
	// Found is what was seen, Means what follows from it, Fix what to do.
	Found string `json:"found"`
	Means string `json:"means,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// Address is that of a program that may run or not.
type Address struct {
	URL string
	// Given: a person named it, so that no answer is a failure.
	Given bool
	// Client asks it, with credentials where it wants some; nil: without.
	Client *http.Client
}

func (a Address) client() *http.Client {
	if a.Client == nil {
		return http.DefaultClient
	}
	return a.Client
}

// Options of Run.
type Options struct {
	// Device is as in `laxity up --device`.
	Device, Proc string
	// Engine is what a person chose; if nothing, the record of an actuator in StateDirs counts.
	Engine                                       engines.Choice
	Exporter, Actuator, Prometheus, Alertmanager Address
	// NodesFile is a nodes.yaml; empty: none.
	NodesFile string
	// StateDirs are those of actuators, which remember self-tests and their engine there.
	StateDirs []string
	// Swap says whether containers can be swapped off a GPU here; it is asked where
	// there is an NVIDIA GPU. Nil: not examined.
	Swap func(context.Context) error
	// SendTestAlert posts an alert to Alertmanager and waits for it at the actuator.
	SendTestAlert bool
}

// findings collects those of one area.
type findings struct {
	area string
	list []Finding
}

func (f *findings) add(l Level, name, found, means, fix string) {
	f.list = append(f.list, Finding{Area: f.area, Name: name, Level: l, Found: found, Means: means, Fix: fix})
}

func (f *findings) ok(name, found string) { f.add(OK, name, found, "", "") }

// Run examines one area after the other and reports each finding as it comes. It
// takes some seconds, and more where something does not answer.
func Run(ctx context.Context, o Options, report func(Finding)) []Finding {
	var all []Finding
	device := gatherDevice(ctx, o.Device)
	for _, area := range []func() []Finding{
		device.judge,
		func() []Finding { return gatherChannels(device, o.StateDirs).judge() },
		func() []Finding { return judgeEngine(ctx, o.Engine, o.StateDirs, device.nvidia()) },
		func() []Finding { return gatherRights(o.Proc).judge() },
		func() []Finding { return gatherKernel(o.Proc, swap(ctx, o, device)...).judge() },
		func() []Finding { return gatherExporter(ctx, o.Exporter).judge() },
		func() []Finding { return gatherActuator(ctx, o.Actuator).judge() },
		func() []Finding { return gatherPrometheus(ctx, o.Prometheus).judge() },
		func() []Finding { return gatherAlertmanager(ctx, o).judge() },
		func() []Finding { return gatherNodes(ctx, o.NodesFile).judge() },
	} {
		if ctx.Err() != nil {
			break
		}
		for _, f := range area() {
			report(f)
			all = append(all, f)
		}
	}
	return all
}

// swap asks whether containers can be swapped, where a driver is there to say.
func swap(ctx context.Context, o Options, d deviceFacts) []ability {
	if o.Swap == nil || !d.nvidia() {
		return nil
	}
	return []ability{{"swapping", "containers are paused with what they hold in GPU memory, never swapped out of it", o.Swap(ctx)}}
}

// Failed reports whether something fails.
func Failed(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Level == Fail })
}
