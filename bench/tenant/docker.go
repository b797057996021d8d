package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	simtenant "github.com/laxity/laxity/exporter/device/sim/tenant"
)

// docker is a Docker engine.
type docker struct {
	*client.Client
	image, name string
}

func openDocker(host, name string) (*docker, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return &docker{c, "laxity-tenant:" + name, name}, nil
}

func (d *docker) NVIDIA(ctx context.Context) (bool, error) {
	info, err := d.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("the Docker engine does not answer (is it running, and may you use it?): %w", err)
	}
	_, there := info.Runtimes["nvidia"]
	return there, nil
}

func (d *docker) Image(ctx context.Context) error {
	return simtenant.BuildImage(ctx, d.Client, d.image)
}

func (d *docker) Create(ctx context.Context, name string, c *container.Config, host *container.HostConfig) (string, error) {
	c.Image = d.image
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	made, err := d.ContainerCreate(making, c, host, nil, nil, name)
	return made.ID, err
}

func (d *docker) Start(ctx context.Context, id string) error {
	return d.ContainerStart(ctx, id, container.StartOptions{})
}

func (d *docker) Wait(ctx context.Context, id string) (int, error) {
	ended, failed := d.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		return int(end.StatusCode), nil
	case err := <-failed:
		return 0, err
	}
}

func (d *docker) Kill(ctx context.Context, id, signal string) error {
	return d.ContainerKill(ctx, id, signal)
}

func (d *docker) Pause(ctx context.Context, id string) error { return d.ContainerPause(ctx, id) }

func (d *docker) Unpause(ctx context.Context, id string) error { return d.ContainerUnpause(ctx, id) }

func (d *docker) PID(ctx context.Context, id string) (int, error) {
	c, err := d.ContainerInspect(ctx, id)
	if err == nil && (c.State == nil || c.State.Pid == 0) {
		err = errors.New("it does not run")
	}
	if err != nil {
		return 0, err
	}
	return c.State.Pid, nil
}

func (d *docker) Output(ctx context.Context, id string) (stdout, stderr string, err error) {
	logs, err := d.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return "", "", err
	}
	defer logs.Close()
	var out, errs strings.Builder
	_, err = stdcopy.StdCopy(&out, &errs, io.LimitReader(logs, 64<<20))
	return out.String(), errs.String(), err
}

func (d *docker) Remove(ctx context.Context, id string) error {
	if err := d.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// Close gives each removal a bound of its own: a hundred of them take a while.
func (d *docker) Close(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, cleanup)
	list, err := d.ContainerList(listing, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", Label+"="+d.name))})
	cancel()
	if err != nil {
		return errors.Join(err, d.Client.Close())
	}
	var errs []error
	for _, c := range list {
		removing, cancel := context.WithTimeout(ctx, cleanup)
		errs = append(errs, d.Remove(removing, c.ID))
		cancel()
	}
	removing, cancel := context.WithTimeout(ctx, cleanup)
	defer cancel()
	if _, err := d.ImageRemove(removing, d.image, image.RemoveOptions{Force: true, PruneChildren: true}); !errdefs.IsNotFound(err) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, d.Client.Close())...)
}
