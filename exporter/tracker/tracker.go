// Package tracker turns the reports of the device, the container engine and the sensors into
// task.Snapshots.
//
// The rules of a task's life are in tracker/core, which is pure; tracker/store keeps them
// over a restart. This package is the loop around both: one goroutine owns the core. Other
// goroutines wait for the driver, the engine and the disk, so that none of these can block it
// when it hangs. It imports the standard library, exporter/task, exporter/tracker/core, internal/bounded,
// exporter/device, exporter/container and exporter/sensor. The last three are interfaces; it
// knows no adapter.
package tracker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// ErrUnknownContainer means that no running container has this name or id.
var ErrUnknownContainer = errors.New("no such running container")

// ErrNotChanged means that a change was given up before it was made.
var ErrNotChanged = errors.New("nothing was changed")

// Processes reads the kernel's facts about processes.
type Processes interface {
	// OfPID returns the id of the container of a process; ok is false for a
	// process of the host. The error wraps fs.ErrNotExist when it is gone.
	OfPID(pid int) (id string, ok bool, err error)
	Stat(pid int) (Stat, error)
}

// StartStep is the unit of the kernel's start times of processes: 100 a second on every
// architecture that NVIDIA supports.
const StartStep = 10 * time.Millisecond

// Stat has the kernel's facts about one process.
type Stat struct {
	State   byte          // a letter: T is stopped by a signal
	Exiting bool          // its first thread ends or has ended
	Started time.Duration // since boot, rounded down to whole StartSteps
	Born    time.Time     // the same by the clock
	// MPSServer: by its name it is an MPS server. A program that takes this name hides no more than
	// its own tasks.
	MPSServer bool
}

// Swaps knows which processes are, or may be, swapped: off the GPU without having ended.
type Swaps interface {
	// Swapped returns the ids of their containers by PID. For what it cannot read it returns
	// an error, together with the rest.
	Swapped() (map[int]string, error)
}

// Holds knows which processes are held: their channels are off the GPU, and their host side
// runs on.
type Holds interface {
	// Follow calls report with all of them, at once and after each change, until ctx ends.
	// off has the start of each, since boot, by PID; at is when it was seen. Follow calls
	// warn with what does not work, and goes on trying.
	Follow(ctx context.Context, report func(off map[int]time.Duration, at time.Time), warn func(error))
}

// Store keeps the core's state over a restart.
type Store interface {
	Load() (core.State, error)
	// Save returns when the changes are durable, all of them or none.
	Save(c core.Changes, alive time.Time) error
}

// Observer gets what happens once. The tracker's goroutine calls it: it MUST return at once.
type Observer interface {
	// Began: a task began on a GPU. A task on several GPUs is reported for each.
	Began(t task.Task, gpu string)
	// Ended: a task ended or was lost.
	Ended(t task.Task)
	// Polled: a reading of the device took so long.
	Polled(took time.Duration, err error)
}

// StartSensor is one way to learn starts.
type StartSensor struct {
	Source task.Source // what it is called in metrics
	// Open makes the sensor ready, each time before it runs. The error wraps
	// sensor.ErrUnsupported where it cannot work.
	Open func() (sensor.Starts, error)
}

// Options are what a Tracker is made of. Device, Containers, Exits and Processes are needed;
// the rest is optional.
type Options struct {
	Node   string
	Device device.Device // must not hang: a real one needs device.WithTimeout
	// Cards reads the cards' condition; nil: nobody does. As Device, it must not hang.
	Cards      device.Cards
	Containers container.Source
	Exits      sensor.Exits
	Processes  Processes
	// Starts are tried in this order. Where none works, the tracker polls the device's list.
	Starts    []StartSensor
	Store     Store // nil: nothing survives a restart
	Swaps     Swaps // nil: nothing is swapped
	Holds     Holds // nil: nothing is held
	Observers []Observer
	Logger    *slog.Logger

	// FastPoll is the time between readings of the device while a task may start or end and
	// only the device would show it. SlowPoll is the time while nothing happens. Defaults 20
	// ms and 1 s.
	FastPoll, SlowPoll time.Duration
	// CardEvery is the time between readings of the cards' condition. Default 1 s.
	CardEvery time.Duration
	// MeasureEvery is the shortest time between two snapshots when only measurements changed
	// (memory, utilisation). Default 100 ms.
	MeasureEvery time.Duration
	// BusyGap and MaxEnded are those of core.Options.
	BusyGap  time.Duration
	MaxEnded int
	// Limits bound what containers may claim.
	Limits task.Limits
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FastPoll <= 0 {
		o.FastPoll = 20 * time.Millisecond
	}
	if o.SlowPoll <= 0 {
		o.SlowPoll = time.Second
	}
	o.SlowPoll = max(o.SlowPoll, o.FastPoll)
	if o.CardEvery <= 0 {
		o.CardEvery = time.Second
	}
	if o.MeasureEvery <= 0 {
		o.MeasureEvery = 100 * time.Millisecond
	}
}

// Tracker follows the GPU tasks of one node.
type Tracker struct {
	opt     Options
	core    *core.Core
	board   *board
	journal *journal
	asks    chan func()
	ready   chan struct{} // closed once the first snapshot of the node is out
}

// New returns a tracker with an empty snapshot. It starts nothing.
func New(opt Options) (*Tracker, error) {
	opt.setDefaults()
	switch {
	case opt.Device == nil:
		return nil, errors.New("tracker: no device")
	case opt.Containers == nil:
		return nil, errors.New("tracker: no source of containers")
	case opt.Exits == nil || opt.Processes == nil:
		return nil, errors.New("tracker: no way to watch processes")
	}
	m := core.New(core.Options{Node: opt.Node, Run: rand.Text(), BusyGap: opt.BusyGap, MaxEnded: opt.MaxEnded, Limits: opt.Limits})
	return &Tracker{
		opt:     opt,
		core:    m,
		board:   newBoard(m.Snapshot()),
		journal: newJournal(opt.Store, opt.Logger),
		asks:    make(chan func()),
		ready:   make(chan struct{}),
	}, nil
}

// Snapshot returns the latest snapshot; never nil. It costs one atomic load.
func (t *Tracker) Snapshot() *task.Snapshot { return t.board.current.Load() }

// Watch sends the present snapshot and then every new one until ctx ends. A slow
// reader gets the latest and misses those between.
func (t *Tracker) Watch(ctx context.Context) <-chan *task.Snapshot { return t.board.watch(ctx) }

// Ready is closed once device, engine and start sensor have answered or failed.
func (t *Tracker) Ready() <-chan struct{} { return t.ready }

// Change changes the settings of the running container with this name or id (12 digits are
// enough). A deadline holds for its unfinished tasks and the next ones. It returns when the
// change is stored; once it is made, ctx does not end that. The error wraps ErrUnknownContainer if
// there is no such container, and ErrNotChanged if ctx ended before the change was made. With any other
// error the change holds, and could not be stored.
func (t *Tracker) Change(ctx context.Context, ref string, change task.Change) (task.Container, error) {
	c, ok := t.Snapshot().FindContainer(ref)
	if !ok {
		return c, ErrUnknownContainer
	}
	stored := make(chan error, 1)
	ask := func() {
		changed, ok := t.core.Change(c.ID, change, time.Now())
		if !ok {
			stored <- ErrUnknownContainer
			return
		}
		c = changed // read after stored has an answer
		t.journal.put(t.core.TakeChanges(), stored)
	}
	select {
	case t.asks <- ask:
	case <-ctx.Done():
		return c, fmt.Errorf("%w: %w", ErrNotChanged, ctx.Err())
	}
	err := <-stored
	return c, err
}
