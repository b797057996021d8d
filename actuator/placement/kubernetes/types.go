// Package kubernetes is a scheduler extender: kube-scheduler asks it which nodes
// can take a pod with a deadline (filter), and which it should prefer
// (prioritize). The answers are the same ranking as everywhere else.
//
// The types are ours, with the names of k8s.io/kube-scheduler/extender/v1, whose
// module would bring the whole of Kubernetes' API; `published` beside this file
// is a module of its own that holds them against the published ones. It imports
// actuator/placement, exporter/task, chi and the standard library.
package kubernetes

import "encoding/json"

// Args is ExtenderArgs: what the scheduler asks. Either Nodes or NodeNames is
// set, by the extender's nodeCacheCapable.
type Args struct {
	Pod       *Pod
	Nodes     *NodeList
	NodeNames *[]string
}

// Pod is what of a v1.Pod the answer depends on.
type Pod struct {
	Metadata Metadata `json:"metadata"`
}

// Metadata is of a pod or a node.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeList is a v1.NodeList. Its items are passed back as they came.
type NodeList struct {
	Metadata json.RawMessage   `json:"metadata,omitempty"`
	Items    []json.RawMessage `json:"items"`
}

// FilterResult is ExtenderFilterResult.
type FilterResult struct {
	Nodes     *NodeList
	NodeNames *[]string
	// FailedNodes: why each of the others cannot take the pod now. What is in
	// FailedAndUnresolvableNodes would not help even if other pods went.
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	// Error is about the question as a whole.
	Error string
}

// HostPriority is one item of HostPriorityList, the answer to prioritize.
type HostPriority struct {
	Host string
	// Score is from 0 to MaxPriority, higher is better.
	Score int64
}

// MaxPriority is MaxExtenderPriority.
const MaxPriority = 10
