package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"syscall"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Spec is a container to run.
type Spec struct {
	Name    string
	Image   string
	Command []string
	Labels  map[string]string
	Env     []string
	Binds   map[string]string // path here → path there
	// The others count in pods alone: binds that can only be read, device files, and the number of the
	// user, root's if nil.
	ReadOnly map[string]string
	Devices  []string
	User     *int64
}

// RandomID is an id as nerdctl gives: 64 hex digits.
func RandomID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// Run starts a container in the namespace default, as nerdctl does, and returns its id. Empty: id
// is a random one.
func (e *Engine) Run(ctx context.Context, id string, s Spec) (string, error) {
	ctx = namespaces.WithNamespace(ctx, "default")
	if id == "" {
		id = RandomID()
	}
	image, err := e.Client.GetImage(ctx, s.Image)
	if err != nil {
		return "", err
	}
	labels := map[string]string{"nerdctl/name": s.Name, "nerdctl/namespace": "default"}
	for key, value := range s.Labels {
		labels[key] = value
	}
	opts := []oci.SpecOpts{oci.WithImageConfigArgs(image, nil), oci.WithEnv(s.Env)}
	if len(s.Command) > 0 {
		opts = append(opts, oci.WithProcessArgs(s.Command...))
	}
	for from, to := range s.Binds {
		opts = append(opts, oci.WithMounts([]specs.Mount{{Type: "bind", Source: from, Destination: to, Options: []string{"rbind", "rw"}}}))
	}
	c, err := e.Client.NewContainer(ctx, id, client.WithImage(image), client.WithSnapshotter(snapshotter), client.WithNewSnapshot(id, image),
		client.WithContainerLabels(labels), client.WithNewSpec(opts...), client.WithRuntime("io.containerd.runc.v2", nil))
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	t, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return "", fmt.Errorf("create task: %w", err)
	}
	return id, t.Start(ctx)
}

// StopContainer kills a container of Run, and returns once containerd has told of it.
func (e *Engine) StopContainer(ctx context.Context, id string) error {
	ctx = namespaces.WithNamespace(ctx, "default")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told, errs := e.Client.Subscribe(ctx, `topic=="/tasks/exit"`)
	c, err := e.Client.LoadContainer(ctx, id)
	if err != nil {
		return err
	}
	t, err := c.Task(ctx, nil)
	if err != nil {
		return err
	}
	ended, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	if err := t.Kill(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	<-ended
	for {
		select {
		case envelope := <-told:
			event, err := typeurl.UnmarshalAny(envelope.Event)
			if exit, ok := event.(*api.TaskExit); err == nil && ok && exit.GetContainerID() == id {
				_, err := t.Delete(ctx)
				return err
			}
		case err := <-errs:
			return err
		}
	}
}

// RemoveContainer removes a container of Run, and kills it before.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	ctx = namespaces.WithNamespace(ctx, "default")
	c, err := e.Client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if t, err := c.Task(ctx, nil); err == nil {
		_ = t.Resume(ctx) // what is frozen may not be killed
		if _, err := t.Delete(ctx, client.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return c.Delete(ctx, client.WithSnapshotCleanup)
}

// SetLabels changes labels of a container, as nerdctl rename does.
func (e *Engine) SetLabels(ctx context.Context, namespace, id string, labels map[string]string) error {
	ctx = namespaces.WithNamespace(ctx, namespace)
	c, err := e.Client.LoadContainer(ctx, id)
	if err != nil {
		return err
	}
	_, err = c.SetLabels(ctx, labels)
	return err
}
