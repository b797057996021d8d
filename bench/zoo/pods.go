package zoo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/bench"
	gpu "github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/pause"
	"github.com/laxity/laxity/internal/pod"
)

// pods is a containerd of its own. Each container is in a pod of its own, made by the CRI service as
// kubelet does it, with what Laxity reads as annotations.
type pods struct {
	*containerd.Engine
	tasks *ctrd.Client

	mu  sync.Mutex
	all map[string]placed // by the container's id
}

// placed is where a container is.
type placed struct{ sandbox, log string }

const (
	podImage  = "laxity.test/zoo:1"
	podSpace  = "zoo"
	podsFirst = "main" // the container of each pod
)

func openPods(ctx context.Context) (engine, error) {
	program, err := pause.Build(ctx)
	if err != nil {
		return nil, err
	}
	e, err := containerd.New(ctx, program)
	if err != nil {
		return nil, err
	}
	tasks, err := ctrd.New(ctrd.Options{Address: e.Address})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &pods{Engine: e, tasks: tasks, all: map[string]placed{}}, nil
}

func (p *pods) image(ctx context.Context, layer []byte) error {
	return p.ImportLayer(ctx, podImage, layer, nil)
}

func (p *pods) create(ctx context.Context, f form) (id, name string, err error) {
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	in := containerd.Pod{Namespace: podSpace, Name: f.name, Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range f.labels {
		if short, ours := strings.CutPrefix(key, gpu.LabelPrefix); ours {
			in.Annotations[pod.Annotation+short] = value
		} else {
			in.Labels[key] = value
		}
	}
	s := containerd.Spec{Name: podsFirst, Image: podImage, Command: f.command, Env: f.environ, Devices: f.devices, Binds: map[string]string{}, ReadOnly: map[string]string{}}
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
	sandbox, id, err := p.CreatePod(making, in, s)
	if err != nil {
		if sandbox != "" {
			err = errors.Join(err, p.RemovePod(making, sandbox))
		}
		return "", "", err
	}
	p.mu.Lock()
	p.all[id] = placed{sandbox, p.LogFile(in, podsFirst)}
	p.mu.Unlock()
	return id, gpu.PodContainer(podSpace, f.name, podsFirst), nil
}

func (p *pods) of(id string) placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

func (p *pods) start(ctx context.Context, id string) error { return p.StartInPod(ctx, id) }

// status is what the CRI service says of a container.
func (p *pods) status(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	answer, err := p.Pods.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w: %w", errNotThere, err)
	}
	return answer.GetStatus(), err
}

func (p *pods) inspect(ctx context.Context, id string) (status, error) {
	c, err := p.status(ctx, id)
	if err != nil {
		return status{}, err
	}
	s := status{word: c.GetState().String(), code: int(c.GetExitCode()), started: time.Unix(0, c.GetStartedAt()), stopped: time.Unix(0, c.GetFinishedAt())}
	if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
		t, err := p.tasks.Task(ctx, ctrd.CRINamespace, id)
		if err != nil && !errdefs.IsNotFound(err) {
			return s, err
		}
		s.pid = t.PID
	}
	return s, nil
}

// endEvery is the time between two looks whether a container has ended. The CRI has no call that
// waits.
const endEvery = 100 * time.Millisecond

func (p *pods) wait(ctx context.Context, id string) error {
	for {
		c, err := p.status(ctx, id)
		if err != nil || c.GetState() == cri.ContainerState_CONTAINER_EXITED {
			return err
		}
		if err := bench.Pass(ctx, endEvery); err != nil {
			return err
		}
	}
}

// output leaves out what the CRI service writes before each line.
func (p *pods) output(_ context.Context, id string) string {
	text, _ := os.ReadFile(p.of(id).log) // absent: it said nothing
	var said []string
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			said = append(said, f[3])
		}
	}
	return strings.Join(said[max(0, len(said)-5):], "")
}

func (p *pods) stop(ctx context.Context, id string) error { return p.StopInPod(ctx, id, time.Second) }

func (p *pods) remove(ctx context.Context, id string) error {
	_ = p.tasks.Resume(ctx, ctrd.CRINamespace, id) // what is frozen may not be killed
	return p.RemovePod(ctx, p.of(id).sandbox)
}

func (p *pods) flags() []string {
	return []string{"--engine=containerd", "--containerd.address=" + p.Address}
}

func (p *pods) gone(err error) bool {
	err = errgrpc.ToNative(err)
	return ctrd.Unavailable(err) || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "ttrpc: closed")
}

func (p *pods) service() service { return p.Engine }

func (p *pods) close(context.Context) error { return errors.Join(p.tasks.Close(), p.Close()) }
