package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"golang.org/x/sys/unix"

	simtenant "github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/internal/daemon/containerd"
)

// Tenants runs the containers of a tenant.Runner in pods: what it has not itself the engine has.
type Tenants struct{ *Engine }

const (
	tenantsImage = "laxity.test/tenant:1"
	tenantsSpace = "bench"
	workload     = "/matmul" // in the image
)

// NVIDIA reports that no runtime of NVIDIA's gives containers their GPUs.
func (Tenants) NVIDIA(context.Context) (bool, error) { return false, nil }

// Image makes the workload's image.
func (t Tenants) Image(ctx context.Context) error {
	root, err := simtenant.Root(ctx)
	if err != nil {
		return err
	}
	layer, err := io.ReadAll(root)
	if err != nil {
		return err
	}
	return t.ImportLayer(ctx, tenantsImage, layer, nil)
}

// Create makes a container.
func (t Tenants) Create(ctx context.Context, name string, c *container.Config, host *container.HostConfig) (string, error) {
	if host.IpcMode != "" || host.PidMode != "" || host.RestartPolicy.Name != "" || len(host.DeviceRequests) > 0 {
		return "", errors.New("a pod of an experiment has its own IPC and PID namespaces, no restart policy and no NVIDIA runtime")
	}
	s := containerd.Spec{Image: tenantsImage, Env: c.Env, Command: slices.Concat(c.Entrypoint, c.Cmd), Binds: map[string]string{}, ReadOnly: map[string]string{}}
	if len(c.Entrypoint) == 0 {
		s.Command = slices.Concat([]string{workload}, c.Cmd)
	}
	for _, m := range host.Mounts {
		switch {
		case m.Type != mount.TypeBind:
			return "", fmt.Errorf("mount %s: a pod of an experiment has binds only", m.Target)
		case m.ReadOnly:
			s.ReadOnly[m.Source] = m.Target
		default:
			s.Binds[m.Source] = m.Target
		}
	}
	for _, d := range host.Devices {
		s.Devices = append(s.Devices, d.PathOnHost)
	}
	return t.Make(ctx, tenantsSpace, name, c.Labels, s)
}

// Start starts it.
func (t Tenants) Start(ctx context.Context, id string) error { return t.StartInPod(ctx, id) }

// Kill sends a signal, by its name (TERM), to its first process.
func (t Tenants) Kill(ctx context.Context, id, name string) error {
	pid, err := t.PID(ctx, id)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, unix.SignalNum("SIG"+name))
}

// PID is its first process's.
func (t Tenants) PID(ctx context.Context, id string) (int, error) {
	pid, err := t.Process(ctx, id)
	if err == nil && pid == 0 {
		err = errors.New("it does not run")
	}
	return pid, err
}

// Close is done by the engine's own.
func (t Tenants) Close(context.Context) error { return t.Engine.Close() }
