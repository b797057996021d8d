package tracker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

const (
	relistEvery   = time.Minute            // even when every event arrived
	engineRetry   = time.Second            // after the engine did not answer
	engineLimit   = time.Minute            // for one answer of an engine, which may have a thousand containers
	sensorSettle  = 200 * time.Millisecond // within this time a sensor reports that it cannot work
	sensorRetry   = 30 * time.Second       // after a sensor failed
	sensorBacklog = 4096                   // events of the start sensor that may wait
	// How long a sensor replaces a better one that failed and may work again: at first
	// insteadFirst, then twice as long after each vain try, up to insteadMost.
	insteadFirst, insteadMost = time.Minute, time.Hour
)

// reading is one answer of the device.
type reading struct {
	device.Reading
	done time.Time
	took time.Duration
	err  error
}

// readDevice reads the device once for each request.
func readDevice(ctx context.Context, d device.Device, requests <-chan struct{}, out chan<- reading) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-requests:
		}
		began := time.Now()
		r, err := d.Read(ctx)
		done := time.Now()
		select {
		case out <- reading{Reading: r, done: done, took: done.Sub(began), err: err}:
		case <-ctx.Done():
			return
		}
	}
}

// engineNews is a complete list of containers, one event, or the engine's failure.
type engineNews struct {
	list  []container.Container
	event *container.Event
	err   error
}

// followEngine sends lists and events, and reconnects for as long as ctx lasts.
func followEngine(ctx context.Context, src container.Source, relist <-chan struct{}, out chan<- engineNews) {
	for ctx.Err() == nil {
		err := followOnce(ctx, src, relist, out)
		if ctx.Err() != nil {
			return
		}
		send(ctx, out, engineNews{err: err})
		pause(ctx, engineRetry)
	}
}

var errSilent = fmt.Errorf("%w: it accepts calls, but does not answer within %v", container.ErrUnavailable, engineLimit)

// followOnce follows until the stream of events breaks, or the engine does not answer. An
// engine that hangs keeps its stream open: only the next list shows that it hangs.
func followOnce(ctx context.Context, src container.Source, relist <-chan struct{}, out chan<- engineNews) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(engineLimit, func() { cancel(errSilent) })
	defer limit.Stop()
	failed := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	events, err := src.Watch(ctx)
	if err != nil {
		return failed(err)
	}
	tick := time.NewTicker(relistEvery)
	defer tick.Stop()
	for {
		limit.Reset(engineLimit)
		list, err := src.List(ctx)
		limit.Stop()
		if err != nil {
			return failed(err)
		}
		if list == nil {
			list = []container.Container{}
		}
		send(ctx, out, engineNews{list: list})
		for listed := true; listed; {
			select {
			case <-ctx.Done():
				return failed(ctx.Err())
			case ev, ok := <-events:
				if !ok {
					return failed(errors.New("the stream of container events broke"))
				}
				send(ctx, out, engineNews{event: &ev})
			case <-relist:
				listed = false
			case <-tick.C:
				listed = false
			}
		}
	}
}

// holdNews says which processes are off the GPU.
type holdNews struct {
	off map[int]time.Duration
	at  time.Time
}

func (l *loop) followHolds(ctx context.Context) {
	l.opt.Holds.Follow(ctx, func(off map[int]time.Duration, at time.Time) {
		send(ctx, l.holds, holdNews{off, at})
	}, func(err error) {
		l.log.Warn("the records of held tasks cannot be read: held tasks count as running", "err", err)
	})
}

// sensorNews says which start sensor works now; sensor is nil when none does.
type sensorNews struct {
	source task.Source
	sensor sensor.Starts
	reason string // why no better sensor works
}

// errTimeUp stops a sensor so that a better one is tried again.
var errTimeUp = errors.New("a better sensor is tried again")

// runStarts runs the first sensor that works. It begins with the first one again when a
// sensor that worked fails, and from time to time while a better one may work again.
func runStarts(ctx context.Context, sensors []StartSensor, events chan<- sensor.Event, out chan<- sensorNews) {
	instead := insteadFirst
again:
	for ctx.Err() == nil {
		var reasons []string
		hopeless := true // no sensor that failed may work again
		for _, s := range sensors {
			limit := time.Duration(math.MaxInt64)
			if !hopeless {
				limit = instead
			}
			began := time.Now()
			err := runStart(ctx, limit, s, strings.Join(reasons, "; "), events, out)
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, errTimeUp) {
				instead = min(2*instead, insteadMost)
				continue again
			}
			if time.Since(began) > insteadFirst {
				instead = insteadFirst // it did work
			}
			if !errors.Is(err, sensor.ErrUnsupported) {
				hopeless = false
			}
			reasons = append(reasons, fmt.Sprintf("%s: %v", s.Source, err))
		}
		if len(reasons) == 0 {
			reasons = []string{"no start sensor is configured"}
		}
		send(ctx, out, sensorNews{source: task.SourceDevice, reason: strings.Join(reasons, "; ")})
		if hopeless {
			return
		}
		pause(ctx, sensorRetry)
	}
}

// runStart runs one sensor until it fails or the limit is over. It announces the sensor once
// the time is over in which a sensor reports that it cannot work.
func runStart(ctx context.Context, limit time.Duration, s StartSensor, reason string, events chan<- sensor.Event, out chan<- sensorNews) error {
	opened, err := s.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeUp)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- opened.Run(ctx, events) }()
	select {
	case err := <-failed:
		return err
	case <-time.After(sensorSettle):
	}
	send(ctx, out, sensorNews{source: s.Source, sensor: opened, reason: reason})
	err = <-failed
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return errors.New("it ended by itself")
	}
	return err
}

// work runs jobs in their order, outside the loop: they read files and attach probes, and a
// tenant decides how many there are. Calls that may hang are made through sensor.Calls.
func work(ctx context.Context, jobs <-chan func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-jobs:
			job(ctx)
		}
	}
}

func send[T any](ctx context.Context, ch chan<- T, v T) {
	select {
	case ch <- v:
	case <-ctx.Done():
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
