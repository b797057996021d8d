// Package kubernetes is a scheduler extender: kube-scheduler asks it which of some nodes
// should take a pod with a deadline or GPU memory. The answer is the first one of the same
// ranking as everywhere else, and what the pod needs is reserved there.
//
// The types are ours, with the names of k8s.io/kube-scheduler/extender/v1, whose
// module would bring the whole of Kubernetes' API; `published` beside this file
// is a module of its own that holds them against the published ones. It imports
// actuator/placement, exporter/task, internal/pod, chi and the standard library.
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
	Spec     PodSpec  `json:"spec"`
}

// PodSpec has the containers of a pod.
type PodSpec struct {
	Containers []Container `json:"containers"`
}

// Container is one of a pod.
type Container struct {
	Image     string    `json:"image,omitempty"`
	Resources Resources `json:"resources"`
}

// Resources are what a container may use, by name (nvidia.com/gpu).
type Resources struct {
	Limits map[string]json.RawMessage `json:"limits,omitempty"`
}

// Metadata is of a pod or a node.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
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
