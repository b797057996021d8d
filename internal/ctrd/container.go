package ctrd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/internal/oci"
	"github.com/laxity/laxity/internal/pod"
)

// Container is what containerd knows of a container, whether it runs or not.
type Container struct {
	Namespace, ID string
	// Name is what the container is called within its namespace, or within its pod.
	Name string
	// PodNamespace and Pod are those of Kubernetes; empty for a container in no pod.
	PodNamespace, Pod string
	// Sandbox: it only keeps a pod's namespaces open, and nobody asked for it.
	Sandbox bool
	Image   string
	// Labels are the container's, with those of its pod, and the pod's annotations of Laxity as labels, over them.
	Labels map[string]string
	oci.Spec
}

// Keys of labels and annotations that others write.
const (
	kindLabel     = "io.cri-containerd.kind" // container or sandbox
	sandboxID     = "io.kubernetes.cri.sandbox-id"
	containerName = "io.kubernetes.cri.container-name"
	imageName     = "io.kubernetes.cri.image-name"
	nerdctlName   = "nerdctl/name"
)

// Containers lists those of a namespace, also those that do not run; not the sandboxes.
func (c *Client) Containers(ctx context.Context, namespace string) ([]Container, error) {
	records, err := c.client.ContainerService().List(in(ctx, namespace))
	if err != nil {
		return nil, fmt.Errorf("list containers of namespace %s: %w", namespace, err)
	}
	var pods map[string]*api.PodSandbox
	out := make([]Container, 0, len(records))
	for _, r := range records {
		switch r.Labels[kindLabel] {
		case "sandbox":
			continue
		case "container":
			if pods == nil {
				if pods, err = c.sandboxes(ctx, nil); err != nil {
					return nil, err
				}
			}
		}
		out = append(out, describe(namespace, r, func(id string) *api.PodSandbox { return pods[id] }))
	}
	return out, nil
}

// Container returns one. The error wraps errdefs.ErrNotFound where there is none.
func (c *Client) Container(ctx context.Context, namespace, id string) (Container, error) {
	r, err := c.client.ContainerService().Get(in(ctx, namespace), id)
	if err != nil {
		return Container{}, fmt.Errorf("container %s: %w", id, err)
	}
	var failed error
	found := describe(namespace, r, func(id string) *api.PodSandbox {
		var pods map[string]*api.PodSandbox
		pods, failed = c.sandboxes(ctx, &api.PodSandboxFilter{Id: id})
		return pods[id]
	})
	return found, failed
}

// sandboxes asks the CRI service for pods, by the id of their sandbox. Without such a service
// there are none.
func (c *Client) sandboxes(ctx context.Context, which *api.PodSandboxFilter) (map[string]*api.PodSandbox, error) {
	listed, err := c.pods.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: which})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotImplemented(err) {
		return nil, fmt.Errorf("list the pods of the CRI service: %w", err)
	}
	pods := make(map[string]*api.PodSandbox, len(listed.GetItems()))
	for _, p := range listed.GetItems() {
		pods[p.GetId()] = p
	}
	return pods, nil
}

// describe reads a record. It asks podOf for the pod of a container that the CRI service made.
func describe(namespace string, r containers.Container, podOf func(sandbox string) *api.PodSandbox) Container {
	c := Container{Namespace: namespace, ID: r.ID, Image: r.Image, Labels: r.Labels, Sandbox: r.Labels[kindLabel] == "sandbox"}
	var s oci.Spec
	if r.Spec != nil {
		s = oci.Read(r.Spec.GetValue())
	}
	c.Spec = s
	c.Name = cmp.Or(r.Labels[pod.ContainerLabel], s.Annotations[containerName], r.Labels[nerdctlName], short(r.ID))
	if r.Labels[kindLabel] != "container" {
		return c
	}
	c.Image = cmp.Or(s.Annotations[imageName], c.Image)
	c.inPod(podOf(cmp.Or(s.Annotations[sandboxID], r.SandboxID)))
	return c
}

// inPod fills in what a container has of its pod; nil: the pod is gone.
func (c *Container) inPod(p *api.PodSandbox) {
	c.PodNamespace = cmp.Or(p.GetMetadata().GetNamespace(), c.Labels[pod.SpaceLabel])
	c.Pod = cmp.Or(p.GetMetadata().GetName(), c.Labels[pod.NameLabel])
	c.Labels = pod.Labels(c.Labels, p.GetLabels(), p.GetAnnotations())
}

// Watchable reports whether the container can be told from the path of its control group, by its id.
func (c Container) Watchable() bool { return oci.LongID(c.ID) }

// short is a long id as people write it.
func short(id string) string { return id[:min(len(id), 12)] }
