// Package containerd is container.Source for containerd, also where Kubernetes made the containers.
// It changes nothing: beside what it reads, it sends an event of its own when it begins to listen.
//
// A container whose id is not 64 hex digits cannot be told from the control group of its processes,
// so it is not listed: ctr run gives such ids, nerdctl and Kubernetes do not. Nor are containers
// that only keep a pod together.
//
// It imports exporter/container, exporter/task, internal/ctrd, internal/oci, internal/process, containerd/errdefs and the standard library.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/oci"
	"github.com/laxity/laxity/internal/process"
)

// Options say which containerd to use. Address is required.
type Options struct {
	ctrd.Options
	// Proc is the host's proc file system; /proc if empty.
	Proc string
	// Log gets a line when the event stream breaks, and for a container that cannot be watched. Nil:
	// nothing.
	Log *slog.Logger
}

// Engine reads one containerd.
type Engine struct {
	client *ctrd.Client
	proc   string
	log    *slog.Logger

	mu      sync.Mutex
	strange map[string]bool // ids that were logged; at most mostStrange
}

var _ container.Source = (*Engine)(nil)

// New prepares to talk to containerd; it does not call it yet.
func New(o Options) (*Engine, error) {
	c, err := ctrd.New(o.Options)
	if err != nil {
		return nil, err
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Engine{client: c, proc: o.Proc, log: o.Log, strange: map[string]bool{}}, nil
}

// Close closes the connection.
func (e *Engine) Close() error { return e.client.Close() }

// List returns every running or paused container. It costs three calls for each namespace, and one
// for the pods.
func (e *Engine) List(ctx context.Context) ([]container.Container, error) {
	namespaces, err := e.client.Namespaces(ctx)
	if err != nil {
		return nil, explain(ctx, "list namespaces", err)
	}
	out := []container.Container{}
	for _, namespace := range namespaces {
		if out, err = e.list(ctx, namespace, out); err != nil {
			return nil, explain(ctx, "list containers", err)
		}
	}
	return out, nil
}

func (e *Engine) list(ctx context.Context, namespace string, out []container.Container) ([]container.Container, error) {
	tasks, err := e.client.Tasks(ctx, namespace)
	if err != nil {
		return nil, err
	}
	containers, err := e.client.Containers(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		if !e.known(c) {
			continue
		}
		t, there := tasks[c.ID]
		var untold error
		if !there {
			// It has ended, or its shim did not answer in time: a part of the list must not pass for
			// the whole.
			t, untold = e.task(ctx, namespace, c.ID)
		}
		switch {
		case errdefs.IsNotFound(untold):
			continue
		case untold != nil && (ctx.Err() != nil || errdefs.IsUnavailable(untold)):
			return nil, untold
		case untold != nil:
			e.log.Warn("containerd does not describe a container's task; what was known of it before counts", "container", c.Name, "err", untold)
			t = ctrd.Task{Runs: true}
		}
		if t.Runs {
			out = append(out, e.convert(c, t, time.Time{}))
		}
	}
	return out, nil
}

// task asks for one task, whose shim may hang while all others answer.
func (e *Engine) task(ctx context.Context, namespace, id string) (ctrd.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, container.DescribeTimeout)
	defer cancel()
	return e.client.Task(ctx, namespace, id)
}

// mostStrange is how many ids are remembered, more than a node has containers. Those that have ended
// are not told from the others: all are forgotten at times, and one that is there is logged again.
const mostStrange = 1000

// known reports whether a container is one to watch.
func (e *Engine) known(c ctrd.Container) bool {
	if c.Sandbox {
		return false
	}
	if c.Watchable() {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.strange[c.ID] {
		if len(e.strange) >= mostStrange {
			clear(e.strange)
		}
		e.strange[c.ID] = true
		e.log.Warn("a container cannot be watched: its id is not 64 hex digits, so that its processes cannot be told from their control group (nerdctl and Kubernetes give such ids, ctr run gives what is typed)",
			"namespace", c.Namespace, "id", c.ID)
	}
	return false
}

// convert describes a container with its task. began stands in where its first process cannot be
// asked when it started.
func (e *Engine) convert(c ctrd.Container, t ctrd.Task, began time.Time) container.Container {
	out := container.Container{
		ID: c.ID, Name: name(c), Image: task.ImageName(c.Image), Command: strings.Join(c.Command, " "), Labels: c.Labels,
		Paused: t.Paused, Started: began, GPUs: container.GivenGPUs(c.CDI, c.Env, c.Devices),
		Partial: t.Runs && t.PID <= 0, // its shim does not answer
	}
	if t.PID <= 0 {
		return out
	}
	if at := process.Began(e.proc, t.PID); !at.IsZero() {
		out.PID, out.Started = t.PID, at
	}
	return out
}

// name is what no other container of this machine is called.
func name(c ctrd.Container) string {
	switch {
	case c.Pod != "":
		return task.PodContainer(c.PodNamespace, c.Pod, c.Name)
	case c.Namespace == "default":
		return c.Name
	default:
		return c.Namespace + "/" + c.Name
	}
}

func explain(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("containerd: %s: %w", what, ctx.Err())
	case strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("%w: %s: %w (run as root)", container.ErrUnavailable, what, err)
	case ctrd.Unavailable(err):
		return fmt.Errorf("%w: %s: %w", container.ErrUnavailable, what, err)
	default:
		return fmt.Errorf("containerd: %s: %w", what, err)
	}
}

// kinds are the events of a container, by those of containerd.
var kinds = map[ctrd.Kind]container.EventKind{
	ctrd.Started: container.Started, ctrd.Exited: container.Died, ctrd.Paused: container.Paused, ctrd.Resumed: container.Unpaused,
	ctrd.Updated: container.Renamed, ctrd.Deleted: container.Removed,
}

// Watch implements container.Source.
func (e *Engine) Watch(ctx context.Context) (<-chan container.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := e.client.Watch(ctx, func(err error) { e.log.Warn("containerd's event stream ended", "err", err) })
	if err != nil {
		err = explain(ctx, "watch containers", err)
		cancel()
		return nil, err
	}
	out := make(chan container.Event, 16)
	go func() {
		defer close(out)
		defer cancel()
		for raw := range events {
			if event, ok := e.event(ctx, raw); ok {
				select {
				case out <- event:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// event describes what happened; false for what is no container to watch.
func (e *Engine) event(ctx context.Context, raw ctrd.Event) (container.Event, bool) {
	event := container.Event{Kind: kinds[raw.Kind], ID: raw.ID, Time: raw.Time}
	if event.Kind != container.Started && event.Kind != container.Renamed {
		return event, oci.LongID(raw.ID)
	}
	c, err := e.client.Container(ctx, raw.Namespace, raw.ID)
	if err != nil {
		if !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) {
			e.log.Warn("a container's event came, but not its description", "id", raw.ID, "err", err)
		}
		if c.ID == "" { // what the event alone says
			c = ctrd.Container{Namespace: raw.Namespace, ID: raw.ID, Name: raw.ID[:min(12, len(raw.ID))]}
		}
	}
	if !e.known(c) {
		return event, false
	}
	t := ctrd.Task{PID: raw.PID}
	if event.Kind == container.Renamed {
		var untold error
		if t, untold = e.task(ctx, raw.Namespace, raw.ID); !errdefs.IsNotFound(untold) { // it may have none
			err = errors.Join(err, untold)
		}
	}
	described := e.convert(c, t, raw.Time)
	described.Partial = described.Partial || err != nil
	event.Container = &described
	return event, true
}
