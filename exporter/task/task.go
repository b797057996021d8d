// Package task is Laxity's domain: one run of GPU work by one process of a
// container, its deadline, its float (laxity, slack), and the Snapshot of all
// that one node knows.
//
// It imports the standard library only, so that every other package may import
// it: the exporter's parts produce these types, the actuator and the CLI read
// them, and the JSON form is the contract between the two.
package task

import (
	"math"
	"time"
)

// State is where a task is in its life.
type State string

// The states of a task.
const (
	// Candidate: the process initialised CUDA but holds no context. Not yet GPU
	// work, in no metric.
	Candidate State = "candidate"
	// Running: the process holds a CUDA context, or the device lists it.
	Running State = "running"
	// Held: we keep it off the GPU, and its container is not paused. Either its channels are
	// off and its host side runs on, or it is stopped at an allocation.
	Held State = "held"
	// Paused: its container is frozen.
	Paused State = "paused"
	// Swapped: it is checkpointed off the GPU, and has not ended.
	Swapped State = "swapped"
	// Ended: the process exited, or it left a healthy device while alive.
	Ended State = "ended"
	// Lost: nobody saw its end (exporter down, host rebooted).
	Lost State = "lost"
)

// UnfinishedStates lists the states in which a task still has work to do, in
// the order in which metrics and tables show them.
var UnfinishedStates = []State{Running, Held, Paused, Swapped}

// Unfinished reports whether s is running, held, paused or swapped.
func (s State) Unfinished() bool {
	switch s {
	case Running, Held, Paused, Swapped:
		return true
	default:
		return false
	}
}

// Source says how a time was learned.
type Source string

// The sources of a time.
const (
	SourceUprobe   Source = "uprobe"   // a uprobe on libcuda
	SourceFanotify Source = "fanotify" // an open of the libcuda file
	SourceDevice   Source = "device"   // the device's process list (NVML), by polling
	SourcePidfd    Source = "pidfd"    // the process's exit, by pidfd
	// SourceTracepoint: the process began to exit, by the scheduler's tracepoint. The driver
	// may hold its memory for about 0.1 s more.
	SourceTracepoint Source = "tracepoint"
	SourceRestart    Source = "restart" // found missing when the exporter came back
)

// Mark is a moment and its precision: the event happened in [Time − ErrorBound, Time].
type Mark struct {
	Time       time.Time `json:"time"`
	Source     Source    `json:"source"`
	ErrorBound Seconds   `json:"error_bound_seconds"`
}

// UnknownGPU stands in Task.GPUs when the GPU of a task could not be learned;
// Task.GPUReason then says why.
const UnknownGPU = "unknown"

// Task is one run of GPU work by one process of a container. With
// laxity.release=busy it is one busy interval of that process.
type Task struct {
	// ID names the task for ever: boot id, PID and a start mark that a reused
	// PID cannot share. Opaque; compare only.
	ID string `json:"id"`
	// PID is the process in the host's PID namespace. Never a metric label.
	PID int `json:"pid"`
	// Container is the container's name, ContainerID its full id.
	Container   string `json:"container"`
	ContainerID string `json:"container_id"`
	// Image is the container's, so that it is known once the container is gone.
	Image string `json:"image,omitempty"`
	// GPUs holds the UUIDs of the GPUs it uses, sorted; or UnknownGPU alone.
	GPUs      []string `json:"gpus"`
	GPUReason string   `json:"gpu_reason,omitempty"`
	State     State    `json:"state"`
	Start     Mark     `json:"start"`
	// End is set once the task is ended or lost.
	End *Mark `json:"end,omitempty"`
	// Deadline is absolute: start + the container's relative deadline. Zero: none.
	// It does not move while the task waits.
	Deadline time.Time `json:"deadline,omitzero"`
	// MemoryUsed is the GPU memory it holds on each GPU, bytes, by UUID.
	MemoryUsed map[string]uint64 `json:"memory_used_bytes,omitempty"`
	// HeldSeconds, PausedSeconds and SwappedSeconds add up how long it was in these states.
	// They do not count the present state, which began at StateSince.
	HeldSeconds    Seconds `json:"held_seconds"`
	PausedSeconds  Seconds `json:"paused_seconds"`
	SwappedSeconds Seconds `json:"swapped_seconds,omitempty"`
	// StateSince is when it entered State.
	StateSince time.Time `json:"state_since,omitzero"`
}

// HasDeadline reports whether the task has a deadline.
func (t Task) HasDeadline() bool { return !t.Deadline.IsZero() }

// Float is the time the task has to spare: deadline − now while unfinished,
// deadline − end once ended (P2, Algorithm 1). +Inf without a deadline.
func (t Task) Float(now time.Time) Seconds {
	if !t.HasDeadline() {
		return Seconds(math.Inf(1))
	}
	if t.End != nil {
		now = t.End.Time
	}
	return Seconds(t.Deadline.Sub(now).Seconds())
}

// Outcome is how an ended task fared.
type Outcome string

// The outcomes of a task.
const (
	Hit         Outcome = "hit"  // ended with float ≥ 0
	Miss        Outcome = "miss" // ended with float < 0
	NoDeadline  Outcome = "none" // had no deadline
	LostOutcome Outcome = "lost" // its end was not seen
)

// Outcomes lists every Outcome, in the order in which metrics show them.
var Outcomes = []Outcome{Hit, Miss, NoDeadline, LostOutcome}

// Outcome says how an ended or lost task fared. For an unfinished one it is "".
func (t Task) Outcome() Outcome {
	switch {
	case t.State == Lost:
		return LostOutcome
	case t.State != Ended:
		return ""
	case !t.HasDeadline():
		return NoDeadline
	case t.Float(time.Time{}) >= 0:
		return Hit
	default:
		return Miss
	}
}

// Duration is end − start, or now − start while unfinished. Never negative.
func (t Task) Duration(now time.Time) time.Duration {
	if t.End != nil {
		now = t.End.Time
	}
	return max(0, now.Sub(t.Start.Time))
}

// Ran is how long the task has run, or ran, without the time during which it was
// held, paused or swapped out. Never negative.
func (t Task) Ran(now time.Time) time.Duration {
	d := t.Duration(now) - t.HeldSeconds.Duration() - t.PausedSeconds.Duration() - t.SwappedSeconds.Duration()
	if t.End == nil && t.State != Running && !t.StateSince.IsZero() {
		d -= max(0, now.Sub(t.StateSince)) // the sums do not count the present state
	}
	return max(0, d)
}

// Tardiness is how far past its deadline an ended task ended; 0 for a hit or
// without a deadline.
func (t Task) Tardiness() time.Duration {
	if t.End == nil || !t.HasDeadline() {
		return 0
	}
	return max(0, t.End.Time.Sub(t.Deadline))
}
