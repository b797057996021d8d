package placer

import (
	"context"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// Source is where the facts come from. It MUST return an error rather than a part
// of what is asked for.
type Source interface {
	// Facts returns what is known now of the nodes that are asked for, and an error where no
	// node is known, asked for or not. What a node
	// has free and what its containers hold MUST be of one moment: what a container
	// holds would else count twice, or never.
	Facts(ctx context.Context, ask Ask) (Facts, error)
	// Tenants returns those of these containers, ids by node, that are known, and
	// whether the facts about these nodes are fresh: no longer, when the node does not reach
	// its container engine. A node that is not known is left out. Where no node is known it returns an error.
	Tenants(ctx context.Context, containers map[string][]string) (tenants map[string]Tenant, fresh map[string]bool, err error)
	// Pods returns those of the pods that are on their nodes, and what uses a GPU there: the zero Use
	// while nothing does.
	Pods(ctx context.Context, pods []PodOn) (uses map[PodOn]Use, err error)
	// Estimate returns how long a task of this image takes; 0 is not known.
	Estimate(ctx context.Context, image string) (task.Seconds, error)
}

// Tenant is what the facts show of a container.
type Tenant struct {
	// Memory is what it holds, bytes, by GPU.
	Memory map[string]uint64
	// Tasks counts its unfinished tasks.
	Tasks int
}

// Ask says which nodes a decision wants to know.
type Ask struct {
	// All nodes; else those of these names, and those of the list.
	All   bool
	Nodes []string
	List  *List
	// Containers are those, ids by node, whose part in the facts is wanted. A
	// source leaves out what is not on the nodes that it returns.
	Containers map[string][]string
}

// List is a short list: the nodes that come first for a request.
type List struct {
	Method placement.Method
	For    placement.Request
	// Limit is how many nodes, at most.
	Limit int
	// Busy: in the predictive ranking, all GPUs count and not only those without
	// work, which costs more.
	Busy bool
}

// Facts is what is known.
type Facts struct {
	// Nodes are in the order of their names.
	Nodes   []placement.Node
	Tenants map[string]Tenant
	// Rest speaks of the nodes that are not among Nodes; nil: these are all. It is
	// for the list's request; without a list it says nothing.
	Rest *placement.Rest
}
