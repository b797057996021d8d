// Package actuator acts: it takes alerts in, looks at what is true, and pauses
// and unpauses containers so that those that share a GPU do not slow each other
// down. Options → New → Run.
//
// It wires the packages below it and holds the one loop that changes anything;
// what to do is decided in package plan, which is pure.
package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/auth"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// Arbitration says when the policy decides who runs on a GPU.
type Arbitration string

// The ways of arbitration.
const (
	Auto   Arbitration = "auto"   // while an alert asks for it
	Always Arbitration = "always" // all the time, without an alert
	Never  Arbitration = "never"  // never; alerts that ask for it are only recorded
)

// GuardianMode says what to do when no guardian watches.
type GuardianMode string

// The guardian modes.
const (
	Require GuardianMode = "require" // refuse to start; hold nothing while it is away
	Warn    GuardianMode = "warn"    // say so, and act all the same
	Spawn   GuardianMode = "spawn"   // start one
)

// Config is what can be changed while the actuator runs.
type Config struct {
	// Policy is one of Policies, Share how many run at once: one of Shares, or
	// empty for the policy's own.
	Policy, Share string
	Arbitrate     Arbitration
	// MaxHold is the longest that a container is held in one piece.
	MaxHold time.Duration
	// Lease is how long an alert counts after it was last seen firing. The
	// sender must repeat it more often (Alertmanager's repeat_interval).
	Lease time.Duration
	// Settle is how long after an action the utilisation shows its effect.
	Settle time.Duration
	// BreakerActions bounds pauses and unpauses within a minute, BreakerShare the
	// share of the managed containers (if there are some) that are stopped at a
	// time, 0–1. Beyond, everything is let go and nothing is held for a minute.
	BreakerActions int
	BreakerShare   float64
	// MemoryShare is how a GPU's memory is divided: one of allocator.Shares.
	MemoryShare allocator.Share
	// MemoryWait is the longest that an allocation waits for memory; then the
	// program is told that there is none.
	MemoryWait time.Duration
}

// Defaults of a Config.
const (
	DefaultPolicy  = "edf"
	DefaultMaxHold = 10 * time.Minute
	DefaultLease   = 5 * time.Minute
	DefaultSettle  = 400 * time.Millisecond
	// DefaultMemoryWait is how long an allocation waits for memory.
	DefaultMemoryWait = 5 * time.Minute
	// DefaultLockDir is where a program has its locks if nothing else is said.
	DefaultLockDir = "/run/laxity"
	// DefaultBreakerActions lets 300 tasks a minute be held once each.
	DefaultBreakerActions = 600
	// DefaultBreakerShare: all at once. Arbitration always lets somebody run, so
	// that can only be a storm.
	DefaultBreakerShare = 1.0
)

