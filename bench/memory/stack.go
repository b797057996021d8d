// Package memory measures what allocation of GPU memory does: P5's deadlock, and
// more tasks than the card has memory for.
package memory

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
	benchrig "github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

// Ways that are compared.
const (
	without  = "default"
	laxity   = "laxity"
	oneByOne = "one"
)

// rig is what all runs of an experiment use.
type rig struct {
	*benchrig.Rig
	env  bench.Env
	made int
}

func newRig(ctx context.Context, env bench.Env, name string, gpus int) (*rig, error) {
	r, err := benchrig.Open(ctx, env, name, gpus)
	if err != nil {
		return nil, err
	}
	return &rig{Rig: r, env: env}, nil
}

// start starts a container; args are the workload's.
func (r *rig) start(ctx context.Context, labels map[string]string, args ...string) (*tenant.Tenant, error) {
	t, err := r.create(ctx, labels, args...)
	if err == nil {
		err = t.Start(ctx)
	}
	return t, err
}

// create makes a container that is to be started.
func (r *rig) create(ctx context.Context, labels map[string]string, args ...string) (*tenant.Tenant, error) {
	r.made++
	return r.Tenants.Create(ctx, tenant.Spec{Name: fmt.Sprintf("laxity-bench-memory-%d-%d", os.Getpid(), r.made), Labels: labels, Args: args})
}

// open opens the GPUs for reading.
func (r *rig) open() (device.Device, error) { return exporter.OpenDevice(r.GPU.Device) }

var errNotGuarded = errors.New("GPU memory is not guarded here")

// read reads the GPUs once.
func (r *rig) read(ctx context.Context) (device.Reading, error) {
	d, err := r.open()
	if err != nil {
		return device.Reading{}, err
	}
	defer d.Close()
	return d.Read(ctx)
}

// readyTimeout bounds the start of exporter and actuator.
const readyTimeout = 20 * time.Second

// laxity runs exporter and actuator in this process until stop, which returns once
// everything is released. The state folder stays over the rounds.
func (r *rig) laxity(ctx context.Context, config config.Config) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	if r.env.Args["verbose"] != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	state := filepath.Join(r.Dir, "actuator")
	e, err := exporter.New(exporter.Options{Node: "bench", Device: r.GPU.Device, Keep: r.Tenants.Made, SwapDir: swapping.NoticeDir(r.Dir), Logger: log})
	if err != nil {
		return nil, err
	}
	of := container.Proc("/proc").OfPID
	a, err := actuator.New(actuator.Options{
		Node: "bench", StateDir: state, Source: source{e}, Config: config, Logger: log,
		Mechanisms: mechanism.Options{
			ContainerOf: of, OpenUsage: r.usage,
			NewSwapper: func() (enforce.Swapper, error) { return r.swapper(ctx, state, log) },
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
				return nil, errors.Join(fmt.Errorf("%w: %s", errNotGuarded, s.MemoryGuard), stop())
			}
			r.env.Log("memory is guarded; swapping: %v", s.Swap)
			return stop, nil
		}
	}
}

// usage reads what each process holds on each GPU.
func (r *rig) usage() (task.UsageReader, error) {
	d, err := r.open()
	if err != nil {
		return nil, err
	}
	return exporter.UsageOf(d), nil
}

// swapper is nil where this machine cannot swap.
func (r *rig) swapper(ctx context.Context, state string, log *slog.Logger) (enforce.Swapper, error) {
	self, err := os.Executable()
	if err != nil || r.env.Args["swap"] == "off" {
		return nil, err
	}
	s, err := swapping.Open(swapping.Options{
		StateDir: state, Helper: []string{self, "checkpoint-helper", "--device=" + r.GPU.Device}, NoticeDir: swapping.NoticeDir(r.Dir),
		ContainerOf: container.Proc("/proc").OfPID, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := checkpoint.Check(ctx, s.Helper); err != nil {
		r.env.Log("containers cannot be swapped here: %v", err)
		return nil, s.Close()
	}
	return s, nil
}

// source gives the actuator the exporter's snapshots.
type source struct{ e *exporter.Exporter }

func (s source) Snapshot(context.Context) (*task.Snapshot, error) { return s.e.Snapshot(), nil }

func (s source) Watch(ctx context.Context) (<-chan *task.Snapshot, error) { return s.e.Watch(ctx), nil }
