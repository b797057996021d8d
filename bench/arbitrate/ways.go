package arbitrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator"
	nvidia "github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// prepare sets a way up: what its containers need besides, and how to end it.
func (m *measurement) prepare(ctx context.Context, s set, way string) (tenant.Spec, func() error, error) {
	switch way {
	case timeSliced, oneByOne:
		return tenant.Spec{}, func() error { return nil }, nil
	case mps:
		return m.startMPS(ctx)
	default:
		stop, err := m.startLaxity(ctx, s, way)
		return tenant.Spec{}, stop, err
	}
}

func (m *measurement) startMPS(ctx context.Context) (tenant.Spec, func() error, error) {
	service, err := nvidia.New(filepath.Join(m.Dir, "mps"))
	if err != nil {
		return tenant.Spec{}, nil, err
	}
	err = service.Start(ctx, m.Tenants, fmt.Sprintf("laxity-bench-arbitrate-%d-mps", os.Getpid()))
	return service.Spec(), service.Stop, err
}

// config of the actuator for a way.
func (m *measurement) config(s set, way string) (actuator.Config, actuator.HoldMode) {
	c := actuator.Config{Policy: way, Share: m.how.share, Arbitrate: actuator.Always}
	switch way {
	case p3:
		c.Share = ""
		return c, actuator.HoldPause
	case laxity:
		c.Policy = m.how.policy
		if s.asShipped {
			c.Policy, c.Share = "", ""
		}
	}
	return c, actuator.HoldGate
}

// readyTimeout bounds the start of exporter and actuator.
const readyTimeout = 20 * time.Second

// startLaxity runs exporter and actuator in this process until stop, which
// returns once everything is let go. The state folder of a way stays over the
// runs, so that it learns as a daemon does.
func (m *measurement) startLaxity(ctx context.Context, s set, way string) (stop func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	if m.how.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	e, err := exporter.New(exporter.Options{Node: "bench", Device: m.GPU.Device, Keep: m.Tenants.Made, Logger: log})
	if err != nil {
		return nil, err
	}
	config, hold := m.config(s, way)
	a, err := actuator.New(actuator.Options{
		Node: "bench", StateDir: filepath.Join(m.Dir, "actuator-"+way), Source: source{e}, Config: config,
		Hold: hold, ContainerOf: container.Proc("/proc").OfPID, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	// Not ctx: what is held is let go through both, also after Ctrl-C.
	partCtx := context.WithoutCancel(ctx)
	exporterCtx, stopExporter := context.WithCancel(partCtx)
	actuatorCtx, stopActuator := context.WithCancel(partCtx)
	exporterEnded, actuatorEnded := make(chan error, 1), make(chan error, 1)
	go func() { exporterEnded <- e.Run(exporterCtx) }()
	go func() { actuatorEnded <- a.Run(actuatorCtx) }()
	stop = func() error {
		if why := a.State().Breaker; why != "" {
			m.env.Log("way %s: the breaker opened during the run: %s", way, why)
		}
		stopActuator()
		err := errors.Join(<-actuatorEnded, a.Close())
		stopExporter()
		return errors.Join(err, <-exporterEnded)
	}
	readyCtx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := m.ready(readyCtx, e, a, actuatorEnded); err != nil {
		return nil, errors.Join(fmt.Errorf("way %s: %w", way, err), stop())
	}
	return stop, nil
}

// ready waits until the actuator may act. An end of it before is put back for
// stop to find.
func (m *measurement) ready(ctx context.Context, e *exporter.Exporter, a *actuator.Actuator, ended chan error) error {
	select {
	case <-e.Ready():
	case <-ctx.Done():
		return fmt.Errorf("the exporter is not ready: %w", ctx.Err())
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !a.State().Ready {
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- nil
			return errors.Join(errors.New("the actuator ended"), err)
		case <-ctx.Done():
			return fmt.Errorf("the actuator is not ready: %w", ctx.Err())
		}
	}
	return nil
}

// source gives the actuator the exporter's snapshots.
type source struct{ e *exporter.Exporter }

func (s source) Snapshot(context.Context) (*task.Snapshot, error) { return s.e.Snapshot(), nil }

func (s source) Watch(ctx context.Context) (<-chan *task.Snapshot, error) { return s.e.Watch(ctx), nil }
