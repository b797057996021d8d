// Package dockertest makes containers on the real Docker engine for tests, with
// no registry: the image is imported from programs of this machine and the
// libraries that they need. Everything that it makes begins with Prefix, and is
// gone when the test ends.
//
// For tests only. It imports the Docker client, containerd/errdefs, internal/needtest and the
// standard library.
package dockertest

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	api "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/laxity/laxity/internal/needtest"
)

// Prefix begins the name of every container and image that a test makes.
const Prefix = "laxity-test-"

// UniqueName returns a name that no other test has.
func UniqueName() string { return Prefix + strings.ToLower(rand.Text()[:10]) }

// Client connects to the engine. It skips the test where none answers.
func Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err == nil {
		_, err = c.Ping(t.Context())
	}
	if err != nil {
		needtest.Docker.Skip(t, "needs a Docker engine:", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Image imports an image that holds these programs of this machine, at the same
// paths, with the shared libraries that they need, and further files (path in
// the image → path here). It removes the image when the test ends.
func Image(t testing.TB, c *client.Client, programs []string, files map[string]string) string {
	t.Helper()
	root, err := archive(t.Context(), programs, files)
	if err != nil {
		needtest.Docker.Skip(t, "cannot make an image of local programs:", err)
	}
	name := UniqueName()
	answer, err := c.ImageImport(t.Context(), image.ImportSource{Source: root, SourceName: "-"}, name, image.ImportOptions{})
	if err != nil {
		t.Fatal("import image:", err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Fatal("import image:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		if _, err := c.ImageRemove(ctx, name, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Error("remove image:", err)
		}
	})
	return name
}

// Spec is a container to start.
type Spec struct {
	Name    string // empty: a unique one
	Image   string
	Command []string
	Labels  map[string]string
	Env     []string
	Binds   []string // host path:container path[:ro]
}

// Start creates and starts a container, and removes it when the test ends.
func Start(t testing.TB, c *client.Client, s Spec) (id string) {
	t.Helper()
	id = create(t, c, s, false)
	start(t, c, id)
	return id
}

// Talk is Start, with the container's input and output.
func Talk(t testing.TB, c *client.Client, s Spec) (id string, stdin io.Writer, stdout io.Reader) {
	t.Helper()
	id = create(t, c, s, true)
	stream, err := c.ContainerAttach(t.Context(), id, api.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal("attach to container:", err)
	}
	t.Cleanup(stream.Close)
	stdout, out := io.Pipe()
	go func() {
		_, err := stdcopy.StdCopy(out, os.Stderr, stream.Reader)
		_ = out.CloseWithError(err)
	}()
	start(t, c, id)
	return id, stream.Conn, stdout
}

func start(t testing.TB, c *client.Client, id string) {
	t.Helper()
	if err := c.ContainerStart(t.Context(), id, api.StartOptions{}); err != nil {
		t.Fatal("start container:", err)
	}
}

func create(t testing.TB, c *client.Client, s Spec, talk bool) (id string) {
	t.Helper()
	if s.Name == "" {
		s.Name = UniqueName()
	}
	created, err := c.ContainerCreate(t.Context(),
		&api.Config{
			Image: s.Image, Cmd: s.Command, Labels: s.Labels, Env: s.Env,
			OpenStdin: talk, StdinOnce: talk, AttachStdin: talk, AttachStdout: talk, AttachStderr: talk,
		},
		&api.HostConfig{Binds: s.Binds, NetworkMode: "none", Init: new(bool)}, nil, nil, s.Name)
	if err != nil {
		t.Fatal("create container:", err)
	}
	t.Cleanup(func() { remove(t, c, created.ID) })
	return created.ID
}

// PID returns the container's first process, in the host's PID namespace.
func PID(t testing.TB, c *client.Client, id string) int {
	t.Helper()
	raw, err := c.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal("inspect container:", err)
	}
	return raw.State.Pid
}

func remove(t testing.TB, c *client.Client, id string) {
	ctx, cancel := cleanupContext()
	defer cancel()
	err := c.ContainerRemove(ctx, id, api.RemoveOptions{Force: true})
	if err != nil && !errdefs.IsNotFound(err) {
		t.Error("remove container:", err)
	}
}

// cleanupContext outlives the test's own context, which has ended by then.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}
