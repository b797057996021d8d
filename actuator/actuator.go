package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/api"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/intake"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/statefolder"
)

// Actuator is made by New and does nothing before Run.
type Actuator struct {
	o         Options
	log       *slog.Logger
	journal   *journal.Journal
	inbox     *inbox.Inbox
	intake    *intake.Intake
	decisions *decisionlog.Log
	metrics   *collector.Metrics
	watch     *watch.Watch
	folders   *folders

	mechanisms mechanism.Mechanisms
	arbiter    *arbiter.Arbiter

	page *page.Page
	gate *access.Gate
	stop sync.Once
}

// New opens the files in the state folder. From then on alerts can be received; they take effect
// once Run runs.
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

// openFiles opens the files of the state folder. A damaged file is put aside and reported.
func (a *Actuator) openFiles() (err error) {
	o := a.o
	if a.journal, err = journal.Open(o.StateDir); err != nil {
		return err
	}
	if err := a.journal.Trouble(); err != nil {
		a.log.Error("the record of holds was damaged, or cannot be written; while it cannot, no container is paused", "err", err)
	}
	var damaged error
	if a.inbox, damaged, err = inbox.Open(filepath.Join(o.StateDir, "inbox.db"), inbox.Bounds{Messages: o.InboxSize, Bytes: o.InboxBytes}); err != nil {
		return err
	}
	if damaged != nil {
		a.log.Error("waiting notifications are lost; Alertmanager repeats the alerts that still fire", "err", damaged)
	}
	if a.decisions, err = decisionlog.Open(decisionlog.Options{Path: filepath.Join(o.StateDir, "decisions.jsonl"), Logger: o.Logger}); err != nil {
		return errors.Join(err, a.inbox.Close())
	}
	return nil
}

// openParts makes the mechanisms, the intake, the arbiter and the page.
func (a *Actuator) openParts() (err error) {
	o := a.o
	folder, err := statefolder.Of(o.StateDir)
	if err != nil {
		return err
	}
	a.folders = &folders{state: o.StateDir, channels: channels.Folder(o.RunDir, folder), log: a.log}
	gpuMemory := ledger.New(ledger.Options{Now: o.Now, Alive: o.ThreadAlive})
	if a.mechanisms, err = o.Mechanisms.Open(mechanism.Surroundings{
		StateDir: o.StateDir, State: folder, ChannelsDir: a.folders.channels, Engine: o.Engine, DryRun: o.DryRun,
		Journal: a.journal, Decider: gpuMemory, MaxWait: arbiter.MaxWait(o.Config), Logger: a.log,
	}); err != nil {
		return err
	}
	a.intake = &intake.Intake{Inbox: a.inbox, Node: a.node, Now: o.Now}
	if o.Peers != nil { // alerts about other nodes are passed on
		if a.intake.Forward, err = forward.New(forward.Options{
			Directory: o.Peers, DryRun: o.DryRun, Decide: func(d decision.Decision) { a.decisions.Add(d) }, Logger: a.log, Now: o.Now,
		}); err != nil {
			return err
		}
	}
	a.watch = watch.New(watch.Options{Mode: o.Guardian, Command: o.GuardianCommand, StateDir: o.StateDir, Off: o.DryRun, Logger: a.log})
	m := a.mechanisms
	a.arbiter = arbiter.New(arbiter.Options{
		Core: core.Options{
			Node: o.Node, Config: o.Config, Allow: o.Allow, DryRun: o.DryRun, NoChannels: o.Mechanisms.NoChannels,
			Instances: o.Mechanisms.Instances,
			AsOne:     o.Mechanisms.SeveralGPUs == config.SeveralAsOne,
			LimitsOff: o.Mechanisms.MemoryGuard == config.MemoryOff, MaxSnapshotAge: o.MaxSnapshotAge, HoldLease: o.HoldLease,
		},
		StateDir: o.StateDir, Source: o.Source, Enforcer: m.Enforcer, Journal: a.journal, Channels: m.Channels, Swapper: m.Swapper, MemoryGuard: m.MemoryGuard,
		Ledger: gpuMemory, Guardian: a.watch, Leader: arbiter.NewLeader(o.LockDir, m.Enforcer), Inbox: a.inbox,
		Decisions: a.decisions, Metrics: a.metrics, Complete: a.complete, StartOf: o.StartOf, Now: o.Now, Tick: o.Tick, Logger: a.log,
		Observe: func(s *task.Snapshot) { a.page.Observe(s) }, Changed: func() { a.page.Changed() },
	})
	may := o.Access
	may.Logger, may.Now, may.Refuse = a.log, o.Now, api.Refuse(a.answered)
	a.gate = access.New(may)
	a.page, err = page.New(page.Options{Facts: a.pageFacts, Gate: a.gate, Actor: a, Ranking: o.Ranking, Logger: a.log, Now: o.Now})
	return err
}

