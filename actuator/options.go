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
	"os"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/mechanism"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
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
	// Engine is the container engine.
	Engine engine.Choice
	// RunDir is where slices and channels are on record, as in undo.Options.
	RunDir string
	// Mechanisms are what it acts by.
	Mechanisms mechanism.Options
	// ThreadAlive reports whether a thread exists that waits for memory; by /proc by
	// default.
	ThreadAlive func(pid, tid int) bool
	// StartOf returns when a process started, in clock ticks since boot; by /proc by default.
	StartOf func(pid int) (start uint64, lives bool)
	// Lacks are what this process's sandbox keeps from it, for people to read.
	Lacks []sandbox.Lack

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
	Ranking func(context.Context) placement.Overview
	// Mount adds other parts' requests to the handler; those that change something
	// they pass through the gate, as the actuator does its own.
	Mount []func(chi.Router, *access.Gate)

	Logger  *slog.Logger
	Metrics *collector.Metrics
	// Now is the clock and Tick how often it is looked at; time.Now and 100 ms by
	// default.
	Now  func() time.Time
	Tick time.Duration
}

func (o Options) withDefaults() (_ Options, err error) {
	if o.StateDir == "" || o.Source == nil {
		return o, errors.New("actuator: StateDir and Source are required")
	}
	o.Config = o.Config.WithDefaults()
	if err := errors.Join(o.Config.Validate(), o.Allow.Validate()); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.decideEngine()
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
		o.GuardianCommand = append(o.GuardianCommand, o.Engine.Flags()...)
		if o.Device != "" {
			o.GuardianCommand = append(o.GuardianCommand, "--device="+o.Device)
		}
	}
	o.RunDir = cmp.Or(o.RunDir, enforce.RunDir)
	if o.Mechanisms, err = o.Mechanisms.Checked(o.DryRun); err != nil {
		return o, err
	}
	setDefault(&o.InboxSize, 1000)
	setDefault(&o.InboxBytes, 32<<20)
	setDefault(&o.MaxSnapshotAge, 10*time.Second)
	setDefault(&o.HoldLease, 30*time.Second)
	setDefault(&o.Tick, 100*time.Millisecond)
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

// decideEngine decides on the container engine, once: another one's socket may appear at any time,
// and what is used, what is on record and what the guardian is given have to be the same.
func (o *Options) decideEngine() {
	var how string
	if o.Engine, how = o.Engine.Resolve(engine.This); how != "" {
		o.Logger.Info("the container engine", "engine", o.Engine.Kind, "because", how)
	}
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
