// Package actuator acts: it takes alerts in, looks at what is true, and decides whose work the
// GPU does, so that containers that share it do not ruin each other's response times. Options
// → New → Run.
//
// It only wires the packages below it: arbiter/core decides, arbiter runs it, enforce carries
// out.
package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/sandbox"
)

// Options of an Actuator. StateDir and Source are required.
type Options struct {
	// Node is this node's name as alerts say it; the snapshot's if empty.
	Node string
	// StateDir keeps journal, inbox, leases, decisions and locks. It must be on a
	// local disk, and the guardian must be given the same.
	StateDir string
	Source   source.Source
	Config   config.Config
	// Load reads the configuration again, for Reload; nil if there is none.
	Load func() (config.Config, error)
	// DryRun makes no mutating call and writes the same decisions.
	DryRun bool

	// Guardian is watch.Spawn by default. GuardianCommand is what it starts; by
	// default this program with the arguments `guardian --state-dir=… --once`.
	Guardian        watch.Mode
	GuardianCommand []string
	// Device is the GPUs as in the exporter's flag, for the guardian; empty: it chooses.
	Device string
	// Channels controls time slices and channels of processes; nil: this machine cannot. What
	// is changed is on record below RunDir, as in undo.Options.
	Channels channels.Driver
	RunDir   string

	// DockerHost is the engine's address; DOCKER_HOST or the local socket if empty.
	DockerHost string
	// Hold says how containers are kept from computing; config.HoldAuto by default.
	Hold config.HoldMode
	// ContainerOf returns the id of the container that a process of this machine
	// belongs to. Without it there is no memory guard.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// MemoryGuard says whether allocations of GPU memory are guarded, Swap whether
	// containers are swapped off their GPUs; both Auto by default: where this machine can.
	MemoryGuard, Swap config.MemoryMode
	// OpenMemoryLedger opens what says how much GPU memory each process holds now.
	// Without it no allocations are guarded.
	OpenMemoryLedger func() (task.Ledger, error)
	// NewMemoryGuard and NewSwapper replace those of this machine; nil, without an
	// error, is none.
	NewMemoryGuard func(memory.Decider) (arbiter.MemoryGuard, error)
	NewSwapper     func() (enforce.Swapper, error)
	// ThreadAlive reports whether a thread exists that waits for memory; by /proc by
	// default.
	ThreadAlive func(pid, tid int) bool
	// StartOf returns when a process started, in clock ticks since boot; by /proc by default.
	StartOf func(pid int) (start uint64, lives bool)
	// NoChannels says why Channels is only used to undo: it was not shown to work here, say.
	// Empty: it divides the time of GPUs. NewChannels replaces what carries that out; nil,
	// without an error, is none.
	NoChannels  string
	NewChannels func() (arbiter.Channels, error)
	// Lacks are what this process's sandbox keeps from it, for people to read.
	Lacks []sandbox.Lack
	// NewEnforcer replaces the Docker engine.
	NewEnforcer func(*journal.Journal) (enforce.Enforcer, error)

	// Allow restricts what is ever acted on to containers with one of these labels.
	Allow core.Allow
	// LockDir is where actuators on one engine find each other; one acts, the
	// others stand by. Empty: nobody else is expected.
	LockDir string

	// Access says who may act by HTTP; by default clients of this machine. Its Refuse,
	// Logger and Now are the actuator's.
	Access access.Options
	// InboxSize bounds the notifications that wait, InboxBytes what they take on the
	// disk; 1000 and 32 MiB by default.
	InboxSize  int
	InboxBytes int64
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
	Mount []func(r chi.Router, guard func(http.Handler) http.Handler)

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
	o.Config = o.Config.WithDefaults()
	if err := errors.Join(o.Config.Validate(), o.Allow.Validate()); err != nil {
		return o, err
	}
	switch o.Guardian {
	case "":
		o.Guardian = watch.Spawn
	case watch.Require, watch.Warn, watch.Spawn:
	default:
		return o, fmt.Errorf("guardian is %q; write require, warn or spawn", o.Guardian)
	}
	if len(o.GuardianCommand) == 0 && o.Guardian == watch.Spawn {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find this program, to start the guardian: %w", err)
		}
		o.GuardianCommand = []string{self, "guardian", "--once", "--state-dir=" + o.StateDir}
		if o.DockerHost != "" {
			o.GuardianCommand = append(o.GuardianCommand, "--docker.host="+o.DockerHost)
		}
		if o.Device != "" {
			o.GuardianCommand = append(o.GuardianCommand, "--device="+o.Device)
		}
	}
	o.RunDir = cmp.Or(o.RunDir, enforce.RunDir)
	if err := o.checkHold(); err != nil {
		return o, err
	}
	if err := o.checkMemory(); err != nil {
		return o, err
	}
	setDefault(&o.InboxSize, 1000)
	setDefault(&o.InboxBytes, 32<<20)
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
	if o.StartOf == nil {
		o.StartOf = func(pid int) (uint64, bool) { s, ok := proc.ReadStat("/proc", pid); return s.Start, ok }
	}
	return o, nil
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
