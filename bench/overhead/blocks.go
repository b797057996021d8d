package overhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// meetLimit is how long an exporter may take to follow the program.
const meetLimit = 20 * time.Second

// plan says how the time of a container is divided.
type plan struct {
	blocks int // not watched and watched in turn
	length time.Duration
	settle time.Duration // how long a program has been followed when a block begins
}

// block is a time during which a program was watched or was not.
type block struct {
	phase      int // of the program
	watched    bool
	tasks      int     // that the exporter had seen by its end
	began, end float64 // seconds of CLOCK_MONOTONIC
}

// watch is an exporter that watches the program.
type watch struct {
	tasks func() int // how many it has seen
	stop  func()     // returns when all of it is gone
}

// starter starts a watch, and returns when it is in effect.
type starter func(ctx context.Context) (watch, error)

// watchWith starts an exporter for one container of a rig, and returns when it follows
// the program. That its launches are followed shows in the first busy interval that is
// over.
func watchWith(ctx context.Context, r *rig.Rig, id, release string) (watch, error) {
	keep := func(c container.Container) bool { return c.ID == id }
	e, err := exporter.New(exporter.Options{Device: r.GPU.Device, MaxEnded: 5000, Keep: keep})
	if err != nil {
		return watch{}, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(running) }()
	w := watch{
		tasks: func() int { s := e.Snapshot(); return len(s.Ended) + len(s.Tasks) },
		stop:  func() { cancel(); <-ended },
	}
	meeting, over := context.WithTimeout(running, meetLimit)
	defer over()
	for s := range e.Watch(meeting) {
		if follows(s, release) {
			return w, nil
		}
	}
	w.stop()
	return watch{}, errors.Join(fmt.Errorf("the exporter does not follow the program within %v: does laxity check find that uprobes can be had?", meetLimit), ctx.Err())
}

func follows(s *task.Snapshot, release string) bool {
	if s.Health.Sensor != task.SourceUprobe {
		return false // its probes are not there yet
	}
	if release == string(task.ReleaseBusy) {
		return len(s.Ended) > 0
	}
	return len(s.Tasks) > 0
}

// measure has the program go through its phases, ends it, and returns a row for each
// block and kind of step.
func (s subject) measure(ctx context.Context, p plan, start starter) ([]bench.Row, error) {
	defer s.Remove() //nolint:errcheck // the runner removes it again
	var blocks []block
	for phase := range phases(s.release) {
		if err := s.Signal(ctx, "USR1"); err != nil {
			return nil, err
		}
		found, err := p.carryOut(ctx, phase, start)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, found...)
	}
	taken, err := s.finish(ctx)
	if err != nil {
		return nil, err
	}
	return rowsOf(s.release, blocks, taken)
}

// carryOut lets the blocks pass, every other one watched.
func (p plan) carryOut(ctx context.Context, phase int, start starter) (blocks []block, err error) {
	for i := range p.blocks {
		b := block{phase: phase, watched: i%2 == 1}
		if b.watched {
			b.tasks, err = b.passWatched(ctx, p, start)
		} else {
			err = b.pass(ctx, p.length)
		}
		if err != nil {
			return blocks, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (b *block) passWatched(ctx context.Context, p plan, start starter) (tasks int, err error) {
	w, err := start(ctx)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	if err := bench.Pass(ctx, p.settle); err != nil {
		return 0, err
	}
	err = b.pass(ctx, p.length)
	return w.tasks(), err
}

func (b *block) pass(ctx context.Context, length time.Duration) error {
	b.began = monotonic()
	err := bench.Pass(ctx, length)
	b.end = monotonic()
	return err
}

// monotonic is the clock that the program reads too, seconds.
func monotonic() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has it
	return float64(now.Nano()) / 1e9
}
