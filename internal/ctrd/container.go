package ctrd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Annotation begins the annotations of a pod that Laxity reads. laxity.dev/deadline on a pod is
// the label laxity.deadline on each of its containers.
const Annotation = "laxity.dev/"

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
	Command []string
	// Labels are the container's, with those of its pod, and the pod's annotations of Laxity as labels, over them.
	Labels map[string]string
	// Env is the environment of its first process; Devices are the device files that it got, CDI
	// the names of devices that were asked for by annotation (vendor.com/class=name).
	Env, Devices, CDI []string
}

// spec is what we read of a container's OCI specification.
type spec struct {
	Process struct {
		Args []string `json:"args"`
		Env  []string `json:"env"`
	} `json:"process"`
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Devices []struct {
			Path string `json:"path"`
		} `json:"devices"`
	} `json:"linux"`
}

// Keys of labels and annotations that others write.
const (
	kindLabel      = "io.cri-containerd.kind" // container or sandbox
	sandboxID      = "io.kubernetes.cri.sandbox-id"
	containerName  = "io.kubernetes.cri.container-name"
	podNameLabel   = "io.kubernetes.pod.name"
	podSpaceLabel  = "io.kubernetes.pod.namespace"
	inPodLabel     = "io.kubernetes.container.name"
	imageName      = "io.kubernetes.cri.image-name"
	nerdctlName    = "nerdctl/name"
	cdiAnnotations = "cdi.k8s.io/"
)

// Containers lists those of a namespace, also those that do not run; not the sandboxes.
func (c *Client) Containers(ctx context.Context, namespace string) ([]Container, error) {
	records, err := c.client.ContainerService().List(in(ctx, namespace))
	if err != nil {
		return nil, fmt.Errorf("list containers of namespace %s: %w", namespace, err)
	}
	var pods map[string]*cri.PodSandbox
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
		out = append(out, describe(namespace, r, func(id string) *cri.PodSandbox { return pods[id] }))
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
	found := describe(namespace, r, func(id string) *cri.PodSandbox {
		var pods map[string]*cri.PodSandbox
		pods, failed = c.sandboxes(ctx, &cri.PodSandboxFilter{Id: id})
		return pods[id]
	})
	return found, failed
}

// sandboxes asks the CRI service for pods, by the id of their sandbox. Without such a service
// there are none.
func (c *Client) sandboxes(ctx context.Context, which *cri.PodSandboxFilter) (map[string]*cri.PodSandbox, error) {
	listed, err := c.pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: which})
	if err = errgrpc.ToNative(err); err != nil && !errdefs.IsNotImplemented(err) {
		return nil, fmt.Errorf("list the pods of the CRI service: %w", err)
	}
	pods := make(map[string]*cri.PodSandbox, len(listed.GetItems()))
	for _, p := range listed.GetItems() {
		pods[p.GetId()] = p
	}
	return pods, nil
}

// describe reads a record. It asks podOf for the pod of a container that the CRI service made.
func describe(namespace string, r containers.Container, podOf func(sandbox string) *cri.PodSandbox) Container {
	c := Container{Namespace: namespace, ID: r.ID, Image: r.Image, Labels: r.Labels, Sandbox: r.Labels[kindLabel] == "sandbox"}
	var s spec
	if r.Spec != nil {
		_ = json.Unmarshal(r.Spec.GetValue(), &s) // what cannot be read is not known
	}
	c.Command, c.Env = s.Process.Args, s.Process.Env
	for _, d := range s.Linux.Devices {
		c.Devices = append(c.Devices, d.Path)
	}
	for key, value := range s.Annotations {
		if strings.HasPrefix(key, cdiAnnotations) {
			c.CDI = append(c.CDI, strings.Split(value, ",")...)
		}
	}
	c.Name = cmp.Or(r.Labels[inPodLabel], s.Annotations[containerName], r.Labels[nerdctlName], short(r.ID))
	if r.Labels[kindLabel] != "container" {
		return c
	}
	c.Image = cmp.Or(s.Annotations[imageName], c.Image)
	c.inPod(podOf(cmp.Or(s.Annotations[sandboxID], r.SandboxID)))
	return c
}

// inPod fills in what a container has of its pod; nil: the pod is gone.
func (c *Container) inPod(p *cri.PodSandbox) {
	c.PodNamespace = cmp.Or(p.GetMetadata().GetNamespace(), c.Labels[podSpaceLabel])
	c.Pod = cmp.Or(p.GetMetadata().GetName(), c.Labels[podNameLabel])
	labels := maps.Clone(c.Labels)
	maps.Copy(labels, p.GetLabels())
	for key, value := range p.GetAnnotations() {
		if name, ok := strings.CutPrefix(key, Annotation); ok {
			labels["laxity."+name] = value
		}
	}
	c.Labels = labels
}

// idLength is the length of the ids that nerdctl and Kubernetes give: 32 bytes in hex.
const idLength = 64

// Watchable reports whether the container can be told from the path of its control group, by its id.
func (c Container) Watchable() bool { return Watchable(c.ID) }

// Watchable is Container.Watchable for an id.
func Watchable(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}

// short is a long id as people write it.
func short(id string) string { return id[:min(len(id), 12)] }
