// Package decision is what the actuator decided, and why. Package decisionlog keeps it.
//
// Pure: it imports the standard library only.
package decision

import (
	"strings"
	"time"
)

// Kind is what was decided about.
type Kind string

// The kinds.
const (
	Alert   Kind = "alert"   // what became of an alert
	Lease   Kind = "lease"   // a lease closed
	Pause   Kind = "pause"   // a container was to be paused
	Unpause Kind = "unpause" // a container was to be released
	Hold    Kind = "hold"    // a hold ended without our unpausing
	Request Kind = "request" // what became of what a person asked for
	Service Kind = "service" // about the actuator itself
	Memory  Kind = "memory"  // an allocation of GPU memory, or what was lent of it
	Order   Kind = "order"   // who comes first on a GPU, by slices and by channels off and on
	// Admission: a deadline that cannot be met from the start, or shares that add up to too much.
	Admission Kind = "admission"
	SwapOut   Kind = "swap-out"
	SwapIn    Kind = "swap-in"
)

// Result is how it came out.
type Result string

// The results.
const (
	Done    Result = "done"
	Failed  Result = "failed"
	DryRun  Result = "dry-run" // it would have been done
	Ignored Result = "ignored"
	Opened  Result = "opened"
	Renewed Result = "renewed"
	Closed  Result = "closed"
	Kept    Result = "kept"
	// Forwarded: passed on to the actuator of the node that it is about.
	Forwarded Result = "forwarded"
	// Of an allocation: it waits, waited and went on, or was denied. The actuator waits at its start.
	Waiting Result = "waiting"
	Granted Result = "granted"
	Denied  Result = "denied"
	// Unmet: what was promised cannot be kept.
	Unmet Result = "unmet"
)

// Decision is one entry. Sequence starts anew with the actuator.
type Decision struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Kind     Kind      `json:"kind"`
	Result   Result    `json:"result"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	Node   string `json:"node,omitempty"`
	Policy string `json:"policy,omitempty"`
	// Container is its name, ContainerID its full id.
	Container   string   `json:"container,omitempty"`
	ContainerID string   `json:"container_id,omitempty"`
	GPUs        []string `json:"gpus,omitempty"`
	Tasks       []string `json:"tasks,omitempty"`
	// Cause of a pause or unpause: arbitrate, relieve, pause or memory; of a decision
	// about memory the kind of reason.
	Cause string `json:"cause,omitempty"`
	// By says who asked for it, where a person did.
	By string `json:"by,omitempty"`
	// Alert, Status and Fingerprint are of the alert that was decided about.
	Alert       string `json:"alert,omitempty"`
	Status      string `json:"status,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Snapshot is the sequence of the snapshot on which it rests.
	Snapshot uint64 `json:"snapshot_sequence,omitempty"`
	// Seconds is how long carrying it out took.
	Seconds float64 `json:"seconds,omitempty"`
	// Bytes is how much memory was asked for, or swapped.
	Bytes uint64 `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
}

// About reports whether the decision is about the container with this name or id;
// a prefix of the id of at least 12 digits will do.
func (d Decision) About(container string) bool {
	return d.Container == container || d.ContainerID == container ||
		(len(container) >= 12 && strings.HasPrefix(d.ContainerID, container))
}
