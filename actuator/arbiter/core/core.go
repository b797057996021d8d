// Package core decides. Facts, alerts, requests of people and the ends of actions go in as events;
// what is to be done comes out as effects. All knowledge of the actuator is here: the present
// facts, leases, holds, standings on GPUs, memory, swaps, the breaker.
//
// An event is a method that takes the present time. After events, Step decides what follows from
// all facts. Effects returns what is to be done, in order. Package arbiter carries it out and
// passes the answers in as events.
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
	// Node is this node's name in alerts; the snapshot's if empty.
	Node   string
	Config config.Config
	// Leases and History come from a former run. The core changes them; the caller writes them to
	// disk.
	Leases  *lease.Book
	History *estimate.Book
	// Allow restricts actions to containers with one of these labels.
	Allow Allow
	// DryRun: decisions are the same, but nothing is carried out.
	DryRun bool
	// Divides: slices and channels can divide the time of GPUs here. NoChannels says why not, for
	// people; empty: that was not asked for.
	Divides    bool
	NoChannels string
	// Instances are the MIG instances on which they may.
	Instances config.Instances
	// AsOne: a container on several GPUs is ordered, and goes off and on as one (config.AsOne).
	AsOne bool
	// Swaps: containers can be swapped off their GPUs here.
	Swaps bool
	// LimitsOff: limits of GPU memory are not enforced (--memory-guard=off).
	LimitsOff bool
	// MaxSnapshotAge is how old facts may be to act on. HoldLease is how long a hold lasts after its
	// reason was last seen. FetchEvery is the shortest time between two fetches of facts.
	MaxSnapshotAge, HoldLease, FetchEvery time.Duration
}

// Core is for one goroutine.
type Core struct {
	o      Options
	config config.Config
	now    time.Time // of the present event
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
	usage      usage
	division   *division // nil: nothing is divided
	admitted   admitted
	allowed    map[string]bool
	// lastReason is the last decision about each matter; a decision is recorded only when its reason
	// changes.
	lastReason map[string]string
}

// New returns a core without facts. now is the time at which it begins.
func New(o Options, now time.Time) *Core {
	k := &Core{
		o: o, config: o.Config, now: now, leases: o.Leases, history: o.History, leadership: leadership{leads: true},
		facts: observed{began: now}, holds: newHolds(), turns: newTurns(), memory: newMemory(o.Swaps), usage: newUsage(),
		admitted: admitted{verdicts: map[claimKey]verdict{}},
		allowed:  map[string]bool{}, lastReason: map[string]string{},
	}
	if o.Divides {
		k.division = newDivision()
	}
	return k
}

// SetAround sets the present time and the circumstances. Step calls it; call it once before the
// first event, too.
func (k *Core) SetAround(now time.Time, a Around) { k.now, k.around, k.memory.guard = now, a, a.Guard }

// Step decides what is to be done now. It is cheap when that is nothing.
func (k *Core) Step(now time.Time, a Around) {
	k.SetAround(now, a)
	k.refresh()
	k.endLongHolds()
	k.endLongSwaps()
	if k.usable() {
		k.memory.blindSince = time.Time{}
		k.memory.update(a.Ledger)
		k.closeLeases()
		k.endExemptions()
		k.learnLabels()
		k.guardBounds()
		k.watchLimits()
		k.plan()
		k.askSwappable()
		k.inspectSwaps()
		k.mendSwaps()
	} else {
		k.letMemoryBe()
		k.putAllBack()
		k.bringAllBack()
	}
	k.expireHolds()
	k.inspectHolds()
}

// Configure applies a new configuration, which must be valid. A shorter MaxHold holds for present holds, and for
// what a person asked for.
func (k *Core) Configure(now time.Time, c config.Config) {
	k.now, k.config = now, c
	for _, h := range k.holds.byID {
		h.endBy(h.Since.Add(c.MaxHold))
	}
	for _, l := range k.leases.Leases() {
		if l.By != "" {
			k.leases.Shorten(l, l.Renewed.Add(c.MaxHold))
		}
	}
	k.decide(decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "configuration reloaded"})
	clear(k.lastReason)
}

// Decide records a decision that was taken elsewhere.
func (k *Core) Decide(now time.Time, d decision.Decision) {
	k.now = now
	k.decide(d)
}

// maxReasons bounds lastReason.
const maxReasons = 4096

// decideOnce records a decision unless the last one about this matter was the same.
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

// managed reports whether the container may be acted on: it has one of Laxity's labels and is on the
// allow-list. While the engine has not told its labels yet, it is not.
func (k *Core) managed(c task.Container) bool {
	return c.Spec.Managed && (len(k.o.Allow) == 0 || k.allowed[c.ID])
}

// backoff spaces repeated tries.
type backoff struct {
	next time.Time
	wait time.Duration
}

// later sets the next try, after a wait that grows each time.
func (b *backoff) later(now time.Time, first, most time.Duration) {
	b.wait = min(max(2*b.wait, first), most)
	b.next = now.Add(b.wait)
}
