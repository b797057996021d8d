// Package tenant runs containers that do GPU work, for the demonstration and the
// experiments: the CUDA workload of internal/workload on a real or a simulated GPU.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	simtenant "github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/internal/workload"
)

// Label marks every container that a Runner makes; its value is the runner's.
const Label = "com.github.laxity.tenant"

// programPath is where Spec.Program is in a container.
const programPath = "/program"

// Engine runs a Runner's containers, which are described as Docker's API does it.
type Engine interface {
	// NVIDIA reports whether a runtime of NVIDIA's gives containers their GPUs.
	NVIDIA(ctx context.Context) (bool, error)
	// Image makes the workload's image, whose program runs where a container names none.
	Image(ctx context.Context) error
	// Create makes a container, which does not run yet. It goes on with what it was asked for when ctx ends: a container
	// that nobody knows of would stay behind.
	Create(ctx context.Context, name string, c *container.Config, host *container.HostConfig) (id string, err error)
	Start(ctx context.Context, id string) error
	// Wait waits for its end, and returns its exit status.
	Wait(ctx context.Context, id string) (int, error)
	// Kill sends a signal to its first process, by its name (TERM).
	Kill(ctx context.Context, id, signal string) error
	Pause(ctx context.Context, id string) error
	Unpause(ctx context.Context, id string) error
	// PID is that of its first process on the host. That there is none is an error.
	PID(ctx context.Context, id string) (int, error)
	// Output is what it has written so far.
	Output(ctx context.Context, id string) (stdout, stderr string, err error)
	// Remove ends and removes it. One that is gone is no error.
	Remove(ctx context.Context, id string) error
	// Close removes the containers that are left, and the image.
	Close(ctx context.Context) error
}

// Runner makes tenants that all use the same GPUs.
type Runner struct {
	engine Engine
	name   string
	host   container.HostConfig
	env    []string
}

// Options of a Runner.
type Options struct {
	DockerHost string // empty: DOCKER_HOST, else the usual socket
	// Engine runs the containers; nil: Docker at DockerHost. Runner.Close closes it.
	Engine Engine
	// Socket is that of a simulated GPU; empty means the NVIDIA GPUs of this host.
	Socket string
	// Name goes into the names of image and containers, to tell runs apart.
	Name string
}

// New connects to the engine and builds the image. It needs gcc, and no
// registry. Close removes what is left.
func New(ctx context.Context, o Options) (_ *Runner, err error) {
	r := &Runner{engine: o.Engine, name: o.Name}
	if r.engine == nil {
		if r.engine, err = openDocker(o.DockerHost, o.Name); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			_ = r.Close() // the first error says what is wrong
		}
	}()
	runtime, err := r.engine.NVIDIA(ctx)
	if err != nil {
		return nil, err
	}
	r.host.NetworkMode = "none"
	if o.Socket != "" {
		library, err := cuda.Build("")
		if err != nil {
			return nil, err
		}
		r.host.Mounts = simtenant.Mounts(o.Socket, library)
		r.env = simtenant.Env(o.Socket)
	} else if err := nvidia(runtime, &r.host, &r.env); err != nil {
		return nil, err
	}
	return r, r.engine.Image(ctx)
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
	config.Labels = map[string]string{Label: r.name}
	maps.Copy(config.Labels, s.Labels)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, err := r.engine.Create(ctx, s.Name, config, &host)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", s.Name, err)
	}
	return &Tenant{Name: s.Name, ID: id, runner: r}, nil
}

// Start starts a tenant that was created.
func (t *Tenant) Start(ctx context.Context) error {
	if err := t.runner.engine.Start(ctx, t.ID); err != nil {
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
	code, err := t.runner.engine.Wait(ctx, t.ID)
	if err != nil {
		return fmt.Errorf("wait for container %s: %w", t.Name, err)
	}
	if code != 0 {
		_, stderr, _ := t.output(ctx)
		return fmt.Errorf("container %s ended with code %d: %s", t.Name, code, strings.TrimSpace(stderr))
	}
	return nil
}

// Signal sends a signal to the tenant's first process, by its name (TERM).
func (t *Tenant) Signal(ctx context.Context, name string) error {
	if err := t.runner.engine.Kill(ctx, t.ID, name); err != nil {
		return fmt.Errorf("signal to container %s: %w", t.Name, err)
	}
	return nil
}

// Pause freezes the tenant's processes.
func (t *Tenant) Pause(ctx context.Context) error {
	if err := t.runner.engine.Pause(ctx, t.ID); err != nil {
		return fmt.Errorf("pause container %s: %w", t.Name, err)
	}
	return nil
}

// Unpause lets them go on.
func (t *Tenant) Unpause(ctx context.Context) error {
	if err := t.runner.engine.Unpause(ctx, t.ID); err != nil {
		return fmt.Errorf("unpause container %s: %w", t.Name, err)
	}
	return nil
}

// PID returns the number of the tenant's first process on the host.
func (t *Tenant) PID(ctx context.Context) (int, error) {
	pid, err := t.runner.engine.PID(ctx, t.ID)
	if err != nil {
		return 0, fmt.Errorf("container %s: %w", t.Name, err)
	}
	return pid, nil
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
	if stdout, stderr, err = t.runner.engine.Output(ctx, t.ID); err != nil {
		return "", "", fmt.Errorf("output of container %s: %w", t.Name, err)
	}
	return stdout, stderr, nil
}

// cleanup bounds what happens after Ctrl-C.
const cleanup = 20 * time.Second

// Remove ends and removes the tenant, also when the caller's context is over.
func (t *Tenant) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	return t.runner.engine.Remove(ctx, t.ID)
}

// Close removes the tenants that are left and the image.
func (r *Runner) Close() error { return r.engine.Close(context.Background()) }
