// Package arbiter runs the core. One goroutine passes events to it (snapshots, alerts, requests of
// people, the ends of actions) and starts its effects (package core). Calls to the engine, the GPU
// driver and the exporter run in other goroutines, and their answers come back as events. So a call
// that hangs delays no decision. If one does all the same, Healthy tells.
package arbiter

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// Options of an Arbiter. All are required but Channels, Swapper, MemoryGuard and Guardian.
type Options struct {
	// Core without Leases, History, Divides, Swaps and FetchEvery, which New sets.
	Core core.Options
	// StateDir is the folder of the leases and the history of tasks.
	StateDir string

	Source      source.Source
	Enforcer    enforce.Enforcer
	Journal     *journal.Journal
	Channels    Channels        // nil: the time of GPUs is not divided
	Swapper     enforce.Swapper // nil: nothing is swapped
	MemoryGuard MemoryGuard     // nil: allocations are not guarded
	Ledger      *ledger.Ledger
	// Guardian reports whether a guardian watches; nil: none is needed.
	Guardian Guardian
	// Leader is the right to act on the engine; see NewLeader.
	Leader *Leader
	Inbox  *inbox.Inbox

	Decisions *decisionlog.Log
	Metrics   *collector.Metrics
	// Observe gets each new snapshot. Changed is called when the decisions or the facts changed.
	// Both may be nil.
	Observe func(*task.Snapshot)
	Changed func()
	// Complete adds to a state what the arbiter does not know; may be nil.
	Complete func(*state.State)
	// StartOf returns when a process started, in clock ticks since boot.
	StartOf func(pid int) (start uint64, lives bool)

	Now    func() time.Time
	Tick   time.Duration
	Logger *slog.Logger
}

// Guardian keeps a guardian running.
type Guardian interface {
	// Check is called before each step. It MUST NOT block for longer than a file access takes.
	Check(now time.Time)
	// Up reports whether a guardian watches; MayHold, whether containers may be held now.
	Up() bool
	MayHold() bool
}

// Arbiter decides while Run runs. New makes one.
type Arbiter struct {
	o    Options
	log  *slog.Logger
	core *core.Core

	leases    *lease.Book
	history   *estimate.Book
	historyAt time.Time // do not write the history before
	unsaved   bool      // the leases could not be written
	lapsedAt  time.Time // do not write before only because leases ended

	snapshot  atomic.Pointer[task.Snapshot]
	published atomic.Pointer[state.State]
	stepped   atomic.Pointer[time.Time] // when the loop last ended a step; nil: it does not run

	asks     chan ask
	fetched  chan fetched
	finished chan core.Result
	divided  chan divided
	wake     *time.Timer
}

// New reads the files of a former run. State is not ready before Run, but has the settings.
func New(o Options) *Arbiter {
	a := &Arbiter{
		o: o, log: o.Logger, asks: make(chan ask), fetched: make(chan fetched, 1),
		finished: make(chan core.Result, 64), divided: make(chan divided, 16), wake: time.NewTimer(time.Hour),
	}
	a.wake.Stop()
	a.leases = readFile(a, a.leasesPath(), "starting without the leases of before", lease.New,
		func(raw []byte) (*lease.Book, error) { return lease.Decode(raw, o.Now()) })
	a.history = readFile(a, a.historyPath(), "the history of tasks begins anew", estimate.New, estimate.Decode)
	o.Core.Leases, o.Core.History = a.leases, a.history
	o.Core.Divides, o.Core.Swaps, o.Core.FetchEvery = o.Channels != nil, o.Swapper != nil, o.Tick/2
	a.o = o
	before := core.New(o.Core, o.Now())
	before.SetAround(o.Now(), a.around())
	a.published.Store(before.State())
	return a
}

func (a *Arbiter) leasesPath() string  { return filepath.Join(a.o.StateDir, "leases.json") }
func (a *Arbiter) historyPath() string { return filepath.Join(a.o.StateDir, "history.json") }

// State is what the actuator knows and does now. It is never nil, and read-only.
func (a *Arbiter) State() *state.State { return a.published.Load() }

