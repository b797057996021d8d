// Package state is what the actuator knows and does at the moment, as GET /api/v1/state
// answers it: for programs, people and metrics.
//
// Pure: it imports the standard library, pure packages and actuator/enforce only, of which it
// takes types.
package state

import (
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/exporter/task"
)

// State is what GET /api/v1/state answers.
type State struct {
	Time   time.Time `json:"time"`
	Node   string    `json:"node"`
	DryRun bool      `json:"dry_run"`
	Policy string    `json:"policy"`
	Share  string    `json:"share"`
	// MemoryShare is how GPU memory is divided; MemoryGuard says why allocations are not
	// guarded ("off", or what this machine lacks), empty: they are.
	MemoryShare allocator.Share `json:"memory_share"`
	MemoryGuard string          `json:"memory_guard,omitempty"`
	Swap        bool            `json:"swap"`
	// Hold is how containers are kept from computing now: channels or pause. NoChannels
	// says why not by channels; empty: it is, or nobody wanted it.
	Hold       config.HoldMode `json:"hold"`
	NoChannels string          `json:"no_channels,omitempty"`
	// ChannelsProven says by what channels are known to work, SeveralGPUs what is done with a
	// container on several GPUs; both only where holds are by channels.
	ChannelsProven string             `json:"channels_proven,omitempty"`
	SeveralGPUs    config.SeveralMode `json:"several_gpus,omitempty"`
	Arbitrate      config.Arbitration `json:"arbitrate"`
	// Ready: the actuator can act now. If not, Trouble says why.
	Ready      bool   `json:"ready"`
	Trouble    string `json:"trouble,omitempty"`
	GuardianUp bool   `json:"guardian_up"`
	// PutAside names the files of the state folder that could not be read and were put aside.
	PutAside []string `json:"put_aside,omitempty"`
	// Lacks are what their sandboxes (unit, container) keep from actuator and guardian.
	Lacks []Lack `json:"lacks,omitempty"`
	// Breaker says why hands are off for a while; Standby why another one acts.
	Breaker string `json:"breaker,omitempty"`
	Standby string `json:"standby,omitempty"`
	// Drained: an alert asked for no new placements on this node.
	Drained bool `json:"drained"`
	// Inbox counts the notifications that did not take effect yet.
	Inbox            int       `json:"inbox"`
	SnapshotSequence uint64    `json:"snapshot_sequence"`
	SnapshotTime     time.Time `json:"snapshot_time,omitzero"`

	GPUs       []GPU             `json:"gpus"`
	Containers []Container       `json:"containers"`
	Holds      []record.Hold     `json:"holds"`
	Leases     []lease.Lease     `json:"leases"`
	Exemptions []lease.Exemption `json:"exemptions"`
}

// New returns an empty state. No list of it is null: who reads it need not tell that from empty.
func New() *State {
	return &State{
		GPUs: []GPU{}, Containers: []Container{}, Holds: []record.Hold{},
		Leases: []lease.Lease{}, Exemptions: []lease.Exemption{},
	}
}

// GPU is one GPU as the actuator sees it.
type GPU struct {
	UUID string `json:"uuid"`
	// Index is what a person calls it: 0, or 0:1 for an instance of a card.
	Index       string     `json:"index,omitempty"`
	Name        string     `json:"name"`
	Utilization task.Ratio `json:"utilization_ratio"`
	// UtilizationReason says why Utilization is null; MemoryReason the same of Memory.
	UtilizationReason string     `json:"utilization_reason,omitempty"`
	Memory            task.Ratio `json:"memory_used_ratio"`
	MemoryReason      string     `json:"memory_reason,omitempty"`
	// Tasks counts the unfinished ones.
	Tasks      int  `json:"tasks"`
	Arbitrated bool `json:"arbitrated"`
	Relieve    bool `json:"relieve"`
	// Admitted names the containers that the policy lets run, in the order in
	// which it let them; Queue those that wait, the next one first.
	Admitted []string `json:"admitted"`
	Queue    []string `json:"queue"`
	// Order names the containers by who comes first where the time is divided by slices;
	// empty where it is not.
	Order []string `json:"order,omitempty"`
	// Unkept says which promises of time cannot be kept here, and what is done about that:
	// shares and the batch floor that add up to more than there is; empty: they are all kept.
	Unkept string `json:"unkept,omitempty"`
}

