// Package tenant runs containers that do GPU work, for the demonstration and the
// experiments: the CUDA workload of internal/workload on a real or a simulated GPU.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	simtenant "github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/internal/workload"
)

// Label marks every container that a Runner makes; its value is the runner's.
const Label = "com.github.laxity.tenant"

// programPath is where Spec.Program is in a container.
const programPath = "/program"

// Runner makes tenants that all use the same GPUs.
type Runner struct {
	docker *client.Client
	image  string
	name   string
	host   container.HostConfig
	env    []string
}

// Options of a Runner.
type Options struct {
	DockerHost string // empty: DOCKER_HOST, else the usual socket
	// Socket is that of a simulated GPU; empty means the NVIDIA GPUs of this host.
	Socket string
	// Name goes into the names of image and containers, to tell runs apart.
	Name string
}

// New connects to the engine and builds the image. It needs gcc, and no
// registry. Close removes what is left.
func New(ctx context.Context, o Options) (_ *Runner, err error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if o.DockerHost != "" {
		opts = append(opts, client.WithHost(o.DockerHost))
	}
	docker, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	r := &Runner{docker: docker, image: "laxity-tenant:" + o.Name, name: o.Name}
	defer func() {
		if err != nil {
			err = errors.Join(err, docker.Close())
		}
	}()
	info, err := docker.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("the Docker engine does not answer (is it running, and may you use it?): %w", err)
	}
	r.host.NetworkMode = "none"
	if o.Socket != "" {
		library, err := cuda.Build("")
		if err != nil {
			return nil, err
		}
		r.host.Mounts = simtenant.Mounts(o.Socket, library)
		r.env = simtenant.Env(o.Socket)
	} else if err := nvidia(info, &r.host, &r.env); err != nil {
		return nil, err
	}
	return r, simtenant.BuildImage(ctx, docker, r.image)
}

// Made reports whether this runner made the container, for exporter.Options.Keep.
func (r *Runner) Made(c observed.Container) bool { return c.Labels[Label] == r.name }

// Tenant is one container of a Runner.
type Tenant struct {
	Name, ID string
	runner   *Runner
}

// Spec says what a tenant is to be.
type Spec struct {
	Name   string            // of the container
	Labels map[string]string // laxity.* and others
	Args   []string          // of the workload; see matmul --help
	Env    []string
	// Program is a file of this machine that runs in place of the workload, with Args. It may
	// link to libc, libdl, libm and libpthread.
	Program string
	// GPUs are the indices of those that it is given; nil: all.
	GPUs []int
	// Mounts are added to those that every tenant has. IPC and PID are Docker's --ipc and
	// --pid; empty is the engine's default.
	Mounts   []mount.Mount
	IPC, PID string
	// Restarts: the engine starts it again whenever it has ended, and asks it for
	// no end before it kills it.
	Restarts bool
}

// Start makes a tenant that runs the CUDA workload, and starts it.
func (r *Runner) Start(ctx context.Context, s Spec) (*Tenant, error) {
	t, err := r.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return t, t.startOrRemove(ctx)
}

// Create makes a tenant that runs the CUDA workload, for Tenant.Start to start,
// so that many can be started in the same moment.
func (r *Runner) Create(ctx context.Context, s Spec) (*Tenant, error) {
	return r.create(ctx, s, &container.Config{Cmd: s.Args, Env: slices.Concat(r.env, s.Env)}, r.host)
}

func (r *Runner) start(ctx context.Context, s Spec, config *container.Config, host container.HostConfig) (*Tenant, error) {
	t, err := r.create(ctx, s, config, host)
	if err != nil {
		return nil, err
	}
	return t, t.startOrRemove(ctx)
}

func (r *Runner) create(ctx context.Context, s Spec, config *container.Config, host container.HostConfig) (*Tenant, error) {
	host.Mounts = slices.Concat(host.Mounts, s.Mounts)
	if s.GPUs != nil {
		give(s.GPUs, &host, &config.Env)
	}
	if s.Program != "" {
		config.Entrypoint = []string{programPath}
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: s.Program, Target: programPath, ReadOnly: true})
	}
	host.IpcMode, host.PidMode = container.IpcMode(s.IPC), container.PidMode(s.PID)
	if s.Restarts {
		host.RestartPolicy.Name, config.StopSignal = container.RestartPolicyAlways, "SIGKILL"
	}
	config.Image = r.image
	config.Labels = map[string]string{Label: r.name}
	maps.Copy(config.Labels, s.Labels)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The engine goes on with what it was asked for when the caller is gone: a
	// container that nobody knows of would stay behind.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	made, err := r.docker.ContainerCreate(making, config, &host, nil, nil, s.Name)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.Name, err)
	}
	return &Tenant{Name: s.Name, ID: made.ID, runner: r}, nil
}

