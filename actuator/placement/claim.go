package placement

import "slices"

// Claim is what a container with a reservation takes of a GPU and what the facts do not
// show yet.
type Claim struct {
	Node, GPU string
	// Memory is bytes.
	Memory uint64
	// Work of its first task; nil when it has none, or when the facts show it.
	Work *Work
}

// WorkOf is the work that a request brings, its first task starting now; nil
// without a deadline.
func WorkOf(req Request) *Work {
	if req.Deadline <= 0 {
		return nil
	}
	w := &Work{Container: "a reserved container", Due: req.Deadline, Left: req.Estimate}
	if w.Left <= 0 {
		w.Left = w.Due
	}
	return w
}

// Reserve takes the claims off the nodes, which must be in the order of their
// names. It changes them: facts that others read must be copied before. A claim
// on a node or GPU that is not there says nothing.
func Reserve(nodes []Node, claims ...Claim) {
	for _, c := range claims {
		i, ok := find(nodes, c.Node)
		if !ok {
			continue
		}
		for j := range nodes[i].GPUs {
			g := &nodes[i].GPUs[j]
			if g.UUID != c.GPU {
				continue
			}
			g.Reserved += c.Memory
			g.Promised++
			if c.Work != nil {
				// A new slice: others may share the old one.
				g.Work = append(g.Work[:len(g.Work):len(g.Work)], c.work())
			}
		}
	}
}

// Unreserve gives back what Reserve took for the claim.
func Unreserve(nodes []Node, c Claim) {
	i, ok := find(nodes, c.Node)
	if !ok {
		return
	}
	for j := range nodes[i].GPUs {
		g := &nodes[i].GPUs[j]
		if g.UUID != c.GPU {
			continue
		}
		g.Reserved -= c.Memory
		g.Promised--
		if c.Work == nil {
			continue
		}
		if k := slices.Index(g.Work, c.work()); k >= 0 {
			g.Work = slices.Delete(slices.Clone(g.Work), k, k+1)
		}
	}
}

// work is the claim's work as the GPU has it: with the memory that is free once it has ended.
func (c Claim) work() Work {
	w := *c.Work
	w.Memory = c.Memory
	return w
}

func find(nodes []Node, name string) (int, bool) {
	low, high := 0, len(nodes)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if nodes[mid].Name < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < len(nodes) && nodes[low].Name == name
}

// Largest returns the most memory that a GPU of these nodes has, bytes; 0 when
// none is known.
func Largest(nodes []Node) (memory uint64, node string) {
	for _, n := range nodes {
		for _, g := range n.GPUs {
			if g.MemoryTotal > memory {
				memory, node = g.MemoryTotal, n.Name
			}
		}
	}
	return memory, node
}