// Snapshot returns the present snapshot, with all times by our own clock; nil before the first.
func (a *Arbiter) Snapshot() *task.Snapshot { return a.snapshot.Load() }

// hangAfter is how long the loop, which steps with each Options.Tick, may take for one step. It waits
// for nothing but the disk.
const hangAfter = 10 * time.Second

// Healthy returns an error while the loop hangs. Nothing else than a restart helps then.
func (a *Arbiter) Healthy() error {
	last := a.stepped.Load()
	if last == nil {
		return nil
	}
	if d := a.o.Now().Sub(*last); d > hangAfter {
		return fmt.Errorf("the actuator has decided nothing for %v, because a call hangs (restart it; /debug/pprof/goroutine?debug=2 shows the call)", d.Round(time.Second))
	}
	return nil
}

func (a *Arbiter) markStep() {
	now := a.o.Now()
	a.stepped.Store(&now)
}

// Run decides until ctx ends, then releases everything. Its error says what is still on record; a
// guardian continues to release that.
func (a *Arbiter) Run(ctx context.Context) error {
	a.core = core.New(a.o.Core, a.o.Now())
	a.core.SetAround(a.o.Now(), a.around())
	a.readSwaps()
	a.o.Leader.begin(ctx)
	a.reportLeader()
	defer a.o.Leader.release()
	a.adopt(ctx)
	a.loop(ctx)
	return a.releaseAndClose()
}

func (a *Arbiter) loop(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(a.o.Tick)
	defer tick.Stop()
	stream := watch(ctx, a.o.Source)
	defer a.stepped.Store(nil) // the release of everything has time limits of its own
	for {
		a.markStep()
		select {
		case <-ctx.Done():
			return
		case s := <-stream:
			a.take(s)
		case f := <-a.fetched:
			a.takeFetched(ctx, f)
		case r := <-a.finished:
			a.finish(r)
		case d := <-a.divided:
			a.core.Divided(a.o.Now(), d.gpu, d.results)
		case r := <-a.asks:
			err := r.do()
			a.carryOut(ctx) // on record before the answer
			r.done <- err
		case <-a.o.Inbox.Ready():
			a.core.Refetch() // the snapshot must be younger than the alert
		case won := <-a.o.Leader.won:
			a.o.Leader.take(won)
			a.reportLeader()
		case <-a.o.Ledger.Changed():
		case <-a.wake.C:
		case <-tick.C:
		}
		a.carryOut(ctx)
		a.step(ctx)
	}
}

// step lets the core decide on the present facts.
func (a *Arbiter) step(ctx context.Context) {
	now := a.o.Now()
	if a.o.Guardian != nil {
		a.o.Guardian.Check(now)
	}
	a.o.Leader.tryAgain(ctx, now)
	a.core.Step(now, a.around())
	a.carryOut(ctx)
	_ = a.saveLeases(false)
	a.saveHistory(false)
	a.publish()
}

// around reads what is true beside the facts.
func (a *Arbiter) around() core.Around {
	r := core.Around{MayHold: true, Inbox: a.o.Inbox.Len(), EngineCalls: a.o.Enforcer.Calls()}
	if g := a.o.Guardian; g != nil {
		r.GuardianUp, r.MayHold = g.Up(), g.MayHold()
	}
	if g := a.o.MemoryGuard; g != nil {
		r.Guard = &core.Guard{}
		if err := g.Why(); err != nil {
			r.Guard.Why = err.Error()
		} else {
			r.Guard.Failures, r.Guard.Waits = g.Failures(), g.Waits()
		}
	}
	if r.Guard != nil && r.Guard.Why == "" || a.o.Swapper != nil {
		r.Ledger = core.Ledger{Parts: a.o.Ledger.Parts(), Waiting: a.o.Ledger.Waiting(), Evict: a.o.Ledger.Evict()}
	}
	return r
}

// publish makes the present state readable by others.
func (a *Arbiter) publish() {
	s := a.core.State()
	if a.o.Complete != nil {
		a.o.Complete(s)
	}
	a.published.Store(s)
}

func (a *Arbiter) reportLeader() {
	l := a.o.Leader
	if l.alone() {
		return
	}
	a.core.Lead(a.o.Now(), l.leads(), l.why)
}
