package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Spec is a container to run.
type Spec struct {
	Name    string
	Image   string
	Command []string
	Labels  map[string]string
	Env     []string
	Binds   map[string]string // path here → path there
}

// RandomID is an id as nerdctl gives: 64 hex digits.
func RandomID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// Run starts a container in the namespace default, as nerdctl does, and returns its id. Empty: id
// is a random one.
func (e *Engine) Run(ctx context.Context, id string, s Spec) (string, error) {
	ctx = namespaces.WithNamespace(ctx, "default")
	if id == "" {
		id = RandomID()
	}
	image, err := e.Client.GetImage(ctx, s.Image)
	if err != nil {
		return "", err
	}
	labels := map[string]string{"nerdctl/name": s.Name, "nerdctl/namespace": "default"}
	for key, value := range s.Labels {
		labels[key] = value
	}
	opts := []oci.SpecOpts{oci.WithImageConfigArgs(image, nil), oci.WithEnv(s.Env)}
	if len(s.Command) > 0 {
		opts = append(opts, oci.WithProcessArgs(s.Command...))
	}
	for from, to := range s.Binds {
		opts = append(opts, oci.WithMounts([]specs.Mount{{Type: "bind", Source: from, Destination: to, Options: []string{"rbind", "rw"}}}))
	}
	c, err := e.Client.NewContainer(ctx, id, client.WithImage(image), client.WithSnapshotter(snapshotter), client.WithNewSnapshot(id, image),
		client.WithContainerLabels(labels), client.WithNewSpec(opts...), client.WithRuntime("io.containerd.runc.v2", nil))
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	t, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return "", fmt.Errorf("create task: %w", err)
	}
	return id, t.Start(ctx)
}

// StopContainer kills a container of Run, and returns once containerd has told of it.
func (e *Engine) StopContainer(ctx context.Context, id string) error {
	ctx = namespaces.WithNamespace(ctx, "default")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told, errs := e.Client.Subscribe(ctx, `topic=="/tasks/exit"`)
	c, err := e.Client.LoadContainer(ctx, id)
	if err != nil {
		return err
	}
	t, err := c.Task(ctx, nil)
	if err != nil {
		return err
	}
	ended, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	if err := t.Kill(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	<-ended
	for {
		select {
		case envelope := <-told:
			event, err := typeurl.UnmarshalAny(envelope.Event)
			if exit, ok := event.(*api.TaskExit); err == nil && ok && exit.GetContainerID() == id {
				_, err := t.Delete(ctx)
				return err
			}
		case err := <-errs:
			return err
		}
	}
}

// RemoveContainer removes a container of Run, and kills it before.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	ctx = namespaces.WithNamespace(ctx, "default")
	c, err := e.Client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if t, err := c.Task(ctx, nil); err == nil {
		_ = t.Resume(ctx) // what is frozen may not be killed
		if _, err := t.Delete(ctx, client.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return c.Delete(ctx, client.WithSnapshotCleanup)
}

// SetLabels changes labels of a container, as nerdctl rename does.
func (e *Engine) SetLabels(ctx context.Context, namespace, id string, labels map[string]string) error {
	ctx = namespaces.WithNamespace(ctx, namespace)
	c, err := e.Client.LoadContainer(ctx, id)
	if err != nil {
		return err
	}
	_, err = c.SetLabels(ctx, labels)
	return err
}

// Pod is a pod with one container.
type Pod struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	// CgroupParent is where kubelet would put it; empty: containerd's own place.
	CgroupParent string
}

// RunPod makes a pod on the host's network and starts a container in it, as kubelet does. It
// returns the ids of sandbox and container.
func (e *Engine) RunPod(ctx context.Context, p Pod, s Spec) (sandbox, container string, err error) {
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: RandomID()[:32]},
		Labels:       labelsOf(p, p.Labels, ""),
		Annotations:  p.Annotations,
		LogDirectory: e.dir + "/log",
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    p.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
		},
	}
	run, err := e.Pods.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", "", fmt.Errorf("run the sandbox: %w", err)
	}
	container, err = e.InPod(ctx, run.GetPodSandboxId(), config, p, s)
	return run.GetPodSandboxId(), container, err
}

// InPod starts a container in a pod.
func (e *Engine) InPod(ctx context.Context, sandbox string, config *cri.PodSandboxConfig, p Pod, s Spec) (string, error) {
	c := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: s.Name},
		Image:    &cri.ImageSpec{Image: s.Image},
		Args:     s.Command,
		Labels:   labelsOf(p, s.Labels, s.Name),
		LogPath:  s.Name + ".log",
		Linux:    &cri.LinuxContainerConfig{},
	}
	for from, to := range s.Binds {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: from, ContainerPath: to})
	}
	for _, env := range s.Env {
		key, value, _ := strings.Cut(env, "=")
		c.Envs = append(c.Envs, &cri.KeyValue{Key: key, Value: []byte(value)})
	}
	created, err := e.Pods.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: c, SandboxConfig: config})
	if err != nil {
		return "", fmt.Errorf("create a container in a pod: %w", err)
	}
	_, err = e.Pods.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.GetContainerId()})
	return created.GetContainerId(), err
}

// labelsOf are the labels that kubelet gives to a pod's sandbox, or to its container.
func labelsOf(p Pod, own map[string]string, container string) map[string]string {
	labels := map[string]string{"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": "uid-" + p.Name}
	if container != "" {
		labels["io.kubernetes.container.name"] = container
	}
	for key, value := range own {
		labels[key] = value
	}
	return labels
}

// StopInPod stops a container of a pod.
func (e *Engine) StopInPod(ctx context.Context, container string) error {
	_, err := e.Pods.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container})
	return err
}

// RemoveInPod removes a stopped container of a pod.
func (e *Engine) RemoveInPod(ctx context.Context, container string) error {
	_, err := e.Pods.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: container})
	return err
}

// RemovePod removes a pod with all of its containers.
func (e *Engine) RemovePod(ctx context.Context, sandbox string) error {
	_, stopped := e.Pods.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	_, removed := e.Pods.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return errors.Join(stopped, removed)
}
