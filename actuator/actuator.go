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
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/guardian/strays"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

// Actuator is made by New and does nothing before Run.
type Actuator struct {
	o         Options
	log       *slog.Logger
	journal   *journal.Journal
	enforcer  enforce.Enforcer
	inbox     *inbox.Inbox
	book      *state.Book
	decisions *decision.Log
	metrics   *collector.Metrics
	guard     *watch
	forward   *forward.Forwarder // nil without Options.Peers

	ledger      *ledger.Ledger
	channels    Channels        // nil: none
	memoryGuard MemoryGuard     // nil: none
	swapper     enforce.Swapper // nil: none

	config    atomic.Pointer[Config]
	published atomic.Pointer[State]
	snapshot  atomic.Pointer[task.Snapshot]
	strays    atomic.Uint64 // processes that the guardian has continued, as last read

	page    *page.Page
	access  *access.Guard
	reloads chan reload
	asks    chan ask
	stop    sync.Once
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
	a := &Actuator{o: o, log: o.Logger, metrics: o.Metrics, reloads: make(chan reload), asks: make(chan ask)}
	a.config.Store(&o.Config)
	if a.journal, err = journal.Open(o.StateDir); err != nil {
		return nil, err
	}
	if err := a.journal.Trouble(); err != nil {
		a.log.Error("the record of holds was damaged, or cannot be written; then nobody is paused", "err", err)
	}
	if a.enforcer, err = o.NewEnforcer(a.journal); err != nil {
		return nil, err
	}
	if o.DryRun {
		a.enforcer = &enforce.Dry{Real: a.enforcer}
	}
	if a.channels, err = o.NewChannels(); err != nil {
		return nil, err
	}
	var damaged error
	if a.inbox, damaged, err = inbox.Open(filepath.Join(o.StateDir, "inbox.db"), inbox.Bounds{Messages: o.InboxSize, Bytes: o.InboxBytes}); err != nil {
		return nil, err
	}
	if damaged != nil {
		a.log.Error("notifications that waited are lost; alerts that still fire are sent again", "err", damaged)
	}
	if a.book, err = state.OpenBook(filepath.Join(o.StateDir, "leases.json"), o.Now()); err != nil {
		a.log.Error("starting without the leases of before", "err", err)
	}
	if a.decisions, err = decision.Open(decision.Options{Path: filepath.Join(o.StateDir, "decisions.jsonl")}); err != nil {
		return nil, errors.Join(err, a.inbox.Close())
	}
	if err := a.openForward(); err != nil {
		return nil, errors.Join(err, a.inbox.Close(), a.decisions.Close())
	}
	if err := a.openMemory(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.openAccess()
	if err := a.openPage(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.guard = newWatch(o, a.log)
	before := emptyState()
	before.Node, before.DryRun = o.Node, o.DryRun
	a.published.Store(before)
	a.metrics.SetPresent(a.present)
	return a, nil
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
	// Before anything that takes its time, the guardian's start above all: a former actuator
	// may have died together with its guardian.
	if n, err := releaseStopped(ctx, a.o.StateDir, false); err != nil || n > 0 {
		a.log.Warn("continued processes that a former actuator left stopped", "processes", n, "err", err)
	}
	warnOfLacks(a.o.Lacks, a.log)
	a.restoreChannels(ctx)
	if err := a.guard.start(ctx); err != nil {
		return err
	}
	defer a.runPage(ctx)()
	if a.memoryGuard != nil {
		if err := a.memoryGuard.Open(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.memoryGuard.Close()) }()
	}
	l := newLoop(a)
	l.rereadSwaps()
	l.tenure.begin(ctx)
	l.tellTenure()
	defer l.tenure.release()
	l.adopt(ctx)
	l.run(ctx)
	return l.letGoAll()
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
func (a *Actuator) Decisions() *decision.Log { return a.decisions }

// State returns what the actuator knows and does at the moment. Never nil; it
// must not be changed.
func (a *Actuator) State() *State { return a.published.Load() }

// Config returns the present configuration.
func (a *Actuator) Config() Config { return *a.config.Load() }

type reload struct {
	config Config
	done   chan struct{}
}

// Reload reads the configuration again. A bad one changes nothing.
func (a *Actuator) Reload(ctx context.Context) error {
	if a.o.Load == nil {
		return api.ErrNothingToReload
	}
	c, err := a.o.Load()
	if err != nil {
		return fmt.Errorf("the old configuration stays: %w", err)
	}
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("the old configuration stays: %w", err)
	}
	r := reload{config: c, done: make(chan struct{})}
	select {
	case a.reloads <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-r.done
	return nil
}

// strayStops is what the guardian has counted; what was read last where that cannot be
// read now, since a counter must not fall.
func (a *Actuator) strayStops() uint64 {
	n, err := strays.Count(a.o.StateDir)
	if err != nil {
		a.log.Debug("the count of stray stops is the last one that could be read", "err", err)
		return a.strays.Load()
	}
	a.strays.Store(n)
	return n
}

func (a *Actuator) present() collector.Present {
	s := a.State()
	p := collector.Present{
		PauseInstead: s.NoChannels != "", Breaker: s.Breaker != "", Standby: s.Standby != "",
		Holds: len(s.Holds), Inbox: a.inbox.Len(), GuardianUp: s.GuardianUp, Ready: s.Ready,
		Arbitrated: map[string]bool{}, PutAside: len(s.PutAside), SnapshotTime: s.SnapshotTime, StrayStops: a.strayStops(),
	}
	for _, g := range s.GPUs {
		p.Arbitrated[g.UUID] = g.Arbitrated
	}
	presentMemory(&p, s)
	return p
}