// A starting actuator waits for a guardian that still releases the holds of a former actuator:
// startWait in all. It says so after startQuiet; who only looks at the lock is gone by then.
const (
	startWait  = 15 * time.Second
	startQuiet = 100 * time.Millisecond
)

// Run acts until ctx ends, then releases everything that it paused. It returns nil after a clean
// end. An error says that it could not begin, or that containers are still on record: the guardian
// then releases these.
func (a *Actuator) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	lock, err := a.lock(ctx)
	if err != nil {
		return unlessEnding(ctx, err)
	}
	defer lock.Unlock()
	// Before anything slow, above all the guardian's start: a former actuator may have died together
	// with its guardian.
	undo.Former(ctx, undo.Options{StateDir: a.o.StateDir, RunDir: a.o.RunDir, Channels: a.o.Mechanisms.Channels, Logger: a.log})
	if !a.o.DryRun {
		if err := undo.ChangeEngine(ctx, a.o.StateDir, a.o.Engine, a.journal, a.log); err != nil {
			a.log.Warn("cannot record which container engine is used; give it to the guardian and to laxity off by flags", "err", err)
		}
	}
	a.o.Mechanisms.LogHeld(ctx, a.o.Config, a.o.DryRun, a.log)
	for _, l := range a.o.Lacks {
		a.log.Warn("the actuator's sandbox denies it something that it needs", "what", l.What, "means", l.Means, "fix", l.Fix)
	}
	if err := a.watch.Start(ctx); err != nil {
		return unlessEnding(ctx, err)
	}
	var remembering sync.WaitGroup
	defer remembering.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	remembering.Go(func() { a.page.Run(ctx) })
	if g := a.mechanisms.MemoryGuard; g != nil {
		if err := g.Open(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.Close()) }()
	}
	return a.arbiter.Run(ctx)
}

// unlessEnding returns nil for the error of a beginning that ctx ended: that is a clean end.
func unlessEnding(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Close closes the files if Run is not called; Run closes them itself. Close is idempotent.
func (a *Actuator) Close() (err error) {
	a.stop.Do(func() {
		err = errors.Join(a.inbox.Close(), a.decisions.Close(), a.mechanisms.Close())
	})
	return err
}

// Handler serves the API, the metrics and the live page. It accepts alerts before Run, and has
// nothing to show until then.
func (a *Actuator) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics)
	if f := a.intake.Forward; f != nil {
		registry.MustRegister(f)
	}
	return api.Router(api.Options{
		Gate: a.gate, Actuator: a, State: func() any { return a.State() }, Decisions: a.decisions,
		Metrics: registry, Page: a.page.Router(), Mount: a.o.Mount, Answered: a.answered, Logger: a.log,
	})
}

// answered counts the answers to notifications.
func (a *Actuator) answered(code int) { a.metrics.Webhooks.WithLabelValues(strconv.Itoa(code)).Inc() }

// Receive accepts a notification: see package intake.
func (a *Actuator) Receive(ctx context.Context, m webhook.Message) error {
	return a.intake.Receive(ctx, m)
}

