package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Method is a way to rank.
type Method string

// The ways to rank.
const (
	// Paper is P2's Algorithm 2, for the record: among the provisionable nodes whose float is
	// above the new deadline, the most available GPU memory comes first. A node is
	// provisionable while no container there missed its last deadline and neither use nor
	// memory is at 100 %; its float is the sum of what its containers' last tasks had to spare.
	// Equal ones come in the order of their names, so that the same facts give the same
	// answer. P2's nodes have one GPU; of several, the float is the node's, state and memory
	// are the GPU's.
	Paper Method = "paper"
	// Predictive asks whether every deadline would still hold with the new task's
	// work on top of the admitted work, earliest deadline first; the GPU on which
	// the new task would have the most time to spare comes first.
	Predictive Method = "predictive"
)

// DefaultMethod is how nodes are ranked where nobody says it. It closes no idle node for a
// deadline that was missed there in the past, as Paper does.
const DefaultMethod = Predictive

// Methods lists the names of all ways to rank.
var Methods = []string{string(Paper), string(Predictive)}

// ParseMethod reads the name of a way to rank; the empty one is DefaultMethod.
func ParseMethod(text string) (Method, error) {
	switch m := Method(text); m {
	case "":
		return DefaultMethod, nil
	case Paper, Predictive:
		return m, nil
	default:
		return "", fmt.Errorf("ranking %q is not known: write one of %v", text, Methods)
	}
}

// Rank judges every node, or the one that the request names.
func (m Method) Rank(nodes []Node, req Request, now time.Time) Ranking {
	r := make(Ranking, 0, len(nodes))
	for i := range nodes {
		if req.Node != "" && nodes[i].Name != req.Node {
			continue
		}
		r = append(r, m.judge(&nodes[i], req, now))
	}
	slices.SortFunc(r, func(a, b Verdict) int {
		switch {
		case a.Candidate() != b.Candidate():
			if a.Candidate() {
				return -1
			}
			return 1
		case a.Candidate():
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Load, b.Load), cmp.Compare(a.promised, b.promised), cmp.Compare(a.Node.Name, b.Node.Name))
		default:
			return cmp.Compare(a.Node.Name, b.Node.Name)
		}
	})
	return r
}

// seat is what a GPU has for the request.
type seat struct {
	gpu *GPU
	// As in Verdict.
	score, load float64
	reasons     []Reason
}

// before reports whether s is the better GPU of a node.
func (s seat) before(t seat) bool {
	return cmp.Or(cmp.Compare(t.score, s.score), cmp.Compare(s.load, t.load), cmp.Compare(s.gpu.Promised, t.gpu.Promised), cmp.Compare(s.gpu.UUID, t.gpu.UUID)) < 0
}

func (m Method) judge(n *Node, req Request, now time.Time) Verdict {
	v := Verdict{Node: *n}
	if !n.Fresh {
		v.Reasons = []Reason{staleness(*n, now)}
		return v
	}
	if len(n.GPUs) == 0 {
		v.Reasons = []Reason{{Code: NoGPU, Text: "no GPU"}}
		return v
	}
	var best seat
	for i := range n.GPUs {
		s := m.seat(&n.GPUs[i], req)
		switch {
		case len(s.reasons) > 0:
			v.Reasons = append(v.Reasons, s.reasons...)
		case best.gpu == nil || s.before(best):
			best = s
		}
	}
	if best.gpu != nil {
		v.Reasons = nil // one GPU that can is enough
	}
	short := m == Paper && req.Deadline > 0 && req.Deadline >= n.Float
	if short {
		v.Reasons = append(v.Reasons, Reason{Code: FloatShort, Text: floatShort(req.Deadline, n.Float)})
	}
	if best.gpu != nil && v.Candidate() {
		v.GPU, v.Score, v.Load, v.promised = best.gpu.UUID, best.score, best.load, best.gpu.Promised
	} else if !short { // nothing says when the float is longer
		m.opens(&v, req)
	}
	return v
}

func (m Method) seat(g *GPU, req Request) seat {
	s := seat{gpu: g}
	var barred []Reason
	if m == Predictive {
		barred = closed(g)
	} else {
		barred = notProvisionable(g)
	}
	left := g.available()
	if left < req.GPUMemory {
		barred = append(barred, Reason{Code: MemoryShort, GPU: g.UUID, Text: memoryShort(g, req.GPUMemory)})
	}
	if m == Predictive {
		p := predict(g.Work, req)
		if p.reason != nil {
			p.reason.GPU = g.UUID
			barred = append(barred, *p.reason)
		}
		// An idle GPU rather than a busy one, then the one with more memory; of equals the one with fewer reservations.
		s.score, s.load = float64(p.float), loadOf(p.demand, left)
	} else {
		s.score, s.load = float64(left), float64(g.Promised)
	}
	s.reasons = barred
	return s
}

// available is the memory that is free and not reserved, bytes.
func (g *GPU) available() uint64 {
	if g.Reserved >= g.MemoryFree {
		return 0
	}
	return g.MemoryFree - g.Reserved
}

// notProvisionable says why P2's nodeState is 0.
func notProvisionable(g *GPU) (reasons []Reason) {
	if g.Provisionable {
		return nil
	}
	add := func(c Code, text string) { reasons = append(reasons, Reason{Code: c, GPU: g.UUID, Text: text}) }
	if full(g) {
		add(Busy, "GPU use 100%")
	}
	if crowded(g) {
		add(MemoryFull, memoryFull(g))
	}
	if missed(g) {
		add(Missed, "a container there missed its last deadline")
	}
	return reasons
}

// missed reports whether the GPU is closed in P2's sense for a miss: of its three conditions,
// what the other two do not explain.
func missed(g *GPU) bool { return !g.Provisionable && !full(g) && !crowded(g) }

// crowded reports whether the exporter takes the memory for full.
func crowded(g *GPU) bool { return float64(g.MemoryFree) <= task.MemoryLeft*float64(g.MemoryTotal) }

// closed says why the predictive ranking does not look at the GPU.
func closed(g *GPU) []Reason {
	switch {
	case g.Open:
		return nil
	case full(g) && len(g.Work) == 0:
		return []Reason{{Code: Busy, GPU: g.UUID, Text: "GPU use 100% by tasks without a deadline"}}
	default:
		return []Reason{{Code: MemoryFull, GPU: g.UUID, Text: memoryFull(g)}}
	}
}

// full reports whether the exporter takes the time for all used.
func full(g *GPU) bool {
	u := float64(g.Utilization)
	return !math.IsNaN(u) && u >= task.FullUse
}
