package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/api"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

// Actuator is made by New and does nothing before Run.
type Actuator struct {
	o         Options
	log       *slog.Logger
	journal   *journal.Journal
	inbox     *inbox.Inbox
	decisions *decisionlog.Log
	metrics   *collector.Metrics
	watch     *watch.Watch
	forward   *forward.Forwarder // nil without Options.Peers

	memoryGuard arbiter.MemoryGuard // nil: none
	swapper     enforce.Swapper     // nil: none
	arbiter     *arbiter.Arbiter

	strays   atomic.Uint64 // processes that the guardian has continued, as last read
	putAside []string      // as last looked for
	asideAt  time.Time

	page   *page.Page
	access *access.Guard
	stop   sync.Once
}

// New opens the files in the state folder. Alerts can be received from then on;
// they take effect once Run runs.
func New(o Options) (*Actuator, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder (choose another with --state-dir): %w", err)
	}
	a := &Actuator{o: o, log: o.Logger, metrics: o.Metrics}
	if err := a.openFiles(); err != nil {
		return nil, err
	}
	if err := a.openParts(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.metrics.SetPresent(a.present)
	return a, nil
}

// openFiles opens what is kept on disk. A damaged file is put aside and told.
func (a *Actuator) openFiles() (err error) {
	o := a.o
	if a.journal, err = journal.Open(o.StateDir); err != nil {
		return err
	}
	if err := a.journal.Trouble(); err != nil {
		a.log.Error("the record of holds was damaged, or cannot be written; then nobody is paused", "err", err)
	}
	var damaged error
	if a.inbox, damaged, err = inbox.Open(filepath.Join(o.StateDir, "inbox.db"), inbox.Bounds{Messages: o.InboxSize, Bytes: o.InboxBytes}); err != nil {
		return err
	}
	if damaged != nil {
		a.log.Error("notifications that waited are lost; alerts that still fire are sent again", "err", damaged)
	}
	if a.decisions, err = decisionlog.Open(decisionlog.Options{Path: filepath.Join(o.StateDir, "decisions.jsonl")}); err != nil {
		return errors.Join(err, a.inbox.Close())
	}
	return nil
}

// openParts makes the parts that the arbiter acts through, and those who look at it.
func (a *Actuator) openParts() error {
	o := a.o
	enforcer, err := o.NewEnforcer(a.journal)
	if err != nil {
		return err
	}
	if o.DryRun {
		enforcer = &enforce.Dry{Real: enforcer}
	}
	divider, err := o.NewChannels()
	if err != nil {
		return err
	}
	gpuMemory := ledger.New(ledger.Options{Now: o.Now, Alive: o.ThreadAlive})
	if a.memoryGuard, err = o.newMemoryGuard(gpuMemory); err != nil {
		return err
	}
	if a.swapper, err = o.newSwapper(); err != nil {
		return err
	}
	if err := a.openForward(); err != nil {
		return err
	}
	a.watch = watch.New(watch.Options{Mode: o.Guardian, Command: o.GuardianCommand, StateDir: o.StateDir, Off: o.DryRun, Logger: a.log})
	options := arbiter.Options{
		Core: core.Options{
			Node: o.Node, Config: o.Config, Allow: o.Allow, DryRun: o.DryRun, NoChannels: o.NoChannels, LimitsOff: o.MemoryGuard == config.MemoryOff,
			MaxSnapshotAge: o.MaxSnapshotAge, HoldLease: o.HoldLease,
		},
		StateDir: o.StateDir, Source: o.Source, Enforcer: enforcer, Journal: a.journal, Channels: divider, Swapper: a.swapper, MemoryGuard: a.memoryGuard,
		Ledger: gpuMemory, Guardian: a.watch, Leader: arbiter.NewLeader(o.LockDir, enforcer), Inbox: a.inbox,
		Decisions: a.decisions, Metrics: a.metrics, Complete: a.complete, StartOf: o.StartOf, Now: o.Now, Tick: o.Tick, Logger: a.log,
		Observe: func(s *task.Snapshot) { a.page.Observe(s) }, Changed: func() { a.page.Changed() },
	}
	a.arbiter = arbiter.New(options)
	a.openAccess()
	return a.openPage()
}

