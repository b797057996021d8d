// Package placement decides on which node, and on which of its GPUs, a new
// container should start, and says of every other node why not.
//
// The decision is pure: facts in, ranking out. It imports the standard library
// and exporter/task alone. Package prometheus beside it gets the facts from
// recorded series, package api serves the ranking by HTTP.
package placement

import (
	"cmp"
	"context"
	"math"
	"slices"
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
	// Float is P2's nodeFloattime: the sum over its containers; +Inf without
	// deadlines.
	Float task.Seconds
	// MemoryFree is that of the GPU that has the most, bytes.
	MemoryFree uint64
	// Score orders the nodes, highest first; 0 is no candidate.
	Score float64
	GPUs  []GPU
}

// GPU is what the recording rules say of one GPU.
type GPU struct {
	UUID          string
	Provisionable bool
	MemoryFree    uint64 // bytes
	Float         task.Seconds
	// Utilization is 0–1; NaN when not known.
	Utilization task.Seconds
	// Missed is when a deadline was last missed here, within the rules' ten
	// minutes; zero for never.
	Missed time.Time
	Score  float64
}

// Request is what a new container needs.
type Request struct {
	// Deadline is relative to the start of each of its tasks, seconds; 0 is
	// none: then no node's float is too short.
	Deadline task.Seconds
	// GPUMemory is what it may hold, bytes; 0 is not known.
	GPUMemory uint64
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
	Missed      Code = "missed"       // a deadline was missed within 10 minutes
	FloatShort  Code = "float_short"  // the deadline is not below the node's float

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
	// Reasons is empty for a candidate.
	Reasons []Reason
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

// Rank is the master's side of P2's Algorithm 2: among the provisionable nodes
// whose float is above the new deadline, the one with the most available GPU
// memory comes first. Equal ones are in the order of their names, so that the
// same facts give the same answer.
func Rank(nodes []Node, req Request, now time.Time) Ranking {
	r := make(Ranking, 0, len(nodes))
	for _, n := range nodes {
		r = append(r, judge(n, req, now))
	}
	slices.SortFunc(r, func(a, b Verdict) int {
		switch {
		case a.Candidate() != b.Candidate():
			if a.Candidate() {
				return -1
			}
			return 1
		case a.Candidate() && a.Node.Score != b.Node.Score:
			return cmp.Compare(b.Node.Score, a.Node.Score)
		default:
			return cmp.Compare(a.Node.Name, b.Node.Name)
		}
	})
	return r
}

func judge(n Node, req Request, now time.Time) Verdict {
	v := Verdict{Node: n}
	if !n.Fresh {
		v.Reasons = []Reason{staleness(n, now)}
		return v
	}
	if len(n.GPUs) == 0 {
		v.Reasons = []Reason{{Code: NoGPU, Text: "no GPU"}}
		return v
	}
	var best *GPU
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if reasons := refuseGPU(*g, req, now); len(reasons) > 0 {
			v.Reasons = append(v.Reasons, reasons...)
			continue
		}
		if best == nil || g.MemoryFree > best.MemoryFree || (g.MemoryFree == best.MemoryFree && g.UUID < best.UUID) {
			best = g
		}
	}
	if best != nil {
		v.Reasons = nil // one GPU that can is enough
	}
	if req.Deadline > 0 && req.Deadline >= n.Float {
		v.Reasons = append(v.Reasons, Reason{Code: FloatShort, Text: floatShort(req.Deadline, n.Float)})
	}
	if best != nil && v.Candidate() {
		v.GPU = best.UUID
	}
	return v
}

func refuseGPU(g GPU, req Request, now time.Time) (reasons []Reason) {
	add := func(c Code, text string) { reasons = append(reasons, Reason{Code: c, GPU: g.UUID, Text: text}) }
	if !g.Provisionable {
		if !g.Missed.IsZero() {
			add(Missed, "deadline missed "+ago(now.Sub(g.Missed)))
		}
		if u := float64(g.Utilization); !math.IsNaN(u) && u >= fullUse {
			add(Busy, "GPU use 100%")
		}
		// The rule has three conditions on a fresh GPU: what the other two do not
		// explain is memory.
		if len(reasons) == 0 {
			add(MemoryFull, "GPU memory full (free "+Bytes(g.MemoryFree)+")")
		}
	}
	if g.MemoryFree < req.GPUMemory {
		add(MemoryShort, "GPU memory short (need "+Bytes(req.GPUMemory)+", free "+Bytes(g.MemoryFree)+")")
	}
	return reasons
}

// fullUse is what the recording rules take for 100 %.
const fullUse = 0.995
