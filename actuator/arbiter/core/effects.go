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
)

// Around is what is true beside the facts, read just before a step.
type Around struct {
	// GuardianUp: a guardian watches. MayHold: nobody has to, or one does.
	GuardianUp, MayHold bool
	// Inbox counts the messages that did not take effect yet.
	Inbox int
	// EngineCalls is how often containers were paused and unpaused so far.
	EngineCalls uint64
	// Guard is nil where no memory guard was made; Ledger is what the ledger of GPU memory
	// says, zero where memory is not planned.
	Guard  *Guard
	Ledger Ledger
}

// Guard is what the memory guard says.
type Guard struct {
	// Why it does not work here; empty: it does.
	Why string
	// Failures says of containers, by id, why they may get more than their limits; Waits why
	// they stand at an allocation.
	Failures, Waits map[string]string
}

// Ledger is what the ledger of GPU memory says.
type Ledger struct {
	Parts   []allocator.Part
	Waiting []facts.Event // the oldest first
	// Evict says of containers, by id, why they should be swapped out.
	Evict map[string]string
}

// Effects are what is to be done. They are carried out in the order of the fields.
type Effects struct {
	Decisions []decision.Decision // put on record
	Logs      []Log
	Counts    []Count
	// Renew are holds whose record is to be moved on. One that fails is told by NotRenewed.
	Renew []Renewal
	// Drop are holds whose record is to be removed: the container does not stand any more.
	// Dropped tells how that came out.
	Drop []Drop
	// Memory is what the ledger and the memory guard are to know; nil: nothing new.
	Memory *Memory
	// Divide are changes of slices and channels, Actions what is to be done to containers.
	// Each is carried out beside, and its end told by Divided and Finished.
	Divide  []Division
	Actions []Action
	// Fetch asks for a snapshot, which Fetched brings.
	Fetch bool
	// Planned is when the snapshot came of which a plan was made for the first time; else zero.
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

// Metric is something that is counted, or observed.
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
	Allocations                  // gpu, verdict, why
	AllocationWait               // verdict
	SwapBytes                    // direction
	SwapSeconds                  // direction
)

// Count adds to a metric.
type Count struct {
	What   Metric
	Labels []string
	Value  float64
}

// Renewal is a hold that is moved on, and how it was.
type Renewal struct{ Hold, Before enforce.Hold }

// Drop is a hold that ended without our unpausing.
type Drop struct {
	ContainerID string
	Why         string // person, guardian or gone
	Reason      string
}

// Memory is what the ledger and the guard of GPU memory are to know.
type Memory struct {
	Facts facts.Facts
	// Cover are the containers whose allocations are guarded. Blind: nothing is known, so Cover says
	// nothing, and whoever waits is asked again.
	Cover []Covered
	Blind bool
}

// Covered is a container whose allocations are guarded: its limit asks for that, or the card
// is divided among all.
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
	Inspect plan.Kind = "look"
	// AskSwap asks whether a container can be swapped out.
	AskSwap plan.Kind = "ask"
)

// Action is one thing to do to one container. At most one for each is under way.
type Action struct {
	plan.Action
	// Hold is the record of a pause.
	Hold enforce.Hold
	// Arrived is when the snapshot came that the action rests on; zero: it rests on none.
	Arrived time.Time
}

// Result is how an action came out.
type Result struct {
	Action
	Started time.Time
	Err     error
	// Status is that of Inspect.
	Status enforce.Status
	// OnRecord: the container is, or may be, on record now.
	OnRecord bool
	// Swap says how a swap went, Swapped all that is on record after it; SwappedKnown: it
	// could be read.
	Swap         enforce.SwapResult
	Swapped      []enforce.Swapped
	SwappedKnown bool
}

// ChangeKind is what is changed of a process on a GPU, as the metric has it.
type ChangeKind string

// The kinds of changes.
const (
	SetSlice  ChangeKind = "slice"
	SwitchOff ChangeKind = "off"
	SwitchOn  ChangeKind = "on"
	Restore   ChangeKind = "restore" // on, and its own slice
	// Look finds contexts that it made since: it stands as before, and they with it.
	Look ChangeKind = "look"
)

// Process is a process of this machine. Start tells it from others with its PID: clock ticks
// since boot.
type Process struct {
	PID   int
	Start uint64
}

// Change is one change of one process on a GPU.
type Change struct {
	Process       Process
	ContainerID   string
	ContainerName string
	Kind          ChangeKind
	// Stands is how it stands afterwards.
	Stands ladder.Standing
}

// Division are the changes on one GPU, one after another. Once a change of a process failed,
// its others are skipped.
type Division struct {
	GPU     string
	Changes []Change
}

// ChangeResult is how a change came out.
type ChangeResult struct {
	// Skipped: it was not tried.
	Skipped bool
	Err     error
	// Gone: the process has ended, or is about to. NoGroup: it has no channels yet.
	Gone, NoGroup bool
	// Unsettled: its own program may yet set the slice. Own: it had set one of its own since.
	Unsettled, Own bool
}

// Effects takes out what is to be done since the last call.
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