// startWait is how long a starting actuator waits for a guardian that still
// lets go of what a former one left.
const startWait = 15 * time.Second

// Run acts until ctx ends, then lets everything go that it paused. It returns
// nil after a clean end; an error if it could not begin, or if containers are
// still on record, which the guardian then lets go.
func (a *Actuator) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	lock, err := journal.LockWithin(ctx, journal.ActuatorLock(a.o.StateDir), startWait)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("another actuator uses %s, or its guardian still lets containers go (is Docker running?): %w", a.o.StateDir, err)
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	// Before anything that takes its time, the guardian's start above all: a former actuator may
	// have died together with its guardian.
	undo.Former(ctx, undo.Options{StateDir: a.o.StateDir, RunDir: a.o.RunDir, Channels: a.o.Channels, Logger: a.log})
	for _, l := range a.o.Lacks {
		a.log.Warn("the actuator's sandbox keeps from it what it needs", "what", l.What, "means", l.Means, "fix", l.Fix)
	}
	if err := a.watch.Start(ctx); err != nil {
		return err
	}
	defer a.runPage(ctx)()
	if a.memoryGuard != nil {
		if err := a.memoryGuard.Open(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.memoryGuard.Close()) }()
	}
	return a.arbiter.Run(ctx)
}

// Close closes the files, for when Run was never called; Run does it at its end.
// Again, it does nothing.
func (a *Actuator) Close() (err error) {
	a.stop.Do(func() {
		err = errors.Join(a.inbox.Close(), a.decisions.Close())
		if s, ok := a.swapper.(io.Closer); ok { // its helper is a process
			err = errors.Join(err, s.Close())
		}
	})
	return err
}

// Receive keeps a notification durably, and passes on what is about other nodes. When
// it returns nil, the message takes effect sooner or later, whatever happens to this
// process. A repeat of what was taken before an error changes nothing.
func (a *Actuator) Receive(ctx context.Context, m webhook.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	own, others, err := a.split(ctx, m)
	if err != nil {
		return err
	}
	if len(own.Alerts) > 0 || own.TruncatedAlerts > 0 || len(others) == 0 {
		err = a.keep(own) // first: what happens here waits for no other node
	}
	return errors.Join(err, a.pass(ctx, m, others))
}

func (a *Actuator) keep(m webhook.Message) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = a.inbox.Put(payload, a.o.Now())
	if errors.Is(err, inbox.ErrFull) {
		return fmt.Errorf("%w (%d messages, %d bytes)", webhook.ErrFull, a.o.InboxSize, a.o.InboxBytes)
	}
	return err
}

// Decisions returns the log of what was decided and why.
func (a *Actuator) Decisions() *decisionlog.Log { return a.decisions }

// State returns what the actuator knows and does at the moment. Never nil; it
// must not be changed.
func (a *Actuator) State() *state.State { return a.arbiter.State() }

// Pause does what a person, who, asks for, as Release and SetDeadline do: see package arbiter.
func (a *Actuator) Pause(ctx context.Context, who, container string) error {
	return a.arbiter.Pause(ctx, who, container)
}

// Release lets a container go: see Pause.
func (a *Actuator) Release(ctx context.Context, who, container string) error {
	return a.arbiter.Release(ctx, who, container)
}

// SetDeadline changes a container's relative deadline: see Pause.
func (a *Actuator) SetDeadline(ctx context.Context, who, container string, relative time.Duration) error {
	return a.arbiter.SetDeadline(ctx, who, container, relative)
}

// Reload reads the configuration again. A bad one changes nothing.
func (a *Actuator) Reload(ctx context.Context) error {
	if a.o.Load == nil {
		return api.ErrNothingToReload
	}
	c, err := a.o.Load()
	if err == nil {
		c = c.WithDefaults()
		err = c.Validate()
	}
	if err != nil {
		return fmt.Errorf("the old configuration stays: %w", err)
	}
	return a.arbiter.Configure(ctx, c)
}
