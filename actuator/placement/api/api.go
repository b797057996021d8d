// Package api serves ranking and placement by HTTP: what it answers, and the
// client that asks. It imports actuator/admission, actuator/nodes, actuator/placement,
// actuator/placement/reservation, actuator/placement/placer, exporter/task, internal/unreachable, chi and the standard library.
package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// Nodes is the answer to GET /api/v1/nodes.
type Nodes struct {
	Time time.Time `json:"time"`
	// Ranking is how: paper or predictive.
	Ranking placement.Method `json:"ranking,omitempty"`
	// Summary is one line for people.
	Summary string `json:"summary"`
	// Partial: these are the first nodes of a large fleet, which a placement was
	// decided on; GET /api/v1/nodes has all.
	Partial bool `json:"partial,omitempty"`
	// Nodes has the candidates first, the best one first.
	Nodes []Node `json:"nodes"`
}

// Node is one node of the ranking.
type Node struct {
	Name      string `json:"name"`
	Candidate bool   `json:"candidate"`
	// GPU is the UUID of the GPU that a new container would get.
	GPU           string  `json:"gpu,omitempty"`
	Score         float64 `json:"score"`
	Provisionable bool    `json:"provisionable"`
	MemoryFree    uint64  `json:"memory_free_bytes"`
	// Float is the sum over its containers of what their last tasks had to spare, which the
	// ranking of the paper reads; null where FloatReason says why.
	Float       task.Seconds       `json:"float_seconds"`
	FloatReason string             `json:"float_reason,omitempty"`
	Fresh       bool               `json:"fresh"`
	Seen        time.Time          `json:"seen,omitzero"`
	Reasons     []placement.Reason `json:"reasons"`
	// OpensIn is in how long a refused node is expected to take the container, by the ends of
	// the tasks that are queued there; absent where they do not say it.
	OpensIn task.Seconds `json:"opens_in_seconds,omitempty"`
	GPUs    []GPU        `json:"gpus"`
}

// GPU is one GPU of a node.
type GPU struct {
	UUID          string `json:"uuid"`
	Name          string `json:"name,omitempty"`
	Driver        string `json:"driver,omitempty"`
	Index         int    `json:"index"`
	Provisionable bool   `json:"provisionable"`
	Open          bool   `json:"open"`
	MemoryTotal   uint64 `json:"memory_total_bytes"`
	MemoryFree    uint64 `json:"memory_free_bytes"`
	Reserved      uint64 `json:"memory_reserved_bytes"`
	Promised      int    `json:"promised_containers"`
	// Utilization is null where UtilizationReason says why.
	Utilization       task.Ratio `json:"utilization_ratio"`
	UtilizationReason string     `json:"utilization_reason,omitempty"`
}

// noFloat is why a node has no float.
const noFloat = "no task with a deadline has ended there"

// NodesOf is the JSON form of a ranking.
func NodesOf(r placement.Ranking, at time.Time) Nodes {
	out := Nodes{Time: at, Summary: r.Summary(), Nodes: make([]Node, 0, len(r))}
	for _, v := range r {
		n := Node{
			Name: v.Node.Name, Candidate: v.Candidate(), GPU: v.GPU, Score: v.Node.Score,
			Provisionable: v.Node.Provisionable, MemoryFree: v.Node.MemoryFree, Float: v.Node.Float, FloatReason: task.ReasonOf(v.Node.Float, noFloat),
			Fresh: v.Node.Fresh, Seen: v.Node.Seen,
			Reasons: append([]placement.Reason{}, v.Reasons...), OpensIn: v.OpensIn,
			GPUs: make([]GPU, 0, len(v.Node.GPUs)),
		}
		for _, g := range v.Node.GPUs {
			n.GPUs = append(n.GPUs, gpuOf(g))
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

func gpuOf(g placement.GPU) GPU {
	return GPU{
		UUID: g.UUID, Name: g.Name, Driver: g.Driver, Index: g.Index,
		Provisionable: g.Provisionable, Open: g.Open,
		MemoryTotal: g.MemoryTotal, MemoryFree: g.MemoryFree, Reserved: g.Reserved, Promised: g.Promised,
		Utilization: g.Utilization, UtilizationReason: task.ReasonOf(g.Utilization, "Prometheus has no value of it"),
	}
}

func fail(w http.ResponseWriter, code int, text string) {
	write(w, code, map[string]string{"error": text})
}

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client is gone if this fails: there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}
