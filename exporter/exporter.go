// Package exporter observes: it connects device, container engine and sensors to the tracker,
// and the tracker's snapshots to metrics and an HTTP API. It acts on nothing, and knows
// nothing of the actuator.
//
// It is the one package under exporter/ that imports the adapters.
package exporter

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
)

// Exporter observes one node.
type Exporter struct {
	opt      Options
	log      *slog.Logger
	tracker  *tracker.Tracker
	registry *prometheus.Registry
	closers  []io.Closer // in the order in which they were made
}

// New makes an exporter. Nothing runs yet, but devices and files are open. Call Run, which
// closes them in the end, or Close. An error says what to do.
func New(opt Options) (_ *Exporter, err error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Node == "" {
		if opt.Node, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	e := &Exporter{opt: opt, log: opt.Logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	topt := tracker.Options{
		Node: opt.Node, Logger: opt.Logger,
		FastPoll: opt.FastPoll, SlowPoll: opt.SlowPoll, BusyGap: opt.BusyGap, MaxEnded: opt.MaxEnded, Limits: opt.Limits,
	}
	if err := e.openParts(&topt); err != nil {
		return nil, err
	}
	metrics := collector.New(collector.Options{
		// The tracker needs the collector as its observer. The collector reads the tracker
		// only at a scrape, which is later.
		Snapshot:  func() *task.Snapshot { return e.tracker.Snapshot() },
		Retention: opt.Retention, MaxSeries: opt.MaxSeries, EndLag: topt.EndLag(),
	})
	e.registry = collector.NewRegistry(metrics, opt.RuntimeMetrics)
	topt.Observers = []tracker.Observer{metrics}
	if e.tracker, err = tracker.New(topt); err != nil {
		return nil, err
	}
	return e, nil
}

// Run observes until ctx ends. Then it stores what is known, closes everything that New
// opened, and returns. Call it once.
func (e *Exporter) Run(ctx context.Context) error {
	return errors.Join(e.tracker.Run(ctx), e.Close())
}

// Close closes what New opened. After Run there is nothing left to close.
func (e *Exporter) Close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i].Close())
	}
	e.closers = nil
	return errors.Join(errs...)
}

// Gatherer returns the metrics that /metrics serves.
func (e *Exporter) Gatherer() prometheus.Gatherer { return e.registry }

// Snapshot returns the latest snapshot; never nil. It costs one atomic load.
func (e *Exporter) Snapshot() *task.Snapshot { return e.tracker.Snapshot() }

// Watch sends the present snapshot, then each new one, until ctx ends; then it
// closes the channel. A slow reader gets the latest and misses those between.
func (e *Exporter) Watch(ctx context.Context) <-chan *task.Snapshot { return e.tracker.Watch(ctx) }

// Ready is closed once device, container engine and start sensor have answered
// or failed.
func (e *Exporter) Ready() <-chan struct{} { return e.tracker.Ready() }
