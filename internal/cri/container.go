package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/internal/oci"
	"github.com/laxity/laxity/internal/pod"
)

// State is how far a container is. The CRI knows no paused containers.
type State string

// The states of a container.
const (
	Created State = "created" // not started yet
	Running State = "running"
	Exited  State = "exited"
	// Unknown is also what CRI-O before 1.25 says of a container that its runtime calls paused.
	Unknown State = "unknown"
)

// Item is a container as a list has it.
type Item struct {
	ID, Sandbox string
	State       State
	listed      *api.Container
}

// Container is what the engine knows of a container.
type Container struct {
	ID    string
	State State
	// Name is what the container is called within its pod.
	Name string
	// PodNamespace and Pod are those of Kubernetes.
	PodNamespace, Pod string
	Image             string
	// Labels are the container's, with those of its pod, and the pod's annotations of Laxity as labels, over them.
	Labels map[string]string
	// PID is the first process, in the engine's PID namespace; 0 where the engine does not say.
	PID int
	// Started and Finished are zero where they have not happened, or are not known.
	Started, Finished time.Time
	oci.Spec
}

// Pods are sandboxes by their id.
type Pods map[string]*api.PodSandbox

// List returns all containers, also those that do not run; not the sandboxes.
func (c *Client) List(ctx context.Context) ([]Item, error) {
	listed, err := c.api.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", errgrpc.ToNative(err))
	}
	items := make([]Item, 0, len(listed.GetContainers()))
	for _, l := range listed.GetContainers() {
		items = append(items, Item{l.GetId(), l.GetPodSandboxId(), stateOf(l.GetState()), l})
	}
	return items, nil
}

// Pods lists the sandbox with this id; empty: all of them.
func (c *Client) Pods(ctx context.Context, id string) (Pods, error) {
	var filter *api.PodSandboxFilter
	if id != "" {
		filter = &api.PodSandboxFilter{Id: id}
	}
	listed, err := c.api.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", errgrpc.ToNative(err))
	}
	pods := make(Pods, len(listed.GetItems()))
	for _, p := range listed.GetItems() {
		pods[p.GetId()] = p
	}
	return pods, nil
}

// Listed is what a list alone tells of a container.
func (p Pods) Listed(i Item) Container {
	l := i.listed
	c := Container{ID: i.ID, State: i.State, Name: l.GetMetadata().GetName(), Image: image(l.GetImage(), l.GetImageRef())}
	c.inPod(l.GetLabels(), p[i.Sandbox])
	c.CDI = oci.CDI(l.GetAnnotations())
	return c
}

// Describe asks for a container by its id. The pod is asked for too, where pods has not got it. The
// error wraps errdefs.ErrNotFound where there is no such container.
func (c *Client) Describe(ctx context.Context, id string, pods Pods) (Container, error) {
	answer, err := c.api.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Container{}, fmt.Errorf("status of container %.12s: %w", id, errgrpc.ToNative(err))
	}
	s := answer.GetStatus()
	if s.GetId() != id { // engines take the beginning of an id, too
		return Container{}, fmt.Errorf("container %.12s: the engine answers with %.12s: %w", id, s.GetId(), errdefs.ErrNotFound)
	}
	out := Container{
		ID: id, State: stateOf(s.GetState()), Name: s.GetMetadata().GetName(), Image: image(s.GetImage(), s.GetImageRef()),
		Started: at(s.GetStartedAt()), Finished: at(s.GetFinishedAt()),
	}
	// What an engine adds is its own affair: containerd and CRI-O agree in these three.
	var info struct {
		Sandbox string          `json:"sandboxID"`
		PID     int             `json:"pid"`
		Spec    json.RawMessage `json:"runtimeSpec"`
	}
	_ = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info) // what cannot be read is not known
	out.PID, out.Spec = max(info.PID, 0), oci.Read(info.Spec)
	if out.CDI == nil {
		out.CDI = oci.CDI(s.GetAnnotations())
	}
	if pods[info.Sandbox] == nil && info.Sandbox != "" {
		if pods, err = c.Pods(ctx, info.Sandbox); err != nil {
			return Container{}, err
		}
	}
	out.inPod(s.GetLabels(), pods[info.Sandbox])
	return out, nil
}

// StateOf returns how far a container is, and when it ended.
func (c *Client) StateOf(ctx context.Context, id string) (state State, finished time.Time, err error) {
	answer, err := c.api.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return Unknown, time.Time{}, fmt.Errorf("status of container %.12s: %w", id, errgrpc.ToNative(err))
	}
	return stateOf(answer.GetStatus().GetState()), at(answer.GetStatus().GetFinishedAt()), nil
}

// inPod fills in what a container has of its pod; nil: the pod is gone.
func (c *Container) inPod(labels map[string]string, p *api.PodSandbox) {
	c.PodNamespace = cmp.Or(p.GetMetadata().GetNamespace(), labels[pod.SpaceLabel])
	c.Pod = cmp.Or(p.GetMetadata().GetName(), labels[pod.NameLabel])
	c.Name = cmp.Or(c.Name, labels[pod.ContainerLabel])
	c.Labels = pod.Labels(labels, p.GetLabels(), p.GetAnnotations())
}

// image is the image's name as the pod has it, where the engine keeps that.
func image(spec *api.ImageSpec, ref string) string {
	return cmp.Or(spec.GetUserSpecifiedImage(), spec.GetImage(), ref)
}

func at(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

func stateOf(s api.ContainerState) State {
	switch s {
	case api.ContainerState_CONTAINER_CREATED:
		return Created
	case api.ContainerState_CONTAINER_RUNNING:
		return Running
	case api.ContainerState_CONTAINER_EXITED:
		return Exited
	default:
		return Unknown
	}
}
