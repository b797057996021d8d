// Package realdocker starts small containers on the Docker engine of this
// machine, for tests. They are made of one static binary, so no registry is
// needed, and the test that made them removes them.
package realdocker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/internal/daemon/sleeper"
	"github.com/laxity/laxity/internal/needtest"
)

// Prefix of everything that tests make on the engine.
const Prefix = "laxity-test-"

// Engine is the engine of this machine, with an image of a program that sleeps.
type Engine struct {
	*client.Client
	image string
}

// New connects, or skips the test with the reason.
func New(t *testing.T) *Engine {
	t.Helper()
	return At(t, "")
}

// At is New on the engine at this address.
func At(t *testing.T, host string) *Engine {
	t.Helper()
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		needtest.Docker.Skipf(t, "no Docker client: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.Ping(ctx); err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine: %v", err)
	}
	e := &Engine{Client: c, image: Prefix + "sleep-" + random()}
	e.build(t)
	return e
}

func random() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func (e *Engine) build(t *testing.T) {
	t.Helper()
	code, err := os.ReadFile(sleeper.Build(t))
	if err != nil {
		t.Fatal(err)
	}
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	err = w.WriteHeader(&tar.Header{Name: "sleep", Mode: 0o755, Size: int64(len(code))})
	if err == nil {
		_, err = w.Write(code)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := e.ImageImport(context.Background(), image.ImportSource{Source: &root, SourceName: "-"}, e.image, image.ImportOptions{})
	if err != nil {
		t.Fatalf("import the test image: %v", err)
	}
	_, _ = io.Copy(io.Discard, body)
	_ = body.Close()
	t.Cleanup(func() {
		_, _ = e.ImageRemove(context.Background(), e.image, image.RemoveOptions{Force: true})
	})
}

// Run starts a container that sleeps and returns its id and name.
func (e *Engine) Run(t *testing.T, labels map[string]string) (id, name string) {
	t.Helper()
	ctx := context.Background()
	name = Prefix + random()
	c, err := e.ContainerCreate(ctx, &container.Config{Image: e.image, Entrypoint: []string{"/sleep"}, Labels: labels},
		&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		t.Fatalf("create a test container: %v", err)
	}
	t.Cleanup(func() { e.Remove(t, c.ID) })
	if err := e.ContainerStart(ctx, c.ID, container.StartOptions{}); err != nil {
		t.Fatalf("start a test container: %v", err)
	}
	return c.ID, name
}

// Remove removes a container, paused or not; one that is gone is fine.
func (e *Engine) Remove(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = e.ContainerUnpause(ctx, id) // old engines cannot kill what is frozen
	_ = e.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
}

// SetPaused pauses or unpauses as a person would.
func (e *Engine) SetPaused(t *testing.T, id string, paused bool) {
	t.Helper()
	f := e.ContainerUnpause
	if paused {
		f = e.ContainerPause
	}
	if err := f(context.Background(), id); err != nil {
		t.Fatal(err)
	}
}

// PID is the container's first process; an error means that it is gone.
func (e *Engine) PID(id string) (int, error) {
	c, err := e.ContainerInspect(context.Background(), id)
	if err != nil {
		return 0, err
	}
	if c.State.Pid == 0 {
		return 0, fmt.Errorf("container %s does not run", id)
	}
	return c.State.Pid, nil
}

// Paused is what the engine says.
func (e *Engine) Paused(id string) bool {
	c, err := e.ContainerInspect(context.Background(), id)
	return err == nil && c.State.Paused
}