// node is this node's name; empty while it is not known.
func (a *Actuator) node() string { return cmp.Or(a.o.Node, a.State().Node) }

// Admission answers whether a container that does not run yet could keep a deadline or share. It
// asks the actuator of another node about that node, if it is known.
func (a *Actuator) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	if q.Node == "" || q.Node == a.node() {
		return a.arbiter.Admission(ctx, q)
	}
	return forward.Ask(ctx, a.o.Peers, q)
}

// Healthy returns an error if it hangs and has to be restarted.
func (a *Actuator) Healthy() error { return a.arbiter.Healthy() }

// Ready returns why it cannot act; nil if it can.
func (a *Actuator) Ready() error {
	s := a.State()
	if s.Ready {
		return nil
	}
	return errors.New(cmp.Or(s.Trouble, s.Standby, "no guardian watches, or it has only just started"))
}

// Decisions returns the log of what was decided and why.
func (a *Actuator) Decisions() *decisionlog.Log { return a.decisions }

// State returns what the actuator knows and does now. It is never nil, and read-only.
func (a *Actuator) State() *state.State { return a.arbiter.State() }

// Pause carries out the request of the person named who, as Release and Change do: see
// package arbiter.
func (a *Actuator) Pause(ctx context.Context, who, container string) error {
	return a.arbiter.Pause(ctx, who, container)
}

// Release releases a container: see Pause.
func (a *Actuator) Release(ctx context.Context, who, container string) error {
	return a.arbiter.Release(ctx, who, container)
}

// Change changes settings of a running container: see Pause.
func (a *Actuator) Change(ctx context.Context, who, container string, change task.Change) error {
	return a.arbiter.Change(ctx, who, container, change)
}

// lock takes the lock of the state folder. It says at once what it waits for.
func (a *Actuator) lock(ctx context.Context) (*journal.Lock, error) {
	path := journal.ActuatorLock(a.o.StateDir)
	lock, err := journal.LockWithin(ctx, path, startQuiet)
	if !errors.Is(err, journal.ErrLocked) {
		return lock, err
	}
	text := fmt.Sprintf("another actuator holds %s, or its guardian still releases containers; waiting up to %v", path, startWait)
	a.log.Warn(text)
	a.decisions.Add(decision.Decision{Time: a.o.Now(), Kind: decision.Service, Result: decision.Waiting, Reason: text})
	lock, err = journal.LockWithin(ctx, path, startWait-startQuiet)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("another actuator uses %s, or its guardian (laxity-actuator guardian, laxity off) still releases containers, by the container engine in %s: stop it, or choose another folder with --state-dir: %w",
			a.o.StateDir, undo.EngineFile(a.o.StateDir), err)
	}
	return lock, err
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

// complete adds to the state what the arbiter does not know. The arbiter's goroutine calls it.
func (a *Actuator) complete(s *state.State) {
	s.PutAside = a.folders.putAside(s.Time)
	if m := a.o.Mechanisms; s.Hold == config.HoldChannels {
		s.ChannelsProven, s.SeveralGPUs = m.ChannelsProven, m.SeveralGPUs
	}
	for _, l := range slices.Concat(a.o.Lacks, a.watch.Lacks()) {
		s.Lacks = append(s.Lacks, state.Lack(l))
	}
	if facts := a.arbiter.Snapshot(); facts != nil {
		s.NameGPUs(facts)
	}
}

func (a *Actuator) present() collector.Present {
	p := collector.PresentOf(a.State())
	p.Inbox, p.StrayStops = a.inbox.Len(), a.folders.strayStops()
	return p
}

// pageFacts converts the published state for the page.
func (a *Actuator) pageFacts() view.Facts {
	_, changes := a.o.Source.(source.Changer)
	decisions, _ := a.decisions.Last(0)
	return view.FactsOf(a.State(), a.arbiter.Snapshot(), decisions, changes)
}
