// Package containerd pauses and resumes containers by containerd's task API, as enforce/pause asks.
//
// By the API, and not by the freezer alone: containerd then knows, so that `ctr task ls`, nerdctl and
// the exporter, which learns it by an event, say that the container is paused. The shim keeps that
// over a restart of containerd. Package README has what each costs.
//
// It is an adapter: it imports actuator/enforce, actuator/enforce/pause, actuator/journal,
// containerd/errdefs, internal/cache, internal/ctrd, internal/process and the standard library.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/pause"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/ctrd"
	"github.com/laxity/laxity/internal/process"
)

// Options of an Enforcer. Client and Journal are required.
type Options struct {
	Client  *ctrd.Client
	Journal *journal.Journal
	// Freezer is the kernel's by default.
	Freezer pause.Freezer
	// CallTimeout is that of pause.Options.
	CallTimeout time.Duration
	// Proc is the host's proc file system; /proc by default.
	Proc string
}

// Enforcer implements enforce.Enforcer and arbiter.Named.
type Enforcer struct {
	*pause.Enforcer
	client *ctrd.Client
}

// New checks the options and fills in the defaults.
func New(o Options) (*Enforcer, error) {
	if o.Client == nil {
		return nil, errors.New("enforce/containerd: Client is required")
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	e, err := pause.New(pause.Options{
		Engine:  &calls{client: o.Client, proc: o.Proc, known: &cache.Cache[known]{}},
		Journal: o.Journal, Freezer: o.Freezer, CallTimeout: o.CallTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &Enforcer{e, o.Client}, nil
}

// Engine returns the id of containerd, which lives as long as its root folder.
func (e *Enforcer) Engine(ctx context.Context) (string, error) {
	id, err := e.client.ID(ctx)
	if err != nil {
		return "", translate(err)
	}
	return "containerd-" + id, nil
}

// calls implements pause.Engine.
type calls struct {
	client *ctrd.Client
	proc   string

	known *cache.Cache[known] // the containers that were found
}

// known is what is used of a container. It does not change while the container is there.
type known struct {
	namespace string
	labels    map[string]string
}

// Inspect implements pause.Engine.
func (c *calls) Inspect(ctx context.Context, id string) (pause.State, error) {
	found, t, err := c.find(ctx, id)
	switch {
	case err != nil:
		return pause.State{}, translate(err)
	case !t.Runs:
		c.known.Forget(id)
		return pause.State{}, fmt.Errorf("container %.12s does not run: %w", id, enforce.ErrGone)
	case t.PID == 0: // containerd says this where its shim did not tell: older ones where it is slow
		return pause.State{}, fmt.Errorf("the shim of container %.12s does not answer: %w", id, enforce.ErrUnavailable)
	}
	return pause.State{PID: t.PID, Paused: t.Paused || t.Pausing, Started: process.Began(c.proc, t.PID), Labels: found.labels}, nil
}

// find returns a container and its task. It looks in each namespace for one that it does not know.
func (c *calls) find(ctx context.Context, id string) (known, ctrd.Task, error) {
	found, ok := c.known.Get(id)
	if ok {
		t, err := c.client.Task(ctx, found.namespace, id)
		if errdefs.IsNotFound(err) {
			c.known.Forget(id)
		}
		return found, t, err
	}
	namespaces, err := c.client.Namespaces(ctx)
	if err != nil {
		return known{}, ctrd.Task{}, err
	}
	for _, namespace := range namespaces {
		read, err := c.client.Container(ctx, namespace, id)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return known{}, ctrd.Task{}, err
		}
		found = known{namespace, read.Labels}
		t, err := c.client.Task(ctx, namespace, id)
		if err == nil {
			c.known.Put(id, found)
		}
		return found, t, err
	}
	return known{}, ctrd.Task{}, fmt.Errorf("container %.12s is in none of containerd's namespaces: %w", id, enforce.ErrGone)
}

// Pause implements pause.Engine.
func (c *calls) Pause(ctx context.Context, id string) error { return c.call(ctx, id, c.client.Pause) }

// Unpause implements pause.Engine.
func (c *calls) Unpause(ctx context.Context, id string) error {
	return c.call(ctx, id, c.client.Resume)
}

func (c *calls) call(ctx context.Context, id string, do func(ctx context.Context, namespace, id string) error) error {
	found, ok := c.known.Get(id)
	if !ok {
		var err error
		if found, _, err = c.find(ctx, id); err != nil {
			return translate(err)
		}
	}
	return translate(do(ctx, found.namespace, id))
}

// What shim and runc say, which have no error codes of their own. The shim knows the state that it
// brought about; runc reads the kernel's freezer.
var (
	already   = []string{"cannot pause a paused container", "cannot resume a running process", "cannot resume a running container"}
	lostTrack = []string{"container not paused", "container not running or created: paused", "unable to freeze", "container not running"}
	gone      = []string{"process already finished", "a stopped process", "a stopped container", "a deleted process", "a deleted container", "ttrpc: closed", "container does not exist"}
)

// translate wraps the engine's errors in those that callers act on.
func translate(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	says := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
	}
	switch {
	case says(already):
		return fmt.Errorf("%w: %w", pause.ErrAlready, err)
	case errdefs.IsNotFound(err), says(gone):
		return fmt.Errorf("%w: %w", enforce.ErrGone, err)
	case says(lostTrack):
		return fmt.Errorf("%w: %w", pause.ErrLostTrack, err)
	case ctrd.Unavailable(err):
		return fmt.Errorf("%w (is containerd running, and may this user reach it?): %w", enforce.ErrUnavailable, err)
	default:
		return err
	}
}