// Cause is why a container is left as it is though its labels ask for an order.
type Cause string

// The causes.
const (
	ByMPS      Cause = "mps"          // it computes through an MPS server, or one of its gang does
	ByGang     Cause = "gang"         // it is of a gang, which is not ordered as one here
	ByConflict Cause = "labels"       // the labels of its gang disagree
	ByMIG      Cause = "mig"          // it computes on a MIG instance without a proof that channels can be controlled there
	BySeveral  Cause = "several_gpus" // it computes on several GPUs
	ByFailure  Cause = "failed"       // its channels were not found, or a call failed: tried again
)

// Container is one container as the actuator sees it.
type Container struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Managed    bool   `json:"managed"`
	NeverPause bool   `json:"never_pause,omitempty"`
	// Gang is the job of which it is one part (laxity.gang); empty: none.
	Gang     string        `json:"gang,omitempty"`
	Tasks    int           `json:"tasks"`
	Standing plan.Standing `json:"standing"`
	// Waits says why it must not run now; empty when it may.
	Waits string `json:"waits,omitempty"`
	// Beside says why it runs though it takes no turn; empty where it takes one.
	Beside string `json:"beside,omitempty"`
	// Order says where it stands on its GPU where the time is divided by slices, and why:
	// "second in the queue, slice 100 ms"; or why it, or its gang, is left as it is. Off: its channels are off the GPU. SliceSeconds is
	// its time slice; 0: its own.
	Order string `json:"order,omitempty"`
	// LeftAsItIs is why nothing orders it; empty: it is ordered, or nothing asks for that.
	LeftAsItIs   Cause   `json:"left_as_it_is,omitempty"`
	Off          bool    `json:"off,omitempty"`
	SliceSeconds float64 `json:"slice_seconds,omitempty"`
	// DeadlineUnmet says why its deadline cannot be promised, as far as could be known at the start;
	// empty: it can. DeadlineUnknown: nobody knows, since there is no history.
	DeadlineUnmet   string `json:"deadline_unmet,omitempty"`
	DeadlineUnknown bool   `json:"deadline_unknown,omitempty"`
	// Memory is by GPU; empty where nobody acts on GPU memory. MemoryWaits says what
	// an allocation of it waits for, or why it may not begin to hold memory.
	Memory      []Memory `json:"memory,omitempty"`
	MemoryWaits string   `json:"memory_waits,omitempty"`
	// MemoryWaitGPU and MemoryWaitSeconds are of an allocation that waits: on which GPU,
	// and how long it has.
	MemoryWaitGPU     string  `json:"memory_wait_gpu,omitempty"`
	MemoryWaitSeconds float64 `json:"memory_wait_seconds,omitempty"`
	// MemoryAsked says why its allocations of GPU memory are held at their entry and
	// asked about; empty: they are not.
	MemoryAsked string `json:"memory_asked,omitempty"`
	// MemoryUnguarded says why its allocations are not denied though it has a limit;
	// empty: they are, or it has none, or nobody was to (--memory-guard=off).
	MemoryUnguarded string `json:"memory_unguarded,omitempty"`
	// MemoryDenied is when it was last refused memory, by GPU.
	MemoryDenied map[string]time.Time `json:"memory_denied,omitempty"`
	// Swapped says why it is off its GPUs; empty when it is not. SwapStage is how far
	// that has come (see enforce.SwapStage), SwappedSince when it began.
	Swapped      string            `json:"swapped,omitempty"`
	SwapStage    enforce.SwapStage `json:"swap_stage,omitempty"`
	SwappedSince time.Time         `json:"swapped_since,omitzero"`
}

// Memory is what a container holds of one GPU, in bytes.
type Memory struct {
	GPU string `json:"gpu"`
	// Limit is its own; absent without one. Share is what it is entitled to, Lent what
	// it holds above that.
	Limit uint64 `json:"limit_bytes,omitempty"`
	Held  uint64 `json:"held_bytes"`
	Share uint64 `json:"share_bytes"`
	Lent  uint64 `json:"lent_bytes,omitempty"`
	// Swapped is what it needs to come back.
	Swapped uint64 `json:"swapped_bytes,omitempty"`
}

// Lack is something that a program's sandbox keeps from it: see internal/sandbox.
type Lack struct {
	Of    string `json:"of"`
	What  string `json:"what"`
	Means string `json:"means"`
	Fix   string `json:"fix"`
}
