// Package allinone is Laxity for one machine in one process: exporter, rule evaluator and
// actuator, connected as on a fleet, but by function calls instead of HTTP.
package allinone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/cmd/internal/channeldriver"
	"github.com/laxity/laxity/cmd/internal/evaluator"
	"github.com/laxity/laxity/cmd/internal/nodesfile"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/rules"
)

// Options of a Stack. StateDir is required.
type Options struct {
	Node   string // default: the host name
	Device string // as in exporter.Options, or "sim": a simulated GPU in this process
	Sensor string // as in exporter.Options
	// Keep, if not nil, selects the containers that are watched and acted on. The others are
	// left alone.
	Keep     func(container.Container) bool
	Engine   engine.Choice
	StateDir string
	// RuleFiles are loaded besides the repository's own.
	RuleFiles []string
	// Interval is the time between evaluations of the rules; while no tasks share a GPU and
	// none is nearly full, it is evaluator.CalmInterval if that is longer.
	Interval time.Duration
	Config   config.Config
	// Load reads the actuator's configuration again, for its Reload; may be nil.
	Load   func() (config.Config, error)
	DryRun bool
	Hold   config.HoldMode // default auto
	// SeveralGPUs is what is done with a container on several GPUs; default never.
	SeveralGPUs config.SeveralMode
	// MemoryGuard and Swap are as in mechanism.Options; auto by default.
	MemoryGuard, Swap config.MemoryMode
	// Ranking is how a new container's node is chosen; NodesFile the nodes.yaml, which is read again
	// when it changes and by a reload.
	Ranking   placement.Method
	NodesFile string
	// Sim describes the simulated GPU, with Device "sim".
	Sim sim.Options
	// OnAlert gets every notification before the actuator does; may be nil.
	OnAlert func(webhook.Alert)
	// Limits bound what a container may claim.
	Limits task.Limits
	// Access says who may act by HTTP, at the exporter and at the actuator.
	Access access.Options
	// LockDir and Allow are as in actuator.Options.
	LockDir string
	Allow   core.Allow
	Logger  *slog.Logger
}

// Stack has the connected parts. Its fields may be used while Run runs.
type Stack struct {
	Exporter *exporter.Exporter
	Engine   *evaluator.Evaluator
	Actuator *actuator.Actuator
	Places   *service.Service
	// Socket is that of the simulated GPU; empty without one.
	Socket string
	// Metrics are the metrics of all parts.
	Metrics prometheus.Gatherer

	stopSim     func() error
	calm        *calm
	followNodes func(context.Context) error
}

// DeviceSim asks for a simulated GPU inside the process.
const DeviceSim = "sim"

// New opens everything. Run, which may be called once, closes it; so does Close.
func New(o Options) (_ *Stack, err error) {
	if o.Node == "" {
		if o.Node, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.StateDir, 0o755); err != nil {
		return nil, fmt.Errorf("the state folder (--state-dir chooses another): %w", err)
	}
	var how string
	if o.Engine, how = o.Engine.Resolve(engine.This); how != "" {
		o.Logger.Info("the container engine", "engine", o.Engine.Kind, "because", how)
	}
	s := &Stack{calm: newCalm()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if o.Device == DeviceSim {
		if err := s.openSim(o); err != nil {
			return nil, err
		}
		o.Device = "sim:" + s.Socket
	}
	if s.Exporter, err = exporter.New(exporter.Options{
		Node: o.Node, Device: o.Device, Sensor: o.Sensor, Keep: o.Keep, Engine: o.Engine,
		SwapDir:  swapping.NoticeDir(o.noticesIn()),
		StateDir: filepath.Join(o.StateDir, "exporter"), RuntimeMetrics: true,
		Access: o.Access, Limits: o.Limits, Logger: o.Logger.With("component", "exporter"),
	}); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if s.Actuator, err = s.openActuator(o, registry); err != nil {
		return nil, err
	}
	s.Metrics = prometheus.Gatherers{s.Exporter.Gatherer(), registry}
	s.Engine, err = evaluator.New(evaluator.Options{
		Targets: []evaluator.Target{
			{Gatherer: s.Exporter.Gatherer(), Job: "laxity-exporter", Instance: "laxity-up", Node: o.Node},
			{Gatherer: registry, Job: "laxity-actuator", Instance: "laxity-up", Node: o.Node},
		},
		Rules: rules.FS, RuleFiles: o.RuleFiles, Interval: o.Interval, Dir: filepath.Join(o.StateDir, "samples"),
		Calm: s.calm.now.Load, Wake: s.calm.wake,
		Notify: func(ctx context.Context, m webhook.Message) error {
			if o.OnAlert != nil {
				for _, a := range m.Alerts {
					o.OnAlert(a)
				}
			}
			return s.Actuator.Receive(ctx, m)
		},
		Logger: o.Logger.With("component", "engine"),
	})
	return s, err
}

// SimSocket is the socket of the simulated GPU of a stack with this state folder.
func SimSocket(stateDir string) string { return filepath.Join(stateDir, "sim", "gpu.sock") }

func (s *Stack) openSim(o Options) error {
	gpu, err := sim.New(o.Sim)
	if err != nil {
		return err
	}
	s.Socket = SimSocket(o.StateDir)
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o755); err != nil {
		return err
	}
	listener, err := sim.Listen(context.Background(), s.Socket)
	if err != nil {
		return fmt.Errorf("%w (choose a shorter --state-dir?)", err)
	}
	// It must work before Run, as a driver does, because the exporter reads it in New.
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gpu.Serve(ctx, listener) }()
	s.stopSim = sync.OnceValue(func() error { stop(); return <-ended })
	return nil
}

