// Package channels carries out a standing on the GPU itself, through the resource
// manager: it sets the time slices of containers' processes, and takes their channels
// off the GPU and switches them on again. It decides nothing.
//
// It records each change before making it (see Record). So a guardian, a restarted actuator or a
// person can undo it with the folder alone: Restore, RestoreAll, Sweep. The README has the rules
// and their reasons.
//
// The package imports the standard library, golang.org/x/sys, actuator/enforce/proc, internal/aside
// and internal/rm; channelstest holds the conformance suite.
package channels

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Driver is the resource manager: rm.Manager, or simrm.Manager for simulated GPUs. A call
// SHOULD return soon after ctx ends; one that does not delays its own process only.
// An error MUST wrap rm.ErrGone when the process is gone, and rm.ErrChanged when a group
// is not what it says. Calls for one process MUST come into effect in the order in which
// they were made, also those that their callers gave up. Implementations MUST be safe
// for concurrent use.
type Driver interface {
	// Find returns the compute groups of a process on all GPUs; none when it has none. With
	// an error that wraps rm.ErrUnfinished there may be more: called again it goes on.
	Find(ctx context.Context, p rm.Process) ([]rm.Group, error)
	// Slice reads a group's time slice; a group is 1 µs or more.
	Slice(ctx context.Context, g rm.Group) (time.Duration, error)
	// SetSlice changes it, 1 µs to 100 s, in whole microseconds, also while it runs. When it
	// returns an error, it may have come into effect.
	SetSlice(ctx context.Context, g rm.Group, d time.Duration) error
	// Switch takes all channels of these groups of one process off or on, or none. When
	// it returns an error, nothing MUST come into effect later.
	Switch(ctx context.Context, groups []rm.Group, on bool) error
}

// Errors that callers distinguish. In each case the tenant computes.
var (
	// ErrGone: all of the processes have ended.
	ErrGone = errors.New("the processes are gone")
	// ErrSeveralGPUs: a container on several GPUs is never off: its parts would wait for
	// each other.
	ErrSeveralGPUs = errors.New("it is on several GPUs, and would have to be off all of them as one")
	// ErrTraced: a debugger or a profiler is attached.
	ErrTraced = errors.New("it is being traced")
	// ErrNoGroup: it has no compute group on a GPU yet, or none that is known while the search
	// goes on. Try again soon.
	ErrNoGroup = errors.New("it has no channel group on a GPU")
)

// Limits of a slice, by the resource manager.
const (
	MinSlice = time.Microsecond
	MaxSlice = 100 * time.Second
)

// Target is the processes of one container, which a standing is for.
type Target struct {
	// Container is its id, for the record.
	Container string
	Processes []rm.Process
}

// Standing is what a plan gives a container.
type Standing struct {
	// Slice of each compute group; 0: its own, and while it is off the one that it has. Not
	// below MinSlice, not above MaxSlice.
	Slice time.Duration
	// Off takes its channels off the GPU.
	Off bool
	// Lease is how long that lasts unless it is renewed by another Apply: then the channels
	// are switched on again by themselves. 0: Options.MaxOff, which is also the most unless a
	// person or an alert asked for it (Asked).
	Lease time.Duration
	Asked bool
	// Reason is for the record, for people to read.
	Reason string
}

// Result is the outcome of applying a standing.
type Result struct {
	// Groups are the compute groups that were found.
	Groups []rm.Group
	// Off: the channels of all of them are off, until Until on the record's clock.
	Off   bool
	Until time.Duration
	// Unsettled: a group is so new that its program may yet set its own slice, so ours
	// is not set; or nothing is known yet of the groups of a process. Apply it again after
	// Options.Settle.
	Unsettled bool
	// Changed are groups whose slice another program changed after we set it. The new slice
	// counts as the group's own from now on.
	Changed []rm.Group
}

// Options of an Enforcer. Driver and Dir are required.
type Options struct {
	Driver Driver
	// Dir is the folder of the record, on a file system that a reboot empties, since a reboot
	// undoes all changes. It is made when first needed.
	Dir string
	// MaxOff is the longest lease that nobody asked for; 1 s by default.
	MaxOff time.Duration
	// Deadline bounds the calls for one process together; 1 s by default.
	Deadline time.Duration
	// FindDeadline bounds a search for a process's groups; 30 s by default. It goes on when
	// its callers have what it found at once, or give up, and later ones get its result.
	FindDeadline time.Duration
	// Settle is how long a new group's slice must not change before it counts as set by
	// its own program; 20 ms by default.
	Settle time.Duration
	// Now is the clock of the record, which all programs of this machine share: Now of this
	// package by default.
	Now func() time.Duration
	// After runs f once after d, unless it is stopped before: time.AfterFunc by default.
	After func(d time.Duration, f func()) (stop func())
	// State returns the state of a process: StateOf by default.
	State  func(rm.Process) (State, error)
	Logger *slog.Logger
}

// Enforcer carries out standings. It is safe for concurrent use, also beside others with
// the same folder, in other programs.
type Enforcer struct {
	o       Options
	records records
	step    func(string) // before and after each write of the record; for tests

	lanes lanes

	mu       sync.Mutex
	known    map[rm.Process]*known
	searches map[rm.Process]*search
	leases   map[rm.Process]func() // stop what waits for the ends of leases
	// pruneAt is how many known processes are worth a look for those that are gone.
	pruneAt int
}

// New opens the record and changes no process. If Options.Dir is not a folder it is put aside (see
// PutAside).
func New(o Options) (*Enforcer, error) {
	if o.Driver == nil || o.Dir == "" {
		return nil, errors.New("channels: Driver and Dir are required")
	}
	if o.MaxOff <= 0 {
		o.MaxOff = time.Second
	}
	if o.Deadline <= 0 {
		o.Deadline = time.Second
	}
	if o.FindDeadline <= 0 {
		o.FindDeadline = 30 * time.Second
	}
	if o.Settle <= 0 {
		o.Settle = 20 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = Now
	}
	if o.After == nil {
		o.After = func(d time.Duration, f func()) func() {
			t := time.AfterFunc(d, f)
			return func() { t.Stop() }
		}
	}
	if o.State == nil {
		o.State = StateOf
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	records := records{o.Dir, o.Logger}
	if err := records.open(); err != nil {
		return nil, err
	}
	return &Enforcer{o: o, records: records, step: func(string) {}, known: map[rm.Process]*known{}, searches: map[rm.Process]*search{}, leases: map[rm.Process]func(){}}, nil
}

// Records lists what is on record, the oldest process first.
func (e *Enforcer) Records() ([]Record, error) { return e.records.list() }

// Pending is how many processes are on record.
func (e *Enforcer) Pending() (int, error) {
	list, err := e.records.list()
	return len(list), err
}

// undoing returns a context for undoing, which the end of ctx does not end.
func (e *Enforcer) undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.o.Deadline)
}

func (e *Enforcer) put(r Record) error {
	e.step("put")
	defer e.step("was put")
	return e.records.put(r)
}

// forget removes the record of a process that has ended, if there is one.
func (e *Enforcer) forget(ctx context.Context, p rm.Process) error {
	if !e.records.has(p) {
		return nil
	}
	return e.alone(ctx, p, func(context.Context) error { return e.remove(p) })
}

// remove removes the record of a process with nothing left to undo.
func (e *Enforcer) remove(p rm.Process) error {
	e.step("remove")
	defer e.step("was removed")
	e.mu.Lock()
	delete(e.known, p)
	e.mu.Unlock()
	return e.records.remove(p, e.records.get(p).damaged)
}
