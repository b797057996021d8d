// Package uprobe is sensor.Starts by uprobes on libcuda: exact to microseconds,
// for every process of every container, at no cost to kernel launches. It is also
// sensor.BusyTracker, for processes that ask for it.
//
// It imports exporter/container, exporter/sensor, exporter/sensor/libraries,
// exporter/task, internal/bounded, internal/cudaprobe, internal/cudaprobe/cudafile and the standard library.
package uprobe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/libraries"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/bounded"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

const (
	defaultRescan = 30 * time.Second // how often known places are searched again
	// closeLimit is how long Run waits at its end for the probes to be detached. An attachment to a
	// file of a network file system may hang; the kernel detaches what is left when we exit.
	closeLimit = 5 * time.Second
)

// Options change how the sensor works; the zero value is right.
type Options struct {
	// Proc is where the host's proc file system is mounted. Empty: /proc.
	Proc string
	// Rescan is how often the host and known containers are searched again for
	// the driver, and it is looked whether events were lost. 0: every 30 s.
	Rescan time.Duration
	// Log gets a line when a file cannot be watched. Nil: nothing.
	Log *slog.Logger
}

// Sensor tells what processes do with CUDA.
type Sensor struct {
	probe     *cudaprobe.Probe
	libraries *libraries.Registry
	rescan    time.Duration
	log       *slog.Logger
}

var (
	_ sensor.Starts      = (*Sensor)(nil)
	_ sensor.Finder      = (*Sensor)(nil)
	_ sensor.BusyTracker = (*Sensor)(nil)
	_ sensor.Knower      = (*Sensor)(nil)
	_ sensor.Lossy       = (*Sensor)(nil)
)

// New loads the probes and attaches them to the host's CUDA driver, if there is
// one; events are kept for Run from here on. The error wraps
// sensor.ErrUnsupported where the kernel does not let us.
func New(o Options) (*Sensor, error) {
	probe, err := cudaprobe.New(cudaprobe.Options{Proc: o.Proc})
	if err != nil {
		return nil, translate(err)
	}
	s := &Sensor{probe: probe, rescan: o.Rescan, log: o.Log}
	if s.rescan <= 0 {
		s.rescan = defaultRescan
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.libraries = libraries.New(o.Proc, watcher{probe})
	if err := s.libraries.DiscoverHost(); err != nil {
		return nil, errors.Join(translate(err), probe.Close())
	}
	return s, nil
}

// Supported says whether this machine can do it; nil if so, else an error that
// wraps sensor.ErrUnsupported with the reason.
func Supported(o Options) error {
	return translate(cudaprobe.Check(cudaprobe.Options{Proc: o.Proc}))
}

// CanTrack says in the same way whether launches can be followed here (Track).
func CanTrack(o Options) error {
	return translate(cudaprobe.CheckTrack(cudaprobe.Options{Proc: o.Proc}))
}

// Run implements sensor.Starts. It may run once: all probes are gone afterwards.
func (s *Sensor) Run(ctx context.Context, events chan<- sensor.Event) error {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { s.libraries.Keep(ctx, s.rescan, s.log) })
	helpers.Go(func() { s.repeat(ctx, events) })
	helpers.Go(func() {
		<-ctx.Done()
		if err := s.probe.Close(); err != nil {
			s.log.Warn("uprobes were not given back cleanly", "err", err)
		}
	})
	defer func() {
		cancel()
		if !bounded.Wait(closeLimit, helpers.Wait) {
			s.log.Warn("uprobes are not detached yet: they will be when the exporter has ended", "waited", closeLimit)
		}
	}()
	for {
		e, err := s.probe.Next()
		switch {
		case errors.Is(err, cudaprobe.ErrClosed):
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("uprobe sensor: %w", err)
		}
		select {
		case events <- convert(e):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// repeat tells again who is idle when events have found no room: an idle process calls
// nothing that would.
func (s *Sensor) repeat(ctx context.Context, events chan<- sensor.Event) {
	ticker := time.NewTicker(s.rescan)
	defer ticker.Stop()
	for lost := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := s.Lost()
		if now == lost {
			continue
		}
		lost = now
		for _, e := range s.probe.Idle() {
			select {
			case events <- convert(e):
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close gives the probes back without Run, or ends Run.
func (s *Sensor) Close() error { return s.probe.Close() }

// Discover implements sensor.Finder.
func (s *Sensor) Discover(pid int) error { return translate(s.libraries.Discover(pid)) }

// Loaded implements sensor.Finder.
func (s *Sensor) Loaded(pid int) error { return translate(s.libraries.Loaded(pid)) }

// Release implements sensor.Finder.
func (s *Sensor) Release(pid int) { s.libraries.Release(pid) }

// Track implements sensor.BusyTracker.
func (s *Sensor) Track(pid int) error { return translate(s.probe.Track(pid)) }

// Untrack implements sensor.BusyTracker.
func (s *Sensor) Untrack(pid int) { s.probe.Untrack(pid) }

// Know implements sensor.Knower.
func (s *Sensor) Know(pid int) error { return translate(s.probe.Know(pid)) }

// Lost implements sensor.Lossy.
func (s *Sensor) Lost() uint64 { return s.probe.Lost() }

// Stats is what the sensor has to do.
type Stats struct {
	Libraries []string // the files that are watched, as their roots name them
	Tracked   int      // processes whose launches are followed
}

// Stats tells the present state.
func (s *Sensor) Stats() Stats {
	probe := s.probe.Stats()
	return Stats{Libraries: s.libraries.Paths(), Tracked: probe.Tracked}
}

var kinds = map[cudaprobe.Kind]sensor.Kind{
	cudaprobe.InitCalled:    sensor.Init,
	cudaprobe.ContextCalled: sensor.ContextMade,
	cudaprobe.Launched:      sensor.Launched,
	cudaprobe.Done:          sensor.WorkDone,
	cudaprobe.Leaving:       sensor.Leaving,
	cudaprobe.Left:          sensor.Left,
	cudaprobe.Exiting:       sensor.Exiting,
}

func convert(e cudaprobe.Event) sensor.Event {
	source := task.SourceUprobe
	if e.Kind == cudaprobe.Exiting {
		source = task.SourceTracepoint
	}
	id, _ := container.IDInPath(e.Cgroup)
	return sensor.Event{
		PID: e.PID, Kind: kinds[e.Kind], Time: e.Time, Source: source, ErrorBound: e.ErrorBound,
		Started: e.Start, Container: id,
	}
}

func translate(err error) error {
	if errors.Is(err, cudaprobe.ErrUnsupported) {
		return fmt.Errorf("%w: %w", sensor.ErrUnsupported, err)
	}
	return err
}

// watcher makes the probe a libraries.Watcher.
type watcher struct{ probe *cudaprobe.Probe }

func (w watcher) Watch(file *cudafile.File) error {
	_, err := w.probe.Add(file)
	return err
}

func (w watcher) Unwatch(id cudafile.ID) { w.probe.Remove(id) }
