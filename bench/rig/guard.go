package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// ErrNotGuarded means that this machine cannot guard GPU memory.
var ErrNotGuarded = errors.New("GPU memory is not guarded here")

// readyTimeout bounds the start of exporter and actuator.
const readyTimeout = 20 * time.Second

// Guard runs exporter and actuator in this process until stop, which returns once everything is released: memory is
// guarded, and containers are swapped. There are no rules and no alerts, so that a card that the ballast keeps nearly full
// counts as none. The state folder stays over the rounds. Settings: verbose, and swap=off.
func (r *Rig) Guard(ctx context.Context, env bench.Env, config config.Config) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	if env.Args["verbose"] != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	state := r.stateDir()
	e, err := exporter.New(exporter.Options{Node: "bench", Device: r.GPU.Device, Engine: r.choice(), Keep: r.Tenants.Made, SwapDir: swapping.NoticeDir(r.Dir), Logger: log})
	if err != nil {
		return nil, err
	}
	of := container.Proc("/proc").OfPID
	a, err := actuator.New(actuator.Options{
		Node: "bench", Engine: r.choice(), StateDir: state, Source: source{e}, Config: config, Logger: log,
		Mechanisms: mechanism.Options{
			ContainerOf: of, OpenUsage: r.usage,
			NewSwapper: func() (enforce.Swapper, error) { return r.swapper(ctx, env, log) },
		},
	})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	partCtx := context.WithoutCancel(ctx) // what is held is released through both, also after Ctrl-C
	exporterCtx, stopExporter := context.WithCancel(partCtx)
	actuatorCtx, stopActuator := context.WithCancel(partCtx)
	exporterEnded, actuatorEnded := make(chan error, 1), make(chan error, 1)
	go func() { exporterEnded <- e.Run(exporterCtx) }()
	go func() { actuatorEnded <- a.Run(actuatorCtx) }()
	stop = func() error {
		stopActuator()
		err := <-actuatorEnded
		stopExporter()
		return errors.Join(err, <-exporterEnded)
	}
	readyCtx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case err := <-actuatorEnded:
			actuatorEnded <- nil
			return nil, errors.Join(errors.New("the actuator ended"), err, stop())
		case <-readyCtx.Done():
			return nil, errors.Join(fmt.Errorf("the actuator is not ready: %w", readyCtx.Err()), stop())
		case <-tick.C:
		}
		if s := a.State(); s.Ready {
			tick.Stop()
			if s.MemoryGuard != "" {
				return nil, errors.Join(fmt.Errorf("%w: %s", ErrNotGuarded, s.MemoryGuard), stop())
			}
			env.Log("memory is guarded; swapping: %v", s.Swap)
			return stop, nil
		}
	}
}

// usage reads what each process holds on each GPU.
func (r *Rig) usage() (task.UsageReader, error) {
	d, err := exporter.OpenDevice(r.GPU.Device)
	if err != nil {
		return nil, err
	}
	return exporter.UsageOf(d), nil
}

// swapper is nil where this machine cannot swap.
func (r *Rig) swapper(ctx context.Context, env bench.Env, log *slog.Logger) (enforce.Swapper, error) {
	self, err := os.Executable()
	if err != nil || env.Args["swap"] == "off" {
		return nil, err
	}
	s, err := swapping.Open(swapping.Options{
		StateDir: r.stateDir(), Helper: []string{self, "checkpoint-helper", "--device=" + r.GPU.Device}, NoticeDir: swapping.NoticeDir(r.Dir),
		ContainerOf: container.Proc("/proc").OfPID, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := checkpoint.Check(ctx, s.Helper); err != nil {
		env.Log("containers cannot be swapped here: %v", err)
		return nil, s.Close()
	}
	return s, nil
}

// source gives the actuator the exporter's snapshots.
type source struct{ e *exporter.Exporter }

func (s source) Snapshot(context.Context) (*task.Snapshot, error) { return s.e.Snapshot(), nil }

func (s source) Watch(ctx context.Context) (<-chan *task.Snapshot, error) { return s.e.Watch(ctx), nil }

func (r *Rig) stateDir() string { return filepath.Join(r.Dir, "actuator") }
