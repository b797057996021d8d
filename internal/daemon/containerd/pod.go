package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
	if sandbox, container, err = e.CreatePod(ctx, p, s); err != nil {
		return sandbox, "", err
	}
	return sandbox, container, e.StartInPod(ctx, container)
}

// CreatePod is RunPod without the start of the container. The sandbox is there also after an error
// of its container.
func (e *Engine) CreatePod(ctx context.Context, p Pod, s Spec) (sandbox, container string, err error) {
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: RandomID()[:32]},
		Labels:       labelsOf(p, p.Labels, ""),
		Annotations:  p.Annotations,
		LogDirectory: e.logs(p),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    p.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespacesOf()},
		},
	}
	run, err := e.Pods.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", "", fmt.Errorf("run the sandbox: %w", err)
	}
	sandbox = run.GetPodSandboxId()
	created, err := e.Pods.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: containerConfig(p, s), SandboxConfig: config})
	if err != nil {
		return sandbox, "", fmt.Errorf("create a container in a pod: %w", err)
	}
	return sandbox, created.GetContainerId(), nil
}

// namespacesOf are those that kubelet asks for: the host's network, and the container's own processes.
func namespacesOf() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
}

func containerConfig(p Pod, s Spec) *cri.ContainerConfig {
	security := &cri.LinuxContainerSecurityContext{NamespaceOptions: namespacesOf()}
	if s.User != nil {
		security.RunAsUser = &cri.Int64Value{Value: *s.User}
	}
	c := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: s.Name},
		Image:    &cri.ImageSpec{Image: s.Image},
		Args:     s.Command,
		Labels:   labelsOf(p, s.Labels, s.Name),
		LogPath:  s.Name + ".log",
		Linux:    &cri.LinuxContainerConfig{SecurityContext: security},
	}
	for from, to := range s.Binds {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: from, ContainerPath: to})
	}
	for from, to := range s.ReadOnly {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: from, ContainerPath: to, Readonly: true})
	}
	for _, d := range s.Devices {
		c.Devices = append(c.Devices, &cri.Device{HostPath: d, ContainerPath: d, Permissions: "rwm"})
	}
	for _, env := range s.Env {
		key, value, _ := strings.Cut(env, "=")
		c.Envs = append(c.Envs, &cri.KeyValue{Key: key, Value: []byte(value)})
	}
	return c
}

// logs is the folder of what a pod's containers write.
func (e *Engine) logs(p Pod) string { return filepath.Join(e.dir, "log", p.Namespace+"_"+p.Name) }

// LogFile is where the CRI service writes what a container of a pod says: a line each, with time,
// stream and a tag before it.
func (e *Engine) LogFile(p Pod, container string) string {
	return filepath.Join(e.logs(p), container+".log")
}

// labelsOf are the labels that kubelet gives to a pod's sandbox, or to its container.
func labelsOf(p Pod, own map[string]string, container string) map[string]string {
	labels := map[string]string{"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": "uid-" + p.Name}
	if container != "" {
		labels["io.kubernetes.container.name"] = container
	}
	maps.Copy(labels, own)
	return labels
}

// StartInPod starts a container that CreatePod made.
func (e *Engine) StartInPod(ctx context.Context, container string) error {
	_, err := e.Pods.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container})
	return err
}

// StopInPod stops a container of a pod: it is killed if it does not end within patience, in whole
// seconds.
func (e *Engine) StopInPod(ctx context.Context, container string, patience time.Duration) error {
	_, err := e.Pods.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container, Timeout: int64(patience / time.Second)})
	return err
}

// RemoveInPod removes a stopped container of a pod.
func (e *Engine) RemoveInPod(ctx context.Context, container string) error {
	_, err := e.Pods.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: container})
	return err
}

// RemovePod removes a pod with all of its containers. One that is gone is no error.
func (e *Engine) RemovePod(ctx context.Context, sandbox string) error {
	_, stopped := e.Pods.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	_, removed := e.Pods.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	return errors.Join(unlessGone(stopped), unlessGone(removed))
}

// unlessGone leaves out that there is no such pod, which containerd, unlike the CRI's description, calls an error.
func unlessGone(err error) error {
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
