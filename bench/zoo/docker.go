package zoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon/dockerd"
)

// docker is a Docker engine.
type docker struct {
	*client.Client
	own  *dockerd.Engine // nil: the machine's
	name string          // containers carry it as their label tenant.Label
	tag  string
}

// openDocker takes an engine of its own if it may, and there can be one; else the machine's.
func openDocker(ctx context.Context, m *machine, own bool) (_ engine, err error) {
	d := &docker{name: m.name, tag: "laxity-" + m.name + ":1"}
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if own {
		if d.own, err = dockerd.New(ctx, dockerd.LiveRestore); err != nil {
			m.env.Log("using this machine's Docker engine, which is not restarted: %v", err)
		} else {
			opts = append(opts, client.WithHost(d.own.Host))
		}
	}
	if m.env.DockerHost != "" {
		opts = append(opts, client.WithHost(m.env.DockerHost))
	}
	if d.Client, err = client.NewClientWithOpts(opts...); err == nil {
		if _, err = d.Ping(ctx); err != nil {
			err = fmt.Errorf("the Docker engine does not answer (is it running, and may you use it?): %w", err)
		}
	}
	if err != nil && d.own != nil {
		err = errors.Join(err, d.own.Close())
	}
	return d, err
}

func (d *docker) image(ctx context.Context, layer []byte) error {
	answer, err := d.ImageImport(ctx, image.ImportSource{Source: bytes.NewReader(layer), SourceName: "-"}, d.tag, image.ImportOptions{})
	if err != nil {
		return fmt.Errorf("image %s: %w", d.tag, err)
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err == nil && bytes.Contains(text, []byte(`"error"`)) {
		err = errors.New(string(text))
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", d.tag, err)
	}
	return nil
}

func (d *docker) create(ctx context.Context, f form) (id, name string, err error) {
	host := &container.HostConfig{NetworkMode: "none", IpcMode: "private"}
	host.Ulimits = []*container.Ulimit{{Name: "core"}}
	for _, b := range f.binds {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: b.from, Target: b.to, ReadOnly: b.readOnly})
	}
	for _, n := range f.devices {
		host.Devices = append(host.Devices, container.DeviceMapping{PathOnHost: n, PathInContainer: n, CgroupPermissions: "rwm"})
	}
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	made, err := d.ContainerCreate(making, &container.Config{
		Image: d.tag, Labels: f.labels, Env: f.environ, Entrypoint: f.command[:1], Cmd: f.command[1:], User: f.user,
	}, host, nil, nil, f.name)
	return made.ID, f.name, err
}

func (d *docker) start(ctx context.Context, id string) error {
	return d.ContainerStart(ctx, id, container.StartOptions{})
}

func (d *docker) inspect(ctx context.Context, id string) (status, error) {
	c, err := d.ContainerInspect(ctx, id)
	if err != nil {
		return status{}, err
	}
	if c.State == nil {
		return status{}, fmt.Errorf("%w: %s", errNotThere, id)
	}
	s := status{word: c.State.Status, pid: c.State.Pid, code: c.State.ExitCode}
	s.started, _ = time.Parse(time.RFC3339Nano, c.State.StartedAt) // zero: not yet
	s.stopped, _ = time.Parse(time.RFC3339Nano, c.State.FinishedAt)
	return s, nil
}

func (d *docker) wait(ctx context.Context, id string) error {
	ended, failed := d.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case <-ended:
		return nil
	case err := <-failed:
		if cerrdefs.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errNotThere, err)
		}
		return err
	}
}

func (d *docker) output(ctx context.Context, id string) string {
	logs, err := d.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return ""
	}
	defer logs.Close()
	var out bytes.Buffer
	_, _ = stdcopy.StdCopy(&out, &out, logs)
	return out.String()
}

func (d *docker) stop(ctx context.Context, id string) error {
	patience := 1
	return d.ContainerStop(ctx, id, container.StopOptions{Timeout: &patience})
}

func (d *docker) remove(ctx context.Context, id string) error {
	if err := d.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); !cerrdefs.IsNotFound(err) {
		return err
	}
	return nil
}

func (d *docker) flags() []string { return []string{"--docker.host=" + d.DaemonHost()} }

func (d *docker) gone(err error) bool {
	return client.IsErrConnectionFailed(err) || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "connection reset") ||
		strings.Contains(err.Error(), "shutting down") || strings.Contains(err.Error(), "context canceled") && !errors.Is(err, context.Canceled)
}

func (d *docker) service() service {
	if d.own == nil {
		return nil
	}
	return d.own
}

func (d *docker) close(ctx context.Context) error {
	list, err := d.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", tenant.Label+"="+d.name)),
	})
	errs := []error{err}
	for _, c := range list {
		errs = append(errs, d.remove(ctx, c.ID))
	}
	if d.own == nil {
		if _, err := d.ImageRemove(ctx, d.tag, image.RemoveOptions{Force: true, PruneChildren: true}); !cerrdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, d.Close())
	if d.own != nil {
		errs = append(errs, d.own.Close())
	}
	return errors.Join(errs...)
}