func (c Config) withDefaults() Config {
	if c.Policy == "" {
		c.Policy = DefaultPolicy
	}
	if c.Arbitrate == "" {
		c.Arbitrate = Auto
	}
	if c.MaxHold == 0 {
		c.MaxHold = DefaultMaxHold
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Settle == 0 {
		c.Settle = DefaultSettle
	}
	if c.MemoryShare == "" {
		c.MemoryShare = allocator.ByLimit
	}
	if c.MemoryWait == 0 {
		c.MemoryWait = DefaultMemoryWait
	}
	if c.BreakerActions == 0 {
		c.BreakerActions = DefaultBreakerActions
	}
	if c.BreakerShare == 0 {
		c.BreakerShare = DefaultBreakerShare
	}
	return c
}

// Validate says what is wrong and what to write instead.
func (c Config) Validate() error {
	if err := c.validateScheme(); err != nil {
		return err
	}
	switch c.Arbitrate {
	case Auto, Always, Never:
	default:
		return fmt.Errorf("arbitrate is %q; write auto, always or never", c.Arbitrate)
	}
	if c.MaxHold < time.Second || c.Lease < time.Second {
		return fmt.Errorf("max-hold (%v) and lease (%v) must be at least 1s", c.MaxHold, c.Lease)
	}
	if c.Settle < 0 {
		return fmt.Errorf("settle is %v; it cannot be negative", c.Settle)
	}
	if !slices.Contains(allocator.Shares, string(c.MemoryShare)) {
		return fmt.Errorf("memory-share is %q; write one of %v", c.MemoryShare, allocator.Shares)
	}
	if c.MemoryWait < time.Second {
		return fmt.Errorf("memory-wait is %v; it must be at least 1s", c.MemoryWait)
	}
	if c.BreakerActions < 1 || !(c.BreakerShare > 0 && c.BreakerShare <= 1) {
		return fmt.Errorf("breaker: %d actions a minute and a share of %v; write at least 1, and a share above 0 and up to 1", c.BreakerActions, c.BreakerShare)
	}
	return nil
}

// Options of an Actuator. StateDir and Source are required.
type Options struct {
	// Node is this node's name as alerts say it; the snapshot's if empty.
	Node string
	// StateDir keeps journal, inbox, leases, decisions and locks. It must be on a
	// local disk, and the guardian must be given the same.
	StateDir string
	Source   state.Source
	Config   Config
	// Load reads the configuration again, for Reload; nil if there is none.
	Load func() (Config, error)
	// DryRun makes no mutating call and writes the same decisions.
	DryRun bool

	// Guardian is Spawn by default. GuardianCommand is what Spawn starts; by
	// default this program with the arguments `guardian --state-dir=… --once`.
	Guardian        GuardianMode
	GuardianCommand []string

	// DockerHost is the engine's address; DOCKER_HOST or the local socket if empty.
	DockerHost string
	// Hold says how containers are kept from computing; HoldAuto by default.
	Hold HoldMode
	// ContainerOf returns the id of the container that a process of this machine
	// belongs to. Without it there is no launch gate.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// MemoryGuard says whether allocations of GPU memory are guarded, Swap whether
	// containers are swapped off their GPUs; both Auto by default: where this machine can.
	MemoryGuard, Swap MemoryMode
	// OpenMemoryLedger opens what says how much GPU memory each process holds now.
	// Without it no allocations are guarded.
	OpenMemoryLedger func() (task.Ledger, error)
	// NewMemoryGuard and NewSwapper replace those of this machine; nil, without an
	// error, is none.
	NewMemoryGuard func(memory.Decider) (MemoryGuard, error)
	NewSwapper     func() (enforce.Swapper, error)
	// ThreadAlive reports whether a thread exists that waits for memory; by /proc by
	// default.
	ThreadAlive func(pid, tid int) bool
	// NewEnforcer replaces the Docker engine, and the launch gate.
	NewEnforcer func(*journal.Journal) (enforce.Enforcer, error)

	// Allow restricts what is ever acted on to containers with one of these labels.
	Allow Allow
	// LockDir is where actuators on one engine find each other; one acts, the
	// others stand by. Empty: nobody else is expected.
	LockDir string

	// Tokens, if there are any, are what every change by HTTP needs one of.
	Tokens *auth.Tokens
	// AllowRemote lets clients that are not on this machine post alerts. Set it
	// only where they have to authenticate.
	AllowRemote bool
	// InboxSize bounds the alerts that wait; 1000 messages by default.
	InboxSize int
	// MaxSnapshotAge is how old a snapshot may be to act on; 10 s by default.
	MaxSnapshotAge time.Duration
	// HoldLease is how long a hold lasts after its reason was last seen; the
	// guardian ends it then though the actuator lives. 30 s by default.
	HoldLease time.Duration

	// Peers knows the actuators of other nodes: alerts about those are passed on.
	// Nil: they are ignored.
	Peers forward.Directory

	// Ranking is the ranking of the nodes, for the page; nil without placement.
	Ranking func(context.Context) view.Ranking
	// Mount adds other parts' requests to the handler; those that change something
	// they pass through guard, as the actuator does its own.
	Mount []func(mux *http.ServeMux, guard func(http.Handler) http.Handler)

	Logger  *slog.Logger
	Metrics *collector.Metrics
	// Now is the clock and Tick how often it is looked at; time.Now and 100 ms by
	// default.
	Now  func() time.Time
	Tick time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.StateDir == "" || o.Source == nil {
		return o, errors.New("actuator: StateDir and Source are required")
	}
	o.Config = o.Config.withDefaults()
	if err := errors.Join(o.Config.Validate(), o.Allow.Validate()); err != nil {
		return o, err
	}
	switch o.Guardian {
	case "":
		o.Guardian = Spawn
	case Require, Warn, Spawn:
	default:
		return o, fmt.Errorf("guardian is %q; write require, warn or spawn", o.Guardian)
	}
	if len(o.GuardianCommand) == 0 && o.Guardian == Spawn {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find this program, to start the guardian: %w", err)
		}
		o.GuardianCommand = []string{self, "guardian", "--once", "--state-dir=" + o.StateDir}
		if o.DockerHost != "" {
			o.GuardianCommand = append(o.GuardianCommand, "--docker.host="+o.DockerHost)
		}
	}
	if err := o.checkHold(); err != nil {
		return o, err
	}
	if err := o.checkMemory(); err != nil {
		return o, err
	}
	if o.NewEnforcer == nil {
		o.NewEnforcer = o.newEnforcer
	}
	setDefault(&o.InboxSize, 1000)
	setDefault(&o.MaxSnapshotAge, 10*time.Second)
	setDefault(&o.HoldLease, 30*time.Second)
	setDefault(&o.Tick, 100*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = collector.New()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
