package zoo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/bench/pods"
	gpu "github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon/containerd"
)

// inPods is a containerd of its own.
type inPods struct{ *pods.Engine }

const (
	podImage = "laxity.test/zoo:1"
	podSpace = "zoo"
)

func openPods(ctx context.Context) (engine, error) {
	e, err := pods.Open(ctx)
	if err != nil {
		return nil, err // no engine: what is there is closed
	}
	return inPods{e}, nil
}

func (p inPods) image(ctx context.Context, layer []byte) error {
	return p.ImportLayer(ctx, podImage, layer, nil)
}

func (p inPods) create(ctx context.Context, f form) (id, name string, err error) {
	s := containerd.Spec{Image: podImage, Command: f.command, Env: f.environ, Devices: f.devices, Binds: map[string]string{}, ReadOnly: map[string]string{}}
	for _, b := range f.binds {
		if b.readOnly {
			s.ReadOnly[b.from] = b.to
		} else {
			s.Binds[b.from] = b.to
		}
	}
	if f.user != "" {
		number, err := strconv.ParseInt(f.user, 10, 64)
		if err != nil {
			return "", "", err
		}
		s.User = &number
	}
	id, err = p.Make(ctx, podSpace, f.name, f.labels, s)
	return id, gpu.PodContainer(podSpace, f.name, pods.Container), err
}

func (p inPods) start(ctx context.Context, id string) error { return p.StartInPod(ctx, id) }

func (p inPods) inspect(ctx context.Context, id string) (status, error) {
	c, err := p.Status(ctx, id)
	if errors.Is(err, pods.ErrNotThere) {
		err = fmt.Errorf("%w: %w", errNotThere, err)
	}
	if err != nil {
		return status{}, err
	}
	s := status{word: c.GetState().String(), code: int(c.GetExitCode()), started: time.Unix(0, c.GetStartedAt()), stopped: time.Unix(0, c.GetFinishedAt())}
	if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
		s.pid, err = p.Process(ctx, id)
	}
	return s, err
}

func (p inPods) wait(ctx context.Context, id string) error {
	_, err := p.Wait(ctx, id)
	return err
}

func (p inPods) output(ctx context.Context, id string) string {
	stdout, stderr, _ := p.Output(ctx, id) // what cannot be read was not said
	said := slices.Collect(strings.Lines(stdout + stderr))
	return strings.Join(said[max(0, len(said)-5):], "")
}

func (p inPods) stop(ctx context.Context, id string) error { return p.StopInPod(ctx, id, time.Second) }

func (p inPods) remove(ctx context.Context, id string) error { return p.Remove(ctx, id) }

func (p inPods) flags() []string { return p.Flags() }

func (p inPods) gone(err error) bool { return pods.Gone(err) }

func (p inPods) service() service { return p.Engine }

func (p inPods) close(context.Context) error { return p.Close() }
