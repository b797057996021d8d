package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/pod"
)

// RequestOf reads what a pod needs from its labels laxity.deadline and laxity.gpu-memory, and from
// its annotations laxity.dev/deadline and laxity.dev/gpu-memory, which come first: as the exporter
// reads them on the node. What cannot be read counts as not there, and invalid says why. Ours is
// false for a pod that asks for neither: its scheduling is not our business.
func RequestOf(p *Pod) (req placement.Request, ours bool, invalid []task.InvalidLabel) {
	spec, invalid := task.ParseLabels(pod.Labels(nil, p.Metadata.Labels, p.Metadata.Annotations))
	req.Deadline, req.GPUMemory = spec.Deadline, spec.GPUMemory
	return req, req != placement.Request{}, invalid
}

// imageOf is the image whose tasks' history stands for how long a task takes: of the first container
// that asks for a GPU, else of the first one.
func imageOf(p *Pod) string {
	for _, c := range p.Spec.Containers {
		for resource := range c.Resources.Limits {
			if strings.HasPrefix(resource, "nvidia.com/") {
				return c.Image
			}
		}
	}
	if len(p.Spec.Containers) > 0 {
		return p.Spec.Containers[0].Image
	}
	return ""
}

// candidate is one node that the scheduler asks about.
type candidate struct {
	name string
	raw  json.RawMessage // nil when only names were given
}

func (a Args) candidates() ([]candidate, error) {
	var out []candidate
	switch {
	case a.NodeNames != nil:
		for _, name := range *a.NodeNames {
			out = append(out, candidate{name: name})
		}
	case a.Nodes != nil:
		for i, raw := range a.Nodes.Items {
			var n struct{ Metadata Metadata }
			if err := json.Unmarshal(raw, &n); err != nil || n.Metadata.Name == "" {
				return nil, fmt.Errorf("nodes.items[%d] has no metadata.name", i)
			}
			out = append(out, candidate{n.Metadata.Name, raw})
		}
	}
	return out, nil
}

// answer keeps the node that the pod was placed on, alone. Without one, it keeps the nodes that
// Laxity does not know: they go by what the scheduler knows. A node is Laxity's by its name, which
// must be the target label `node` of its exporter. Pure.
func answer(args Args, asked []candidate, placed string, r placement.Ranking) FilterResult {
	verdicts := byName(r)
	out := FilterResult{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}}
	var kept []candidate
	for _, c := range asked {
		v, known := verdicts[c.name]
		switch {
		case known && c.name == placed, !known && placed == "":
			kept = append(kept, c)
		case !known:
			out.FailedAndUnresolvableNodes[c.name] = "Laxity does not run there, and " + placed + " can take the pod"
		case v.Candidate():
			out.FailedAndUnresolvableNodes[c.name] = placed + " comes first"
		case slices.ContainsFunc(v.Reasons, func(r placement.Reason) bool { return r.Code == placement.NoGPU || r.Code == placement.Stale }):
			out.FailedAndUnresolvableNodes[c.name] = why(v)
		default:
			out.FailedNodes[c.name] = why(v)
		}
	}
	out.keep(args, kept)
	return out
}

// keep puts the nodes in, in the form in which they were asked about.
func (f *FilterResult) keep(args Args, kept []candidate) {
	if args.NodeNames != nil {
		names := make([]string, len(kept))
		for i, c := range kept {
			names[i] = c.name
		}
		f.NodeNames = &names
		return
	}
	list := &NodeList{Items: make([]json.RawMessage, len(kept))}
	if args.Nodes != nil {
		list.Metadata = args.Nodes.Metadata
	}
	for i, c := range kept {
		list.Items[i] = c.raw
	}
	f.Nodes = list
}

// why is one line: each reason once, with the number of GPUs where it is several.
func why(v placement.Verdict) string {
	var texts []string
	count := map[string]int{}
	for _, r := range v.Reasons {
		if count[r.Text]++; count[r.Text] == 1 {
			texts = append(texts, r.Text)
		}
	}
	for i, text := range texts {
		if n := count[text]; n > 1 {
			texts[i] = fmt.Sprintf("%d GPUs: %s", n, text)
		}
	}
	return strings.Join(texts, ", ")
}

func byName(r placement.Ranking) map[string]placement.Verdict {
	out := make(map[string]placement.Verdict, len(r))
	for _, v := range r {
		out[v.Node.Name] = v
	}
	return out
}
