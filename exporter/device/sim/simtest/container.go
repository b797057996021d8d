package simtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/internal/needtest"
)

// Docker returns a client of the engine of this machine; the test is skipped
// where there is none.
func Docker(t testing.TB) *client.Client {
	t.Helper()
	cli, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := cli.Ping(ctx); err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine: %v", err)
	}
	return cli
}

// Image builds the workload's image under a name of its own, and removes it when
// the test ends.
func Image(t testing.TB, docker *client.Client) string {
	t.Helper()
	tag := "laxity-test-" + unique()
	err := tenant.BuildImage(t.Context(), docker, tag)
	skipWithoutCompiler(t, err)
	t.Cleanup(func() {
		if _, err := docker.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true}); err != nil {
			t.Errorf("remove image: %v", err)
		}
	})
	return tag
}

// Spec says which container to start.
type Spec struct {
	Image  string // see Image
	Name   string // default: a unique one that begins with laxity-test-
	Labels map[string]string
	Args   []string // of the workload
	Env    []string // besides what gives it the simulated GPU
	// Rests has the workload stand, with its context, before its first task until Begin.
	Rests bool
	// Program is a file of this machine that runs in place of the image's workload, with Args.
	Program string
}

// Container is a workload that runs in a container.
type Container struct {
	Tenant
	ID, Name string
	docker   *client.Client
	begin    func() error // of one that rests
}

// StartContainer runs the workload in a container on s's GPUs. The container is
// removed when the test ends, whatever state it is in.
func (s *Server) StartContainer(t testing.TB, docker *client.Client, spec Spec) *Container {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "laxity-test-" + unique()
	}
	config := &container.Config{
		Image: spec.Image, Cmd: spec.Args, Labels: spec.Labels,
		Env: append(tenant.Env(s.Socket), spec.Env...),
	}
	host := &container.HostConfig{Mounts: tenant.Mounts(s.Socket, Library(t)), NetworkMode: "none"}
	if spec.Program != "" {
		config.Entrypoint = []string{"/program"}
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: spec.Program, Target: "/program", ReadOnly: true})
	}
	var begin func() error
	if spec.Rests {
		variable, remove, err := s.Rest(spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		config.Env, begin = append(config.Env, variable), remove
	}
	created, err := docker.ContainerCreate(t.Context(), config, host, nil, nil, spec.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := &Container{ID: created.ID, Name: spec.Name, docker: docker, begin: begin}
	t.Cleanup(func() {
		err := docker.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true})
		if err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("remove container: %v", err)
		}
	})
	if err := docker.ContainerStart(t.Context(), c.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	state, err := docker.ContainerInspect(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.PID = state.State.Pid // 0 when it has ended already
	followed, err := c.log(context.Background(), container.LogsOptions{ShowStdout: true, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { followed.Close() })
	output, input := io.Pipe()
	go func() {
		input.CloseWithError(copyAll(input, followed, func() (io.ReadCloser, error) {
			return c.log(context.Background(), container.LogsOptions{ShowStdout: true})
		}))
	}()
	c.follow(output)
	c.standing = c.describe
	return c
}

func (c *Container) log(ctx context.Context, of container.LogsOptions) (io.ReadCloser, error) {
	return c.docker.ContainerLogs(ctx, c.ID, of)
}

// describe waits a moment for the container to end, and says how it did and what it wrote to its
// standard error.
func (c *Container) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	ended, failed := c.docker.ContainerWait(ctx, c.ID, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case err := <-failed:
		if ctx.Err() == nil { // else it runs still
			return err.Error()
		}
	}
	ctx, cancel = context.WithTimeout(context.Background(), moment)
	defer cancel()
	now, err := c.docker.ContainerInspect(ctx, c.ID)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("container %s: %s, exit code %d, out of memory %v", c.Name, now.State.Status, now.State.ExitCode, now.State.OOMKilled)
	if now.State.Error != "" {
		text += ", " + now.State.Error
	}
	log, err := c.log(ctx, container.LogsOptions{ShowStderr: true})
	if err != nil {
		return text + "; standard error: " + err.Error()
	}
	defer log.Close()
	var written strings.Builder
	if _, err := stdcopy.StdCopy(io.Discard, &written, log); err != nil {
		fmt.Fprintf(&written, " (%v)", err)
	}
	return text + "; standard error: " + strings.TrimSpace(written.String())
}

// Begin lets the workload of a container that Rests begin its first task.
func (c *Container) Begin(t testing.TB) {
	t.Helper()
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
}

// Rest makes a file of this name beside the socket. A workload in a container stands before its next task, with
// its context, while that is there and this variable names it; begin removes it.
func (s *Server) Rest(name string) (variable string, begin func() error, err error) {
	file := s.Socket + "." + name
	variable = "LAXITY_REST=" + tenant.Beside(filepath.Base(file))
	return variable, func() error { return os.Remove(file) }, os.WriteFile(file, nil, 0o644)
}

// Wait returns the exit code.
func (c *Container) Wait(t testing.TB) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended, failed := c.docker.ContainerWait(ctx, c.ID, container.WaitConditionNotRunning)
	select {
	case end := <-ended:
		return int(end.StatusCode)
	case err := <-failed:
		t.Fatalf("wait for %s: %v", c.Name, err)
		return -1
	}
}

// Kill ends it by SIGKILL.
func (c *Container) Kill(t testing.TB) {
	t.Helper()
	if err := c.docker.ContainerKill(t.Context(), c.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
}

// Pause freezes the container.
func (c *Container) Pause(t testing.TB) {
	t.Helper()
	if err := c.docker.ContainerPause(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
}

// Unpause lets it go on.
func (c *Container) Unpause(t testing.TB) {
	t.Helper()
	if err := c.docker.ContainerUnpause(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
}

func unique() string {
	text := rand.Text()[:12]
	lower := []byte(text)
	for i, b := range lower {
		if 'A' <= b && b <= 'Z' {
			lower[i] = b + 'a' - 'A'
		}
	}
	return string(lower)
}
