package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// RequestOf reads what a pod needs from its annotations laxity.deadline and
// laxity.gpu-memory, else from its labels of the same names. Ours is false for a
// pod that has neither: its scheduling is not our business.
func RequestOf(p *Pod) (req placement.Request, ours bool, err error) {
	value := func(name string) string {
		return cmp.Or(p.Metadata.Annotations[name], p.Metadata.Labels[name])
	}
	if text := value(task.LabelDeadline); text != "" {
		d, err := task.ParseDeadline(text)
		if err != nil {
			return req, true, fmt.Errorf("%s %q: %w", task.LabelDeadline, text, err)
		}
		req.Deadline, ours = task.SecondsOf(d), true
	}
	if text := value(task.LabelGPUMemory); text != "" {
		n, err := task.ParseBytes(text)
		if err != nil {
			return req, true, fmt.Errorf("%s %q: %w", task.LabelGPUMemory, text, err)
		}
		req.GPUMemory, ours = n, true
	}
	return req, ours, nil
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

// filter keeps the nodes that can take the pod. A node is Laxity's by its name,
// which must be the target label `node` of its exporter. Pure.
func filter(args Args, r placement.Ranking) (FilterResult, error) {
	asked, err := args.candidates()
	if err != nil {
		return FilterResult{}, err
	}
	verdicts := byName(r)
	out := FilterResult{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}}
	var kept []candidate
	for _, c := range asked {
		v, known := verdicts[c.name]
		switch {
		case !known:
			out.FailedAndUnresolvableNodes[c.name] = "Laxity knows no such node: is laxity-exporter scraped there with the label node=" + c.name + "?"
		case v.Candidate():
			kept = append(kept, c)
		case slices.ContainsFunc(v.Reasons, func(r placement.Reason) bool { return r.Code == placement.NoGPU || r.Code == placement.Stale }):
			out.FailedAndUnresolvableNodes[c.name] = why(v)
		default:
			out.FailedNodes[c.name] = why(v)
		}
	}
	out.keep(args, kept)
	return out, nil
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

// prioritize scores the nodes by their places in the ranking: the first one
// MaxPriority, the last candidate 1, what is no candidate 0. Equal scores stay
// equal. Pure.
func prioritize(args Args, r placement.Ranking) ([]HostPriority, error) {
	asked, err := args.candidates()
	if err != nil {
		return nil, err
	}
	in := map[string]bool{}
	for _, c := range asked {
		in[c.name] = true
	}
	candidates := slices.DeleteFunc(slices.Clone(r), func(v placement.Verdict) bool { return !v.Candidate() || !in[v.Node.Name] })
	scores := map[string]int64{}
	place := 0
	for i, v := range candidates {
		if i > 0 && v.Score != candidates[i-1].Score {
			place = i
		}
		scores[v.Node.Name] = MaxPriority - int64((MaxPriority-1)*place/max(1, len(candidates)-1))
	}
	out := make([]HostPriority, 0, len(asked))
	for _, c := range asked {
		out = append(out, HostPriority{c.name, scores[c.name]})
	}
	return out, nil
}

func byName(r placement.Ranking) map[string]placement.Verdict {
	out := make(map[string]placement.Verdict, len(r))
	for _, v := range r {
		out[v.Node.Name] = v
	}
	return out
}
