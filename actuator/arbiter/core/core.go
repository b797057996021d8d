// Package core decides: facts, alerts, what persons ask for and how actions came out go in as
// events, and what is to be done comes out as effects. Everything that the actuator knows is
// here: the present facts, leases, holds, standings on GPUs, memory, swaps, the breaker.
//
// An event is a method that takes the present time; after events, Step decides what follows
// from all that is true. Effects takes out what is to be done, in the order in which it has to be. Package
// arbiter carries it out and brings the answers back.
//
// Pure: it imports the standard library, pure packages and actuator/enforce only, of which it takes types. It
// reads neither clock nor disk and starts no goroutine: the same events make the same effects.
package core

import (
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

// Options of a Core. Config must be valid.
type Options struct {
	// Node is this node's name as alerts say it; the snapshot's if empty.
	Node   string
	Config config.Config
	// Leases and History are what was kept of a former run. The core changes them; who gave
	// them keeps them on disk.
	Leases  *lease.Book
	History *estimate.Book
	// Allow restricts what is ever acted on to containers with one of these labels.
	Allow Allow
	// DryRun: nothing is carried out, and the same is decided.
	DryRun bool
	// Divides: the time of GPUs can be divided by slices and channels here. NoChannels says why
	// not, for people; empty: nobody wanted it.
	Divides    bool
	NoChannels string
	// Swaps: containers can be swapped off their GPUs here.
	Swaps bool
	// LimitsOff: limits of GPU memory are not kept (--memory-guard=off).
	LimitsOff bool
	// MaxSnapshotAge is how old facts may be to act on, HoldLease how long a hold lasts after
	// its reason was last seen, FetchEvery the shortest time between two questions for facts.
	MaxSnapshotAge, HoldLease, FetchEvery time.Duration
}

// Core is used by one goroutine.
type Core struct {
	o      Options
	config config.Config
	now    time.Time // of the event that is being handled
	out    Effects
	around Around

	facts      observed
	leases     *lease.Book
	history    *estimate.Book
	holds      holds
	turns      turns
	breaker    breaker
	leadership leadership
	memory     *memory
	division   *division // nil: nothing is divided
	allowed    map[string]bool
	// lastReason is what was last decided about something: it is decided anew only when it
	// changes.
	lastReason map[string]string
}

// New returns a core that knows nothing yet. now is the time at which it begins.
func New(o Options, now time.Time) *Core {
	k := &Core{
		o: o, config: o.Config, now: now, leases: o.Leases, history: o.History, leadership: leadership{leads: true},
		facts: observed{began: now}, holds: newHolds(), turns: newTurns(), memory: newMemory(o.Swaps),
		allowed: map[string]bool{}, lastReason: map[string]string{},
	}
	if o.Divides {
		k.division = newDivision()
	}
	return k
}

// Advance takes what is true beside the facts, before anything is asked of the core. Step does so,
// too.
func (k *Core) Advance(now time.Time, a Around) { k.now, k.around = now, a }

// Step decides what is to be done now. It is cheap when that is nothing.
func (k *Core) Step(now time.Time, a Around) {
	k.Advance(now, a)
	k.memory.guard = a.Guard
	k.refresh()
	k.endLongHolds()
	k.endLongSwaps()
	if k.usable() {
		k.memory.look(a.Ledger)
		k.closeLeases()
		k.endExemptions()
		k.learnLabels()
		k.guardBounds()
		k.watchLimits()
		k.plan()
		k.askSwappable()
	} else {
		k.letMemoryBe()
		k.putAllBack()
	}
	k.expireHolds()
	k.inspectHolds()
}

// Configure takes a new configuration, which must be valid.
func (k *Core) Configure(now time.Time, c config.Config) {
	k.now, k.config = now, c
	k.decide(decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "configuration reloaded"})
	clear(k.lastReason)
}

// Decide puts a decision that was taken elsewhere on record.
func (k *Core) Decide(now time.Time, d decision.Decision) {
	k.now = now
	k.decide(d)
}

// maxReasons bounds the memory of decideOnce.
const maxReasons = 4096

// decideOnce puts a decision on record unless it is what was decided last about this matter.
func (k *Core) decideOnce(matter string, d decision.Decision) {
	what := string(d.Result) + d.Reason + d.Error
	if k.lastReason[matter] == what {
		return
	}
	if len(k.lastReason) > maxReasons {
		clear(k.lastReason)
	}
	k.lastReason[matter] = what
	k.decide(d)
}

func (k *Core) decide(d decision.Decision) {
	d.Time = k.now
	if d.Node == "" {
		d.Node = k.node()
	}
	if k.facts.snap != nil {
		d.Snapshot = k.facts.snap.Sequence
	}
	k.out.Decisions = append(k.out.Decisions, d)
}

func (k *Core) count(what Metric, value float64, labels ...string) {
	k.out.Counts = append(k.out.Counts, Count{what, labels, value})
}

func (k *Core) log(level slog.Level, message string, args ...any) {
	k.out.Logs = append(k.out.Logs, Log{level, message, args})
}

func (k *Core) node() string {
	if k.o.Node != "" || k.facts.snap == nil {
		return k.o.Node
	}
	return k.facts.snap.Node
}

// managed reports whether the container may be acted on: it has a laxity.* label and is on the
// allow-list. Until the engine has said which labels it carries, it is not.
func (k *Core) managed(c task.Container) bool {
	return c.Spec.Managed && (len(k.o.Allow) == 0 || k.allowed[c.ID])
}

// backoff spaces tries.
type backoff struct {
	next time.Time
	wait time.Duration
}

// later waits before the next try, each time for longer.
func (b *backoff) later(now time.Time, first, most time.Duration) {
	b.wait = min(max(2*b.wait, first), most)
	b.next = now.Add(b.wait)
}
