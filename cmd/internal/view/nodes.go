package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/internal/plain"
)

// Nodes writes the ranking: the summary, then a line for each node, with the GPU that a container
// would get, or why there is none.
func Nodes(w io.Writer, n api.Nodes, width int) error {
	if _, err := fmt.Fprintf(w, "%s  (ranking: %s)\n\n", plain.Line(n.Summary), plain.Line(string(n.Ranking))); err != nil {
		return err
	}
	lines := [][]string{{"NODE", "CANDIDATE", "GPU", "FREE", "RESERVED", "FLOAT", "WHY NOT"}}
	for _, node := range n.Nodes {
		candidate, gpu, free, reserved := "no", "-", "-", "-"
		if node.Candidate {
			candidate = "yes"
		}
		for _, g := range node.GPUs {
			if g.UUID != node.GPU {
				continue
			}
			gpu, free, reserved = g.UUID, placement.Bytes(g.MemoryFree), placement.Bytes(g.Reserved)
			if g.Index >= 0 {
				gpu = fmt.Sprint(g.Index)
			}
		}
		lines = append(lines, []string{node.Name, candidate, gpu, free, reserved, Float(node.Float), why(node)})
	}
	return Columns(w, lines, width, 6)
}

func why(n api.Node) string {
	var texts []string
	for _, r := range n.Reasons {
		text := r.Text
		if r.GPU != "" && len(n.GPUs) > 1 {
			for _, g := range n.GPUs {
				if g.UUID == r.GPU && g.Index >= 0 {
					text = fmt.Sprintf("GPU %d: %s", g.Index, text)
				}
			}
		}
		texts = append(texts, text)
	}
	if n.OpensIn > 0 {
		texts = append(texts, "expected to open in "+n.OpensIn.Duration().Round(time.Second).String())
	}
	return strings.Join(texts, "; ")
}

// Placements writes the placements, oldest first. The pods of Kubernetes have a column if any of
// these is for one; in a narrow terminal their names are cut first.
func Placements(w io.Writer, list []api.Placement, name func(node, gpu string) string, now time.Time, width int) error {
	const gpu, pod = 2, 6
	lines := [][]string{{"PLACEMENT", "NODE", "GPU", "MEMORY", "DEADLINE", "STATE", "POD", "CONTAINER", "ENDS IN"}}
	inPods := false
	for _, p := range list {
		ends := "-"
		if !p.Expires.IsZero() {
			ends = p.Expires.Sub(now).Round(time.Second).String()
		}
		container := "-"
		if p.Container != "" {
			container = p.Container[:min(12, len(p.Container))]
		}
		of := "-"
		if p.Pod.Name != "" {
			inPods, of = true, p.Pod.String()
		}
		lines = append(lines, []string{p.ID, p.Node, name(p.Node, p.GPU), Bytes(p.Memory), deadline(p.Deadline), string(p.State), of, container, ends})
	}
	if inPods {
		return Columns(w, lines, width, pod)
	}
	for i := range lines {
		lines[i] = slices.Delete(lines[i], pod, pod+1)
	}
	return Columns(w, lines, width, gpu)
}

// NamesOfNodes returns a function that names the GPUs of these nodes by index, or, if that is
// unknown, by the start of the UUID.
func NamesOfNodes(n api.Nodes) func(node, gpu string) string {
	return func(node, gpu string) string {
		for _, x := range n.Nodes {
			for _, g := range x.GPUs {
				if x.Name == node && g.UUID == gpu && g.Index >= 0 {
					return strconv.Itoa(g.Index)
				}
			}
		}
		return ShortGPU(gpu)
	}
}

// WholeGPU names a GPU by its UUID.
func WholeGPU(_, gpu string) string { return gpu }
