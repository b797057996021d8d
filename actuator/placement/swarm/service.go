package swarm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/swarm"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// ErrNoNode means that no node of the swarm can take the service.
var ErrNoNode = errors.New("no node can take the service")

// Placed is a service that was created.
type Placed struct {
	ID       string   `json:"id"`
	Node     string   `json:"node"`
	GPU      string   `json:"gpu"`
	Warnings []string `json:"warnings,omitempty"`
}

// Reserved is a GPU that is kept for a service until its container holds its memory, for a time.
type Reserved struct{ ID, Node, GPU string }

// Reserver keeps GPUs.
type Reserver interface {
	// Reserve reserves a GPU on the best of the nodes named in among. Where none of them can take the request
	// nothing is reserved, and the node is empty. The ranking is of those that are known.
	Reserve(ctx context.Context, among []string, req placement.Request) (Reserved, placement.Ranking, error)
	// Release takes a reservation back.
	Release(ctx context.Context, id string) error
}

// Place creates a service on the best node that is in the swarm
// and ready, where it reserves a GPU: the constraint pins its task there, the labels make it Laxity's, and
// NVIDIA_VISIBLE_DEVICES gives it the chosen GPU (Swarm knows no --gpus: the
// node's default runtime must be nvidia). The service must have one replica.
func (s *Swarm) Place(ctx context.Context, spec swarm.ServiceSpec, req placement.Request, gpus Reserver) (Placed, error) {
	if err := single(spec); err != nil {
		return Placed{}, err
	}
	list, err := s.members(ctx)
	if err != nil {
		return Placed{}, err
	}
	ids := s.ready(list)
	got, ranking, err := gpus.Reserve(ctx, slices.Sorted(maps.Keys(ids)), req)
	if err != nil {
		return Placed{}, err
	}
	if got.Node == "" {
		return Placed{}, fmt.Errorf("%w: %s; %s; %d nodes of the swarm are ready", ErrNoNode, ranking.Summary(), ranking.Expected(), len(ids))
	}
	out := Placed{Node: got.Node, GPU: got.GPU}
	if s.o.DryRun {
		return out, gpus.Release(ctx, got.ID)
	}
	resp, err := s.o.Engine.ServiceCreate(ctx, pin(spec, ids[got.Node], got.GPU, req), swarm.ServiceCreateOptions{})
	if err != nil {
		_ = gpus.Release(context.WithoutCancel(ctx), got.ID) // it would expire
		return Placed{}, fmt.Errorf("swarm: create service %s: %w", spec.Name, err)
	}
	out.ID, out.Warnings = resp.ID, resp.Warnings
	return out, nil
}

// ready returns the ids of the nodes that take tasks, by name. Which of two nodes of one name the metrics
// are about nobody can say, so neither is among them.
func (s *Swarm) ready(list []swarm.Node) map[string]string {
	ids := map[string]string{}
	var members []member
	for _, n := range list {
		m := memberOf(n)
		members = append(members, m)
		if m.ready {
			ids[m.name] = m.id
		}
	}
	count := upByName(members)
	maps.DeleteFunc(ids, func(name, _ string) bool {
		if count[name] > 1 {
			s.o.Logger.Warn("a node of the swarm is not used", "node", name, "why", sameName)
		}
		return count[name] > 1
	})
	return ids
}

// single refuses what one decision cannot be about.
func single(spec swarm.ServiceSpec) error {
	if spec.TaskTemplate.ContainerSpec == nil {
		return errors.New("the service has no container: give service.TaskTemplate.ContainerSpec, with its Image")
	}
	r := spec.Mode.Replicated
	if spec.Mode.Global != nil || spec.Mode.ReplicatedJob != nil && spec.Mode.ReplicatedJob.MaxConcurrent != nil && *spec.Mode.ReplicatedJob.MaxConcurrent > 1 ||
		spec.Mode.GlobalJob != nil || r != nil && r.Replicas != nil && *r.Replicas > 1 {
		return errors.New("a placed service has one replica: place each by itself, or use a constraint on node.labels." + LabelProvisionable)
	}
	return nil
}

// pin returns the specification with constraint, labels and GPU. Pure: what it is
// given is not changed.
func pin(spec swarm.ServiceSpec, node, gpu string, req placement.Request) swarm.ServiceSpec {
	p := swarm.Placement{}
	if spec.TaskTemplate.Placement != nil {
		p = *spec.TaskTemplate.Placement
	}
	p.Constraints = append(slices.Clone(p.Constraints), "node.id=="+node)
	spec.TaskTemplate.Placement = &p
	c := *spec.TaskTemplate.ContainerSpec
	c.Labels = maps.Clone(c.Labels)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	if req.Deadline > 0 {
		c.Labels[task.LabelDeadline] = strconv.FormatFloat(float64(req.Deadline), 'g', -1, 64) + "s"
	}
	if req.GPUMemory > 0 {
		c.Labels[task.LabelGPUMemory] = strconv.FormatUint(req.GPUMemory, 10)
	}
	const visible = "NVIDIA_VISIBLE_DEVICES="
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, visible) })
	c.Env = append(c.Env, visible+gpu)
	spec.TaskTemplate.ContainerSpec = &c
	return spec
}
