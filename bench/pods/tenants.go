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

// Tenants runs the containers of a tenant.Runner in pods.
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

// Wait waits for its end.
func (t Tenants) Wait(ctx context.Context, id string) (int, error) { return t.Ended(ctx, id) }

// Kill sends a signal, by its name (TERM), to its first process.
func (t Tenants) Kill(ctx context.Context, id, name string) error {
	pid, err := t.PID(ctx, id)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, unix.SignalNum("SIG"+name))
}

// Pause freezes it.
func (t Tenants) Pause(ctx context.Context, id string) error { return t.Freeze(ctx, id) }

// Unpause lets it go on.
func (t Tenants) Unpause(ctx context.Context, id string) error { return t.Thaw(ctx, id) }

// PID is its first process's.
func (t Tenants) PID(ctx context.Context, id string) (int, error) {
	pid, err := t.Process(ctx, id)
	if err == nil && pid == 0 {
		err = errors.New("it does not run")
	}
	return pid, err
}

// Output is what it has written.
func (t Tenants) Output(_ context.Context, id string) (stdout, stderr string, err error) {
	return t.Said(id)
}

// Remove ends and removes it.
func (t Tenants) Remove(ctx context.Context, id string) error { return t.Unmake(ctx, id) }

// Close is done by the engine's own.
func (t Tenants) Close(context.Context) error { return t.Engine.Close() }