func (s *Stack) openActuator(o Options, registry *prometheus.Registry) (*actuator.Actuator, error) {
	metrics := collector.New()
	registry.MustRegister(metrics)
	list, load, err := nodesfile.Open(o.NodesFile, o.Config, o.Load)
	if err != nil {
		return nil, err
	}
	s.followNodes = nodesfile.Follow(o.NodesFile, nodesfile.Every, list.Reload, o.Logger.With("component", "placement"))
	if s.Places, err = service.New(service.Options{
		StateDir: filepath.Join(o.StateDir, "actuator"), Querier: late{s}, Method: o.Ranking, Nodes: list,
		Local: func() string { return o.Node }, Logger: o.Logger.With("component", "placement"),
	}); err != nil {
		return nil, err
	}
	stateDir, logger := filepath.Join(o.StateDir, "actuator"), o.Logger.With("component", "actuator")
	proven := o.proveChannels(metrics, stateDir)
	return actuator.New(actuator.Options{
		Node: o.Node, StateDir: stateDir, Source: exporterSource{s.Exporter},
		Config: o.Config, Load: load, DryRun: o.DryRun, Engine: o.Engine, Device: o.Device,
		Mechanisms: mechanism.Options{
			Hold: o.Hold, SeveralGPUs: o.SeveralGPUs, Channels: proven.Driver, ChannelsProven: proven.How, NoChannels: proven.Why, Instances: proven.Instances, MemoryGuard: o.MemoryGuard, Swap: o.Swap,
			ContainerOf: container.Proc("/proc").OfPID, OpenUsage: exporter.OpenUsage(o.Device),
			NewSwapper: swaphelper.OpenOptions{
				StateDir: stateDir, Engine: o.Engine, LockDir: o.noticesIn(), Device: o.Device, Logger: logger,
			}.Open,
		},
		LockDir: o.LockDir, Allow: o.Allow, Access: o.Access, Metrics: metrics,
		Mount:   []func(chi.Router, *access.Gate){func(r chi.Router, gate *access.Gate) { s.Places.Register(r, gate.Change, gate.Queue) }},
		Ranking: s.Places.Overview,
		Logger:  logger,
	})
}

// proveChannels opens the driver of channels. Where channels are not wanted, or not proven to
// work, it opens it only for undoing what is on record.
func (o Options) proveChannels(m *collector.Metrics, stateDir string) channeldriver.Proven {
	return channeldriver.Prove(context.Background(), channeldriver.ProveOptions{
		Device: o.Device, StateDir: stateDir, Wanted: o.Hold.Channels() && !o.DryRun, Observe: m.ChannelCalled,
	})
}

// noticesIn is the folder of the notices of swaps. It must exist, also where there is no
// folder of locks.
func (o Options) noticesIn() string { return cmp.Or(o.LockDir, o.StateDir) }

// Run runs all parts until ctx ends or one of them fails, then ends the others. The actuator
// releases what it held before Run returns.
func (s *Stack) Run(ctx context.Context) error {
	err := runParts(ctx, part{"actuator", s.Actuator.Run, true},
		part{"placement", s.Places.Run, false},
		part{"nodes", s.followNodes, false},
		part{"engine", s.evaluate, false},
		part{"calm", func(ctx context.Context) error { return s.calm.run(ctx, s.Exporter.Watch) }, false},
		part{"exporter", s.Exporter.Run, false})
	if s.stopSim != nil {
		err = errors.Join(err, s.stopSim())
	}
	return err
}

// mostUnread bounds how long the rules wait for the first reading, as an engine may not answer.
const mostUnread = 5 * time.Second

// evaluate runs the rule evaluator. It begins once the GPUs and the containers are read: before,
// the metrics say that the driver does not answer.
func (s *Stack) evaluate(ctx context.Context) error {
	select {
	case <-s.Exporter.Ready():
	case <-time.After(mostUnread):
	case <-ctx.Done():
	}
	return s.Engine.Run(ctx)
}

// Close closes what New opened, if Run was not called.
func (s *Stack) Close() error {
	var errs []error
	if s.Engine != nil {
		errs = append(errs, s.Engine.Close())
	}
	if s.Actuator != nil {
		errs = append(errs, s.Actuator.Close())
	}
	if s.Places != nil {
		errs = append(errs, s.Places.Close())
	}
	if s.Exporter != nil {
		errs = append(errs, s.Exporter.Close())
	}
	if s.stopSim != nil {
		errs = append(errs, s.stopSim())
	}
	return errors.Join(errs...)
}

// late passes queries to the rule evaluator, which is made after the parts that query it.
type late struct{ s *Stack }

func (l late) Query(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	return l.s.Engine.Query(ctx, expr, at)
}

// exporterSource gives the actuator the exporter's snapshots, and passes changed settings to
// the exporter.
type exporterSource struct{ e *exporter.Exporter }

func (s exporterSource) Snapshot(context.Context) (*task.Snapshot, error) {
	return s.e.Snapshot().At(time.Now()), nil
}

func (s exporterSource) Watch(ctx context.Context) (<-chan *task.Snapshot, error) {
	out := make(chan *task.Snapshot, 1)
	go func() {
		defer close(out)
		for next := range s.e.Watch(ctx) {
			source.Latest(out, next.At(time.Now()))
		}
	}()
	return out, nil
}

func (s exporterSource) Change(ctx context.Context, containerID string, change task.Change) error {
	return s.e.Change(ctx, containerID, change)
}
