// Package crio pauses and resumes containers by the kernel's freezer, as enforce/pause asks, where
// the engine has Kubernetes' container runtime interface (CRI) alone, which knows no pause: CRI-O.
//
// The engine says which process is a container's first, and its labels. The rest is the kernel's, so
// that what is paused can be released while the engine is away. Package README has what follows.
//
// It is an adapter: it imports actuator/enforce, actuator/enforce/pause, actuator/journal,
// containerd/errdefs, internal/cache, internal/cri, internal/freezer, internal/process and the standard library.
package crio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/pause"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/cache"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/process"
)

// Options of an Enforcer. Client and Journal are required.
type Options struct {
	Client  *cri.Client
	Journal *journal.Journal
	// Proc is the host's proc file system; /proc by default.
	Proc string
}

// Enforcer implements enforce.Enforcer and arbiter.Named.
type Enforcer struct {
	*pause.Enforcer
	client *cri.Client
	proc   string
}

// New checks the options and fills in the defaults.
func New(o Options) (*Enforcer, error) {
	if o.Client == nil {
		return nil, errors.New("enforce/crio: Client is required")
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	c := &calls{client: o.Client, kernel: freezer.New(o.Proc), known: &cache.Cache[known]{}}
	e, err := pause.New(pause.Options{Engine: c, Journal: o.Journal, Freezer: c})
	if err != nil {
		return nil, err
	}
	return &Enforcer{e, o.Client, o.Proc}, nil
}

// Engine returns the engine's name with that of this run of the kernel: the CRI gives an engine no
// identity, and a node has one CRI-O.
func (e *Enforcer) Engine(ctx context.Context) (string, error) {
	name, _, err := e.client.Version(ctx)
	if err != nil {
		return "", translate(err)
	}
	boot, err := os.ReadFile(filepath.Join(e.proc, "sys/kernel/random/boot_id"))
	return name + "-" + strings.TrimSpace(string(boot)), err
}

// calls implements pause.Engine and pause.Freezer.
type calls struct {
	client *cri.Client
	kernel freezer.Kernel

	// known are the containers that were described. The freezer of one that was forgotten is found by the id
	// alone until it is described again.
	known *cache.Cache[known]
}

// known is what is used of a container. It does not change while the container runs.
type known struct {
	pid    int
	labels map[string]string
}

// Inspect implements pause.Engine. While the engine is away, it knows those that the kernel has
// stopped, without their labels: they can be released.
func (c *calls) Inspect(ctx context.Context, id string) (pause.State, error) {
	found, state, err := c.find(ctx, id)
	switch {
	case err == nil:
	case errors.Is(translate(err), enforce.ErrUnavailable):
		if s, ok := c.stopped(id); ok {
			return s, nil
		}
		return pause.State{}, translate(err)
	default:
		c.known.Forget(id)
		return pause.State{}, translate(err)
	}
	if (state != cri.Running && state != cri.Unknown) || c.ended(found.pid) {
		c.known.Forget(id)
		return pause.State{}, fmt.Errorf("container %.12s does not run: %w", id, enforce.ErrGone)
	}
	if found.pid == 0 {
		return pause.State{}, fmt.Errorf("the engine does not say which process is the first of container %.12s, so that it cannot be paused", id)
	}
	g, err := c.group(id, found.pid)
	var asked bool // as an engine would take it to be paused: it may be about to stop
	if err == nil {
		asked, err = g.Asked()
	}
	if err != nil {
		return pause.State{}, c.explain(id, found.pid, err)
	}
	return pause.State{PID: found.pid, Paused: asked, Started: process.Began(c.kernel.Proc, found.pid), Labels: found.labels}, nil
}

// ended reports whether a container's first process is gone, and the container with it; false where
// it is not known.
func (c *calls) ended(pid int) bool { return pid > 0 && process.Began(c.kernel.Proc, pid).IsZero() }

// explain says why the freezer failed. A group that is not there means nothing by itself: the host's
// may be invisible to us.
func (c *calls) explain(id string, pid int, err error) error {
	if c.ended(pid) {
		return fmt.Errorf("container %.12s: %w: %w", id, enforce.ErrGone, err)
	}
	return fmt.Errorf("the freezer of container %.12s cannot be used (run Laxity as root, with write access to the host's /sys/fs/cgroup): %w", id, err)
}

// find asks the engine for a container: for all of it the first time, for its state later.
func (c *calls) find(ctx context.Context, id string) (known, cri.State, error) {
	found, ok := c.known.Get(id)
	if ok {
		state, _, err := c.client.StateOf(ctx, id)
		return found, state, err
	}
	read, err := c.client.Describe(ctx, id, nil)
	found = known{read.PID, read.Labels}
	if err == nil && read.State == cri.Running && read.PID > 0 {
		c.known.Put(id, found)
	}
	return found, read.State, err
}

// group is the container's control group: its first process is in it, or in one below. Where the
// process's path does not tell, because it is outside of our cgroup namespace, the group's name does.
func (c *calls) group(id string, pid int) (freezer.Group, error) {
	g, err := c.kernel.Of(id, pid)
	if err == nil {
		return g, nil
	}
	g, ferr := c.kernel.Find(id)
	if ferr != nil {
		return g, errors.Join(err, ferr)
	}
	return g, nil
}

// State implements pause.Freezer.
func (c *calls) State(id string, pid int) (freezer.State, error) {
	g, err := c.group(id, pid)
	if err != nil {
		return freezer.Thawed, err
	}
	return g.State()
}

// Set implements pause.Freezer.
func (c *calls) Set(id string, pid int, frozen bool) error {
	g, err := c.group(id, pid)
	if err != nil {
		return err
	}
	return g.Set(frozen)
}

// stopped describes a container by the kernel alone, if that has stopped it, or is about to.
func (c *calls) stopped(id string) (pause.State, bool) {
	g, err := c.kernel.Find(id)
	if err != nil {
		return pause.State{}, false
	}
	asked, err := g.Asked()
	if err != nil || !asked {
		return pause.State{}, false
	}
	pid, err := g.PID()
	if err != nil {
		return pause.State{}, false
	}
	return pause.State{PID: pid, Paused: true}, true
}

// Pause implements pause.Engine.
func (c *calls) Pause(_ context.Context, id string) error { return c.set(id, true) }

// Unpause implements pause.Engine.
func (c *calls) Unpause(_ context.Context, id string) error { return c.set(id, false) }

func (c *calls) set(id string, frozen bool) error {
	found, _ := c.known.Get(id) // no PID while the engine is away, and of one that was forgotten: the group is found without
	err := c.Set(id, found.pid, frozen)
	if err != nil {
		err = c.explain(id, found.pid, err)
	}
	return err
}

// translate wraps the engine's errors in those that callers act on.
func translate(err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: %w", enforce.ErrGone, err)
	case cri.Unavailable(err):
		return fmt.Errorf("%w (is the engine running, and may this user reach it?): %w", enforce.ErrUnavailable, err)
	default:
		return err
	}
}
