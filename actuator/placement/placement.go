// Package placement decides on which node, and on which of its GPUs, a new
// container should start, and says of every other node why not.
//
// The decision is pure: facts in, ranking out. It imports the standard library
// and exporter/task alone. Package prometheus beside it gets the facts from
// recorded series, package reservation keeps what is reserved, package placer decides
// one request after another, package api serves all of it by HTTP.
package placement

import (
	"context"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Source knows the nodes.
type Source interface {
	// Nodes returns what is known of every node now. It MUST return an error
	// rather than a part of the nodes.
	Nodes(ctx context.Context) ([]Node, error)
}

// Node is what the recording rules say of one node.
type Node struct {
	Name string
	// Seen is when its exporter was last heard of.
	Seen time.Time
	// Fresh: its exporter and its device answer, and the facts are not old.
	Fresh bool
	// Provisionable is P2's nodeState.
	Provisionable bool
	// Float is P2's nodeFloattime: the sum over its containers of what their last tasks had to
	// spare; +Inf where none has ended that had a deadline.
	Float task.Seconds
	// MemoryFree is that of the GPU that has the most, bytes.
	MemoryFree uint64
	// Score orders the nodes, highest first; 0 is no candidate.
	Score float64
	GPUs  []GPU
}

// GPU is what the recording rules say of one GPU.
type GPU struct {
	UUID string
	// Name and Driver are what the device says; Index is -1 when not known.
	Name, Driver string
	Index        int
	// Provisionable is P2's nodeState, by GPU; Open is what stands in its place in
	// the predictive ranking.
	Provisionable, Open bool
	// MemoryTotal and MemoryFree are bytes. Reserved is what of the free memory is
	// promised to containers that do not hold it yet; 0 in what a Source returns.
	MemoryTotal, MemoryFree, Reserved uint64
	// Promised counts the containers that Reserved is for.
	Promised int
	// Work is that of the unfinished tasks that have a deadline.
	Work []Work
	// Utilization is 0–1; NaN when not known.
	Utilization task.Ratio
}

// Work is what is left of an unfinished task that has a deadline.
type Work struct {
	Container string
	// Due is the time until its deadline, negative when that is over; Left is how
	// long it still needs the GPU.
	Due, Left task.Seconds
	// Memory is what the container holds on the GPU, bytes.
	Memory uint64
}

// Request is what a new container needs.
type Request struct {
	// Deadline is relative to the start of each of its tasks, seconds; 0 is
	// none: then no node's float is too short.
	Deadline task.Seconds
	// GPUMemory is what it may hold, bytes; 0 is not known.
	GPUMemory uint64
	// Estimate is how long one of its tasks needs the GPU; 0 is not known: then
	// the predictive ranking takes it to need all of its deadline.
	Estimate task.Seconds
	// Node is the name of the only node that will do; empty is any.
	Node string
}

// Code names a kind of reason.
type Code string

// The reasons for which a node is refused.
const (
	Stale       Code = "stale"        // nothing recent is known of the node
	NoGPU       Code = "no_gpu"       // it has no GPU
	MemoryFull  Code = "memory_full"  // no memory is left on the GPU
	MemoryShort Code = "memory_short" // less than the request needs
	Busy        Code = "busy"         // the GPU is used to 100 %
	Missed      Code = "missed"       // a container there missed its last deadline (paper)
	FloatShort  Code = "float_short"  // the deadline is not below the node's float
	WorkBefore  Code = "work_before"  // work that is due earlier leaves too little time
	WouldMiss   Code = "would_miss"   // a task there would lose its deadline
)

// Reason is why a node, or one of its GPUs, is refused.
type Reason struct {
	Code Code   `json:"code"`
	GPU  string `json:"gpu,omitempty"`
	Text string `json:"text"`
}

// Verdict is the decision on one node.
type Verdict struct {
	Node Node
	// GPU is the UUID of the one to use; empty when the node is refused.
	GPU string
	// Score is what orders the candidates, highest first: bytes free and not
	// promised on that GPU, or in the predictive ranking the float, in seconds,
	// that the new task would end with.
	Score float64
	// Load orders those of equal score, least first: the containers that the GPU is
	// promised to, or in the predictive ranking its work, seconds, and of equal work
	// more memory first.
	Load float64
	// promised orders what is equal even so, least first: the containers that the GPU is promised to.
	promised int
	// Reasons is empty for a candidate.
	Reasons []Reason
	// OpensIn is in how many seconds a refused node is expected to take the container, by the
	// ends of the tasks that are queued there; 0 where they do not say it.
	OpensIn task.Seconds
}

// Candidate reports whether the node can take the container.
func (v Verdict) Candidate() bool { return len(v.Reasons) == 0 }

// Ranking is the decision on all nodes: candidates first, the best one first,
// then the refused by name.
type Ranking []Verdict

// Best returns the first candidate.
func (r Ranking) Best() (Verdict, bool) {
	if len(r) == 0 || !r[0].Candidate() {
		return Verdict{}, false
	}
	return r[0], true
}
