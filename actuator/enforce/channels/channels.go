// Package channels carries out a standing on the GPU itself, through the resource
// manager: it sets the time slices of containers' processes, and takes their channels
// off the GPU and switches them on again. It decides nothing.
//
// It records each change before making it (see Record). So a guardian, a restarted actuator or a
// person can undo it with the folder alone: Restore, RestoreAll, Sweep. The README has the rules
// and their reasons.
//
// The package imports the standard library, golang.org/x/sys, actuator/enforce/proc, internal/aside,
// internal/rm and internal/statefolder; channelstest holds the conformance suite.
package channels

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Driver is the resource manager: rm.Manager, or simrm.Manager for simulated GPUs. A call SHOULD
// return soon after ctx ends; a slow call delays its own process only. An error MUST wrap
// rm.ErrGone when the process is gone, and rm.ErrChanged when a group is not what it says. Calls
// for one process MUST come into effect in the order in which they were made, even after their
// callers gave up. Implementations MUST be safe for concurrent use.
type Driver interface {
	// Find returns the compute groups of a process on all GPUs; none when it has none. If the error
	// wraps rm.ErrUnfinished there may be more, and the next call continues the search.
	Find(ctx context.Context, p rm.Process) ([]rm.Group, error)
	// Slice reads a group's time slice: 1 µs or more.
	Slice(ctx context.Context, g rm.Group) (time.Duration, error)
	// SetSlice changes the slice, also while the group computes: 1 µs to 100 s, in whole
	// microseconds. It may have come into effect even if it returns an error.
	SetSlice(ctx context.Context, g rm.Group, d time.Duration) error
	// Switch takes all channels of these groups of one process off or on, or none. After an error
	// nothing MUST come into effect later.
	Switch(ctx context.Context, groups []rm.Group, on bool) error
	// SwitchAsOne is Switch for groups of several processes on several GPUs. It prepares everything
	// first, then makes the calls of all GPUs in parallel. skew is the time from the end of the
	// first GPU's calls to the end of the last GPU's.
	SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (skew time.Duration, err error)
}

// Errors that callers distinguish. After each of them the tenant computes.
var (
	// ErrGone: all of the processes have ended.
	ErrGone = errors.New("the processes are gone")
	// ErrSeveralGPUs: without Options.AsOne a container on several GPUs does not go off, since its
	// parts would wait for each other.
	ErrSeveralGPUs = errors.New("it is on several GPUs, and would have to be off all of them as one")
	// ErrTraced: a debugger is attached, or what else uses ptrace.
	ErrTraced = errors.New("it is being traced")
	// ErrNoGroup: no compute group was found: there is none yet, or the search is not finished. Try
	// again soon.
	ErrNoGroup = errors.New("it has no channel group on a GPU")
)

// Limits of a slice, by the resource manager.
const (
	MinSlice = time.Microsecond
	MaxSlice = 100 * time.Second
)

// Target is one container and its processes, to which a standing applies.
type Target struct {
	// Container is its id, for the record.
	Container string
	Processes []rm.Process
	// GPUs are those on which the container computes, by UUID, if there are several: it goes off
	// only when a group on each of them was found.
	GPUs []string
}

// Standing is what a plan gives a container.
type Standing struct {
	// Slice of each compute group, MinSlice to MaxSlice. 0: the group's own, or, while it is off,
	// the slice that it has.
	Slice time.Duration
	// Slices replace Slice on the GPUs named here, by UUID.
	Slices map[string]time.Duration
	// Off takes its channels off the GPU.
	Off bool
	// Lease is how long Off lasts; then the channels are switched on again, unless another Apply
	// renews it. 0: Options.MaxOff, which is also the longest.
	Lease time.Duration
	// Reason goes on the record, for people to read.
	Reason string
}

// Result is the outcome of applying a standing.
type Result struct {
	// Groups are the compute groups that were found.
	Groups []rm.Group
	// Off: the channels of all of them are off, until Until on the record's clock.
	Off   bool
	Until time.Duration
	// Unsettled: ours is not set yet, because a group is so new that its program may still set its
	// own slice, or because no group of a process was found yet. Apply again after Options.Settle.
	Unsettled bool
	// Changed are groups whose slice another program changed after we set it. The new slice
	// counts as the group's own from now on.
	Changed []rm.Group
	// AsOne: channels on several GPUs were switched. Skew is the time from the end of the first
	// GPU's calls to the end of the last GPU's.
	AsOne bool
	Skew  time.Duration
}

// Options of an Enforcer. Driver and Dir are required.
type Options struct {
	Driver Driver
	// Dir is the folder of the record. It must be on a file system that a reboot empties, since a
	// reboot undoes all changes. It is made when first needed.
	Dir string
	// MaxOff is the longest lease; 1 s by default.
	MaxOff time.Duration
	// AsOne lets a container on several GPUs be off: all of its channels on all of them go off and
	// on as one. Without it Apply returns ErrSeveralGPUs.
	AsOne bool
	// Deadline bounds all calls for one process together; 1 s by default.
	Deadline time.Duration
	// FindDeadline bounds a search for a process's groups; 30 s by default. The search continues
	// after its callers return; later callers get its result.
	FindDeadline time.Duration
	// Settle is how long a new group's slice must not change before it counts as set by
	// its own program; 20 ms by default.
	Settle time.Duration
	// Now is the clock of the record, which all programs of this machine share. By default it is
	// this package's Now.
	Now func() time.Duration
	// After runs f once after d, unless stopped before: time.AfterFunc by default.
	After func(d time.Duration, f func()) (stop func())
	// State returns the state of a process: StateOf by default.
	State  func(rm.Process) (State, error)
	Logger *slog.Logger
}

// Enforcer carries out standings. It is safe for concurrent use, also beside other Enforcers with
// the same folder in other programs.
type Enforcer struct {
	o       Options
	records records
	step    func(string) // before and after each write of the record; for tests

	lanes lanes

	mu       sync.Mutex
	known    map[rm.Process]*known
	searches map[rm.Process]*search
	leases   map[rm.Process]func() // each stops waiting for the end of a lease
	// pruneAt is the number of known processes at which those that are gone are forgotten.
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

// undoing returns a context for undoing, which outlives ctx.
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
	return e.alone(ctx, p, func(ctx context.Context) error { return e.gone(ctx, p) })
}

// remove removes the record of a process with nothing left to undo.
func (e *Enforcer) remove(p rm.Process) error {
	e.step("remove")
	defer e.step("was removed")
	e.mu.Lock()
	delete(e.known, p)
	delete(e.leases, p)
	e.mu.Unlock()
	return e.records.remove(p, e.records.get(p).damaged)
}
