package core

import (
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/allocator/facts"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/record"
)

// Around is what is true beside the facts, read just before a step.
type Around struct {
	// GuardianUp: a guardian watches. MayHold: holds are allowed, because a guardian watches, is just being
	// replaced, or is not needed.
	GuardianUp, MayHold bool
	// Inbox counts the messages that have not taken effect yet.
	Inbox int
	// EngineCalls is how many pauses and unpauses the engine was asked for so far.
	EngineCalls uint64
	// Guard is nil if there is no memory guard. Ledger is what the ledger of GPU memory says, zero
	// if memory is not planned.
	Guard  *Guard
	Ledger Ledger
}

// Guard is what the memory guard says.
type Guard struct {
	// Why it does not work here; empty: it does.
	Why string
	// Failures says, by container id, why containers may exceed their limits. Waits says, by id, why
	// containers wait at an allocation.
	Failures, Waits map[string]string
}

// Ledger is what the ledger of GPU memory says.
type Ledger struct {
	Parts   []allocator.Part
	Waiting []facts.Event // the oldest first
	// Evict says, by container id, why containers should be swapped out.
	Evict map[string]string
}

// Effects are what is to be done, in the order of the fields.
type Effects struct {
	Decisions []decision.Decision // to record
	Logs      []Log
	Counts    []Count
	// Renew are holds whose record is extended. NotRenewed reports a failure.
	Renew []Renewal
	// Drop are holds whose record is removed, since the container is not stopped any more. Dropped
	// reports the result.
	Drop []Drop
	// Memory is news for the ledger and the memory guard; nil: none.
	Memory *Memory
	// Divide are changes of slices and channels. Actions are actions on containers. Each runs in a
	// goroutine; Divided and Finished report its end.
	Divide  []Division
	Actions []Action
	// Fetch asks for a snapshot; Fetched reports the result.
	Fetch bool
	// Planned is when the snapshot arrived that was planned with for the first time; else zero.
	Planned time.Time
	// Wake is when Step should be called again at the latest; zero: at the next event.
	Wake time.Time
}

// Log is a line for the program's log.
type Log struct {
	Level   slog.Level
	Message string
	Args    []any
}

// Metric is something counted or observed.
type Metric int

// The metrics, with their labels.
const (
	Alerts         Metric = iota // action, result
	ActionsDone                  // kind, result
	ActionSeconds                // kind
	Latency                      // kind
	Preemptions                  //
	BreakerTrips                 //
	HoldsLost                    // reason
	Changes                      // kind
	ChannelSkew                  // off or on
	Allocations                  // gpu, verdict, why
	AllocationWait               // verdict
	SwapBytes                    // direction
	SwapSeconds                  // direction
	Judged                       // result
)

// Count adds to a metric.
type Count struct {
	What   Metric
	Labels []string
	Value  float64
}

// Renewal is an extended hold, and the hold before.
type Renewal struct{ Hold, Before record.Hold }

// Drop is a hold that ended without our unpause.
type Drop struct {
	ContainerID string
	Why         string // person, guardian or gone
	Reason      string
}

// Memory is news for the ledger and the guard of GPU memory.
type Memory struct {
	Facts facts.Facts
	// Cover are the containers whose allocations are guarded. Blind: facts are missing, so Cover is
	// unknown, and waiting containers are asked again.
	Cover []Covered
	Blind bool
}

// Covered is a container whose allocations are guarded, because of its limit or because the card is
// divided.
type Covered struct {
	ID  string
	PID int // its first process, in the host's PID namespace
	// GPUs that it may use, by UUID, in its own order.
	GPUs []string
	// Limit per GPU, bytes; 0: none of its own.
	Limit uint64
}

// Kinds of actions that change nothing.
const (
	// Inspect asks the engine about a container.
	Inspect plan.Kind = "inspect"
	// AskSwap asks whether a container can be swapped out.
	AskSwap plan.Kind = "ask"
)

// Action is one action on one container. At most one per container is under way.
type Action struct {
	plan.Action
	// Hold is the record of a pause.
	Hold record.Hold
	// Arrived is when the snapshot arrived that the action rests on; zero: it rests on none.
	Arrived time.Time
}

// Result is the end of an action.
type Result struct {
	Action
	Started time.Time
	Err     error
	// Status is the answer to Inspect.
	Status enforce.Status
	// OnRecord: the container is, or may be, on record now.
	OnRecord bool
	// Swap is the result of a swap. Swapped is all that is on record after it, if SwappedKnown.
	Swap         enforce.SwapResult
	Swapped      []enforce.Swapped
	SwappedKnown bool
}

// ChangeKind is the kind of a change to a process on a GPU, and the value of the metric's label.
type ChangeKind string

// The kinds of changes.
const (
	SetSlice  ChangeKind = "slice"
	SwitchOff ChangeKind = "off"
	SwitchOn  ChangeKind = "on"
	Restore   ChangeKind = "restore" // on, and its own slice
	// InspectChannels finds contexts that the process made since, and gives them its standing.
	InspectChannels ChangeKind = "inspect"
)

// Process is a process of this machine. Start, in clock ticks since boot, distinguishes processes
// with the same PID.
type Process struct {
	PID   int
	Start uint64
}

// Change is one change of one process on a GPU, or of a gang, all of which goes off and on as one.
type Change struct {
	Process Process
	// Gang is all of the gang; nil: the change is of the process.
	Gang *Gang
	// ContainerID is the container's, or names the gang of several.
	ContainerID string
	Kind        ChangeKind
	// Stands is the standing after the change.
	Stands ladder.Standing
}

// Gang is a container on several GPUs, or containers with the same laxity.gang.
type Gang struct {
	Processes []Process
	GPUs      []string // UUIDs
	// Slices are those after the change, by GPU. A GPU without one has its own.
	Slices map[string]time.Duration
}

// Division are the changes on one GPU, one after another. After one change of a process has failed,
// its others are skipped.
type Division struct {
	GPU     string
	Changes []Change
}

// ChangeResult is the end of a change.
type ChangeResult struct {
	// Skipped: it was not tried.
	Skipped bool
	Err     error
	// Gone: the process has ended, or is about to. NoGroup: no channels of it were found; what was
	// changed of it before may still be in force.
	Gone, NoGroup bool
	// Unsettled: its own program may still set the slice. Own: its program had set one since.
	Unsettled, Own bool
	// AsOne: channels on several GPUs were switched. Skew is the time from the end of the first
	// GPU's calls to the end of the last GPU's.
	AsOne bool
	Skew  time.Duration
}

// Effects returns what is to be done since the last call, and clears it.
func (k *Core) Effects() Effects {
	out := k.out
	k.out = Effects{}
	return out
}

// Empty reports whether there is nothing to do.
func (e Effects) Empty() bool {
	return len(e.Decisions)+len(e.Logs)+len(e.Counts)+len(e.Renew)+len(e.Drop)+len(e.Divide)+len(e.Actions) == 0 &&
		e.Memory == nil && !e.Fetch && e.Planned.IsZero() && e.Wake.IsZero()
}