// Start starts a tenant that was created.
func (t *Tenant) Start(ctx context.Context) error {
	if err := t.runner.docker.ContainerStart(ctx, t.ID, container.StartOptions{}); err != nil {
		return fmt.Errorf("start container %s: %w", t.Name, err)
	}
	return nil
}

func (t *Tenant) startOrRemove(ctx context.Context) error {
	if err := t.Start(ctx); err != nil {
		return errors.Join(err, t.Remove())
	}
	return nil
}

// Wait waits for the tenant's end. An exit code other than 0 is an error that
// quotes what the program said.
func (t *Tenant) Wait(ctx context.Context) error {
	ended, failed := t.runner.docker.ContainerWait(ctx, t.ID, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		if end.StatusCode == 0 {
			return nil
		}
		_, stderr, _ := t.output(ctx)
		return fmt.Errorf("container %s ended with code %d: %s", t.Name, end.StatusCode, strings.TrimSpace(stderr))
	case err := <-failed:
		return fmt.Errorf("wait for container %s: %w", t.Name, err)
	}
}

// Signal sends a signal to the tenant's first process, by its name (TERM).
func (t *Tenant) Signal(ctx context.Context, name string) error {
	if err := t.runner.docker.ContainerKill(ctx, t.ID, name); err != nil {
		return fmt.Errorf("signal to container %s: %w", t.Name, err)
	}
	return nil
}

// Pause freezes the tenant's processes.
func (t *Tenant) Pause(ctx context.Context) error {
	if err := t.runner.docker.ContainerPause(ctx, t.ID); err != nil {
		return fmt.Errorf("pause container %s: %w", t.Name, err)
	}
	return nil
}

// Unpause lets them go on.
func (t *Tenant) Unpause(ctx context.Context) error {
	if err := t.runner.docker.ContainerUnpause(ctx, t.ID); err != nil {
		return fmt.Errorf("unpause container %s: %w", t.Name, err)
	}
	return nil
}

// PID returns the number of the tenant's first process on the host.
func (t *Tenant) PID(ctx context.Context) (int, error) {
	c, err := t.runner.docker.ContainerInspect(ctx, t.ID)
	if err != nil {
		return 0, fmt.Errorf("container %s: %w", t.Name, err)
	}
	if c.State == nil || c.State.Pid == 0 {
		return 0, fmt.Errorf("container %s does not run", t.Name)
	}
	return c.State.Pid, nil
}

// Timeline returns what the workload printed so far.
func (t *Tenant) Timeline(ctx context.Context) ([]workload.Event, error) {
	stdout, _, err := t.output(ctx)
	if err != nil {
		return nil, err
	}
	var events []workload.Event
	for e, err := range workload.Events(strings.NewReader(stdout)) {
		if err != nil {
			return events, fmt.Errorf("container %s: %w", t.Name, err)
		}
		events = append(events, e)
	}
	return events, nil
}

func (t *Tenant) output(ctx context.Context) (stdout, stderr string, err error) {
	logs, err := t.runner.docker.ContainerLogs(ctx, t.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return "", "", fmt.Errorf("output of container %s: %w", t.Name, err)
	}
	defer logs.Close()
	var out, errs strings.Builder
	if _, err := stdcopy.StdCopy(&out, &errs, io.LimitReader(logs, 64<<20)); err != nil {
		return "", "", fmt.Errorf("output of container %s: %w", t.Name, err)
	}
	return out.String(), errs.String(), nil
}

// cleanup bounds what happens after Ctrl-C.
const cleanup = 20 * time.Second

// Remove ends and removes the tenant, also when the caller's context is over.
func (t *Tenant) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	err := t.runner.docker.ContainerRemove(ctx, t.ID, container.RemoveOptions{Force: true})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Close removes the tenants that are left and the image.
func (r *Runner) Close() error {
	errs := []error{r.removeAll(context.Background())} // each removal has its own bound: a hundred of them take a while
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	if _, err := r.docker.ImageRemove(ctx, r.image, imageRemoval); err != nil && !errdefs.IsNotFound(err) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, r.docker.Close())...)
}
