// Package pods runs containers in pods of a containerd of its own, made by its CRI service as kubelet
// makes them: what Laxity reads as a label of a container is an annotation of its pod.
package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/pause"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/pod"
)

// ErrNotThere means that there is no such container.
var ErrNotThere = errors.New("there is no such container")

// Container is the name of the one container of each pod.
const Container = "main"

// Engine is a containerd of its own.
type Engine struct {
	*containerd.Engine
	tasks *ctrd.Client

	mu  sync.Mutex
	all map[string]placed // by the container's id
}

// placed is where a container is.
type placed struct{ sandbox, log string }

// Open starts it. It needs root, containerd and runc. Close removes pods and engine.
func Open(ctx context.Context) (*Engine, error) {
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
	return &Engine{Engine: e, tasks: tasks, all: map[string]placed{}}, nil
}

// cleanup bounds what goes on after Ctrl-C.
const cleanup = 20 * time.Second

// Make makes a pod with one container, which does not run yet. Labels of Laxity's become the pod's annotations; the others
// are pod's and container's. It goes on with what it was asked for when ctx ends: a pod that nobody knows of would stay behind.
func (e *Engine) Make(ctx context.Context, namespace, name string, labels map[string]string, s containerd.Spec) (id string, err error) {
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	in := containerd.Pod{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range labels {
		if short, ours := strings.CutPrefix(key, task.LabelPrefix); ours {
			in.Annotations[pod.Annotation+short] = value
		} else {
			in.Labels[key] = value
		}
	}
	s.Name, s.Labels = Container, in.Labels
	sandbox, id, err := e.CreatePod(making, in, s)
	if err != nil {
		if sandbox != "" {
			err = errors.Join(err, e.RemovePod(making, sandbox))
		}
		return "", err
	}
	e.mu.Lock()
	e.all[id] = placed{sandbox, e.LogFile(in, Container)}
	e.mu.Unlock()
	return id, nil
}

func (e *Engine) of(id string) placed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[id]
}

// Status is what the CRI service says of a container.
func (e *Engine) Status(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	answer, err := e.Pods.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err = errgrpc.ToNative(err); errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	return answer.GetStatus(), err
}

// Process returns the number of a container's first process on the host; 0: it does not run.
func (e *Engine) Process(ctx context.Context, id string) (int, error) {
	t, err := e.tasks.Task(ctx, ctrd.CRINamespace, id)
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return t.PID, err
}

// endEvery is the time between two looks whether a container has ended. The CRI has no call that
// waits.
const endEvery = 100 * time.Millisecond

// Wait waits for a container's end, and returns its exit status.
func (e *Engine) Wait(ctx context.Context, id string) (int, error) {
	for {
		c, err := e.Status(ctx, id)
		if err != nil || c.GetState() == cri.ContainerState_CONTAINER_EXITED {
			return int(c.GetExitCode()), err
		}
		if err := bench.Pass(ctx, endEvery); err != nil {
			return 0, err
		}
	}
}

// Output is what a container has written so far.
func (e *Engine) Output(_ context.Context, id string) (stdout, stderr string, err error) {
	text, err := os.ReadFile(e.of(id).log)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	stdout, stderr = Split(string(text))
	return stdout, stderr, err
}

// Split takes apart a log file of the CRI: each line begins with its time, its stream, and F, or P where the rest of
// the line follows. A line that is still being written is left out.
func Split(text string) (stdout, stderr string) {
	var out, errs strings.Builder
	for line := range strings.Lines(text) {
		f := strings.SplitN(line, " ", 4)
		if len(f) < 4 || !strings.HasSuffix(line, "\n") {
			continue
		}
		said := f[3]
		if f[2] == "P" {
			said = strings.TrimSuffix(said, "\n")
		}
		if f[1] == "stderr" {
			errs.WriteString(said)
		} else {
			out.WriteString(said)
		}
	}
	return out.String(), errs.String()
}

// Pause stops a container by containerd's task API.
func (e *Engine) Pause(ctx context.Context, id string) error {
	return e.tasks.Pause(ctx, ctrd.CRINamespace, id)
}

// Unpause lets it go on.
func (e *Engine) Unpause(ctx context.Context, id string) error {
	return e.tasks.Resume(ctx, ctrd.CRINamespace, id)
}

// Remove removes a container with its pod, and ends it before.
func (e *Engine) Remove(ctx context.Context, id string) error {
	_ = e.Unpause(ctx, id) // what is frozen may not be killed
	return e.RemovePod(ctx, e.of(id).sandbox)
}

// Choice is the engine as exporter and actuator choose it.
func (e *Engine) Choice() engine.Choice {
	return engine.Choice{Kind: engine.Containerd, Address: e.Address}
}

// Flags are those by which Laxity's programs use the engine.
func (e *Engine) Flags() []string {
	return []string{"--engine=" + engine.Containerd, "--containerd.address=" + e.Address}
}

// Gone reports whether an error means that containerd does not answer now, or not any more.
func Gone(err error) bool {
	err = errgrpc.ToNative(err)
	return ctrd.Unavailable(err) || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "ttrpc: closed")
}

// Close removes all pods, and ends containerd.
func (e *Engine) Close() error { return errors.Join(e.tasks.Close(), e.Engine.Close()) }
