// Package crio is container.Source for CRI-O, by Kubernetes' container runtime interface (CRI), and
// for any other engine that serves it. It changes nothing.
//
// The CRI knows no pauses, and its events may be absent or dropped. So the engine is looked at every
// second, as the kubelet does, and with each event at once; what differs from the look before is
// what happened. The kernel's freezer says who is paused.
//
// It imports exporter/container, exporter/task, internal/cri, internal/freezer, internal/oci,
// internal/process, containerd/errdefs, golang.org/x/sync and the standard library.
package crio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/oci"
	"github.com/laxity/laxity/internal/process"
)

const (
	// maxDescribes bounds how many containers the engine is asked about at once.
	maxDescribes = 8
	// An engine that takes slow or longer, and then does not describe a container, is not asked about
	// it again for askAgain: each look would wait for it.
	slow     = time.Second
	askAgain = time.Minute
)

// Options say which engine to use. Address is required.
type Options struct {
	// Address is the path of its socket, with or without unix:// before it.
	Address string
	// Proc is the host's proc file system; /proc if empty.
	Proc string
	// Log gets a line when the engine tells of no events, and for what it does not describe. Nil:
	// nothing.
	Log *slog.Logger
	// Ticks returns, for each watch, what says when to look; every second if nil.
	Ticks func() <-chan time.Time
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Engine reads one engine.
type Engine struct {
	client *cri.Client
	kernel freezer.Kernel
	log    *slog.Logger
	ticks  func() <-chan time.Time
	now    func() time.Time

	mu    sync.Mutex
	known map[string]*known // those that were described, while they are listed
	said  map[about]bool    // what was logged once
}

// about is what a warning is about: of a container, or, without an id, of the engine.
type about struct{ what, id string }

var _ container.Source = (*Engine)(nil)

// known is a container that was described: what does not change while it runs.
type known struct {
	container.Container
	group   *freezer.Group // its control group; nil when not known
	started time.Time      // as the engine says
	until   time.Time      // when a Partial one is to be asked about again
}

// New prepares to talk to the engine; it does not call it yet.
func New(o Options) (*Engine, error) {
	c, err := cri.New(o.Address)
	if err != nil {
		return nil, err
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Engine{client: c, kernel: freezer.Kernel{Proc: o.Proc}, log: o.Log, ticks: o.Ticks, now: o.Now, known: map[string]*known{}, said: map[about]bool{}}, nil
}

// Close closes the connection.
func (e *Engine) Close() error { return e.client.Close() }

// List returns every running or paused container. It costs one call, one for each container that
// was not there before, and one for the pods of these.
func (e *Engine) List(ctx context.Context) ([]container.Container, error) {
	all, err := e.look(ctx)
	if err != nil {
		return nil, err
	}
	out := []container.Container{}
	for _, s := range all {
		if s.state == cri.Running {
			out = append(out, s.container())
		}
	}
	return out, nil
}

// seen is a container as a look found it.
type seen struct {
	state  cri.State // Running, Exited, or Created for what does neither
	paused bool
	*known // nil for one that does not run and did not before
}

// container describes it as it was seen.
func (s seen) container() container.Container {
	c := s.Container
	c.Paused = s.paused
	if s.state != cri.Running {
		c.PID = 0
	}
	return c
}

// look lists all containers, and describes those that run.
func (e *Engine) look(ctx context.Context) (map[string]seen, error) {
	items, err := e.client.List(ctx)
	if err != nil {
		return nil, explain(ctx, err)
	}
	out := make(map[string]seen, len(items))
	var fresh []cri.Item
	for _, i := range items {
		if !e.watchable(i.ID) {
			continue
		}
		k := e.find(i.ID)
		switch {
		case i.State != cri.Running && i.State != cri.Unknown:
			out[i.ID] = seen{state: i.State, known: k}
		case k == nil:
			fresh = append(fresh, i)
		default:
			out[i.ID] = e.see(i, k)
		}
	}
	described, err := e.describeAll(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for n, k := range described {
		if k != nil { // otherwise it went between the two calls
			out[fresh[n].ID] = e.see(fresh[n], k)
		}
	}
	e.forget(out, items)
	return out, nil
}

// see looks at a container that the engine lists as running.
func (e *Engine) see(i cri.Item, k *known) seen {
	return seen{state: e.stateOf(i, k), paused: e.paused(k), known: k}
}

// describeAll asks the engine for containers, several at once: one that it does not describe must
// not delay the others. It returns nil for one that is gone.
func (e *Engine) describeAll(ctx context.Context, items []cri.Item) ([]*known, error) {
	if len(items) == 0 {
		return nil, nil
	}
	pods, err := e.client.Pods(ctx, "")
	if err != nil {
		return nil, explain(ctx, err)
	}
	out := make([]*known, len(items))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxDescribes)
	for n, i := range items {
		group.Go(func() (err error) {
			if out[n], err = e.describe(ctx, i, pods); errdefs.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	return out, group.Wait()
}

// stateOf decides what an Unknown container does: older versions of CRI-O call a paused one so.
func (e *Engine) stateOf(i cri.Item, k *known) cri.State {
	switch {
	case i.State == cri.Running:
		return cri.Running
	case k.PID == 0:
		return cri.Created
	case process.Began(e.kernel.Proc, k.PID).IsZero():
		return cri.Exited
	default:
		return cri.Running
	}
}

// describe asks the engine for a container. What an engine does not say of one hides nobody.
func (e *Engine) describe(ctx context.Context, i cri.Item, pods cri.Pods) (*known, error) {
	bounded, cancel := context.WithTimeout(ctx, container.DescribeTimeout)
	defer cancel()
	began := e.now()
	c, err := e.client.Describe(bounded, i.ID, pods)
	switch {
	case err == nil:
	case errdefs.IsNotFound(err):
		return nil, err
	case ctx.Err() != nil || errdefs.IsUnavailable(err):
		return nil, explain(ctx, err)
	default:
		e.once(about{"status", i.ID}, "the engine does not describe a container", "id", i.ID, "err", err)
		k := e.convert(pods.Listed(i))
		k.Partial = true
		if now := e.now(); now.Sub(began) >= slow {
			k.until = now.Add(askAgain)
			e.keep(k)
		}
		return k, nil // the next look asks again, unless it was kept
	}
	k := e.convert(c)
	if k.PID == 0 && c.State == cri.Running {
		e.once(about{what: "pid"}, "the engine does not say which process is a container's first: whether such containers are paused cannot be seen", "id", i.ID)
	}
	e.keep(k)
	return k, nil
}

func (e *Engine) convert(c cri.Container) *known {
	k := &known{started: c.Started, Container: container.Container{
		ID: c.ID, Name: name(c), Image: task.ImageName(c.Image), Command: strings.Join(c.Command, " "), Labels: c.Labels,
		Started: c.Started, GPUs: container.GivenGPUs(c.CDI, c.Env, c.Devices),
	}}
	if began := process.Began(e.kernel.Proc, c.PID); c.PID > 0 && !began.IsZero() {
		k.PID, k.Started = c.PID, began
		group, err := e.kernel.Of(c.ID, c.PID)
		if err != nil {
			group, err = e.kernel.Find(c.ID)
		}
		if err == nil {
			k.group = &group
		} else {
			e.once(about{what: "freezer"}, "the freezer of a container cannot be found: whether such containers are paused cannot be seen", "id", c.ID, "err", err)
		}
	}
	return k
}

// name is what no other container of this machine is called.
func name(c cri.Container) string {
	if c.Pod == "" {
		return c.ID[:12]
	}
	return task.PodContainer(c.PodNamespace, c.Pod, c.Name)
}

// paused reports whether the kernel has frozen the container; false where that cannot be read.
func (e *Engine) paused(k *known) bool {
	if k.group == nil {
		return false
	}
	frozen, err := k.group.Frozen()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) { // those mean that it has ended
		e.once(about{"paused", k.ID}, "the freezer of a container cannot be read: it counts as running", "container", k.Name, "id", k.ID, "err", err)
	}
	return err == nil && frozen
}

// watchable reports whether the container can be told from the control group of its processes.
func (e *Engine) watchable(id string) bool {
	if oci.LongID(id) {
		return true
	}
	e.once(about{"id", id}, "a container cannot be watched: its id is not 64 hex digits, so that its processes cannot be told from their control group", "id", id)
	return false
}

// find returns what was said of a container; nil where the engine is to be asked.
func (e *Engine) find(id string) *known {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := e.known[id]
	if k != nil && k.Partial && !e.now().Before(k.until) {
		return nil
	}
	return k
}

func (e *Engine) keep(k *known) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[k.ID] = k
}

// forget drops what is known of those that were not seen, and what was said of those that are not
// listed any more.
func (e *Engine) forget(seen map[string]seen, items []cri.Item) {
	listed := make(map[string]bool, len(items))
	for _, i := range items {
		listed[i.ID] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.known {
		if _, there := seen[id]; !there {
			delete(e.known, id)
		}
	}
	maps.DeleteFunc(e.said, func(a about, _ bool) bool { return a.id != "" && !listed[a.id] })
}

// once logs a warning, the first time that it is about this.
func (e *Engine) once(a about, text string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.said[a] {
		e.said[a] = true
		e.log.Warn(text, args...)
	}
}

func explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("CRI: %w", ctx.Err())
	case strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("%w: %w (run as root)", container.ErrUnavailable, err)
	case cri.Unavailable(err):
		return fmt.Errorf("%w: %w", container.ErrUnavailable, err)
	default:
		return fmt.Errorf("CRI: %w", err)
	}
}
