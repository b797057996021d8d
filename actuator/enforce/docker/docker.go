// Package docker pauses and unpauses containers by the Docker API, on record
// before the call and checked against the kernel's freezer after it.
//
// The Docker calls it makes, for an allow-list on a socket proxy:
// GET /_ping, GET /info (once, for its id), GET /containers/ID/json, POST /containers/ID/pause and /unpause.
//
// It is an adapter: it imports the Docker client, containerd/errdefs, actuator/enforce,
// actuator/journal, internal/cgroup and the standard library.
package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
)

// Engine is what is used of the Docker client.
type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerPause(ctx context.Context, id string) error
	ContainerUnpause(ctx context.Context, id string) error
}

// Freezer is the kernel's, for the container whose first process is pid.
type Freezer interface {
	// Frozen says whether the kernel has frozen the container, or returns an error
	// where that cannot be read.
	Frozen(pid int) (bool, error)
	// Set freezes or thaws the container with this id behind the engine's back; for one of
	// which the engine has lost track. pid is one of its processes: the error says so where
	// that is in no control group of the container's, and nothing is done.
	Set(id string, pid int, frozen bool) error
}

// Options of an Enforcer. Engine and Journal are required.
type Options struct {
	Engine  Engine
	Journal *journal.Journal
	// Freezer is the kernel's by default.
	Freezer Freezer
	// CallTimeout bounds one call of the engine; 5 s by default.
	CallTimeout time.Duration
	// FreezeTimeout is how long the kernel may take to follow the engine; 1 s by
	// default.
	FreezeTimeout time.Duration
	// Attempts bounds how often pause and unpause are called; 5 by default.
	Attempts int
	// Late is how long a pause that was asked for may still take to begin once the
	// engine answers; 700 ms by default.
	Late time.Duration
}

// Enforcer implements enforce.Enforcer.
type Enforcer struct {
	o     Options
	calls atomic.Uint64
}

var _ enforce.Enforcer = (*Enforcer)(nil)

// New checks the options and fills in the defaults.
func New(o Options) (*Enforcer, error) {
	if o.Engine == nil || o.Journal == nil {
		return nil, errors.New("enforce/docker: Engine and Journal are required")
	}
	if o.Freezer == nil {
		o.Freezer = Kernel{Proc: "/proc"}
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.FreezeTimeout == 0 {
		o.FreezeTimeout = time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.Late == 0 {
		o.Late = 700 * time.Millisecond
	}
	return &Enforcer{o: o}, nil
}

// Status implements enforce.Enforcer.
func (e *Enforcer) Status(ctx context.Context, id string) (enforce.Status, error) {
	s, pid, err := e.inspect(ctx, id)
	if err != nil {
		return enforce.Status{}, err
	}
	if frozen, ferr := e.o.Freezer.Frozen(pid); ferr == nil {
		s.Verified = frozen == s.Paused
		s.Paused = s.Paused || frozen
	}
	return s, nil
}

func (e *Enforcer) inspect(ctx context.Context, id string) (enforce.Status, int, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.CallTimeout)
	defer cancel()
	c, err := e.o.Engine.ContainerInspect(ctx, id)
	switch {
	case err != nil:
		return enforce.Status{}, 0, translate(err)
	case c.ContainerJSONBase == nil || c.State == nil || !c.State.Running || c.State.Pid == 0:
		return enforce.Status{}, 0, fmt.Errorf("container %.12s does not run: %w", id, enforce.ErrGone)
	}
	s := enforce.Status{Running: true, Paused: c.State.Paused}
	if began, err := time.Parse(time.RFC3339Nano, c.State.StartedAt); err == nil {
		s.Started = began
	}
	if c.Config != nil {
		s.Labels = c.Config.Labels
	}
	return s, c.State.Pid, nil
}

// Pause implements enforce.Enforcer.
func (e *Enforcer) Pause(ctx context.Context, h enforce.Hold) error {
	_, ours, err := e.o.Journal.Get(h.ContainerID)
	if err != nil {
		return err
	}
	s, pid, err := e.inspect(ctx, h.ContainerID)
	frozen := s.Paused // where the freezer cannot be read, the engine's word is taken
	if err == nil {
		if k, ferr := e.o.Freezer.Frozen(pid); ferr == nil {
			frozen = k
		}
	}
	switch {
	case errors.Is(err, enforce.ErrGone):
		return errors.Join(err, e.o.Journal.Remove(h.ContainerID))
	case err != nil:
		return err
	case (s.Paused || frozen) && !ours:
		return fmt.Errorf("container %s was paused by somebody else: %w", h.Container, enforce.ErrForeign)
	}
	if err := e.o.Journal.Put(h); err != nil || frozen {
		return err // nothing has stopped, or it is renewed
	}
	if err := e.freeze(ctx, h.ContainerID, pid, s.Paused); err != nil {
		return e.takeBack(h.ContainerID, err)
	}
	return nil
}

// takeBack ends a pause that went wrong. The record stays if the container may
// be stopped all the same; whoever holds the record releases it later.
func (e *Enforcer) takeBack(id string, cause error) error {
	if errors.Is(cause, enforce.ErrForeign) || errors.Is(cause, enforce.ErrGone) {
		return errors.Join(cause, e.o.Journal.Remove(id))
	}
	if errors.Is(cause, enforce.ErrUnavailable) {
		// The engine may carry the pause out yet: a record that is removed now
		// would be missed then.
		return fmt.Errorf("%w (it stays on record until it is known whether it worked)", cause)
	}
	// Not the caller's context: it may be what ended, and this must be tried.
	ctx, cancel := context.WithTimeout(context.Background(), 2*e.o.CallTimeout)
	defer cancel()
	if err := e.Unpause(ctx, id); err != nil {
		return fmt.Errorf("%w (releasing it again failed too, it stays on record: %w)", cause, err)
	}
	return cause
}

// freeze calls pause until engine and kernel agree that the container is
// stopped. The container's record exists. ours: a pause that is found may be our
// own.
func (e *Enforcer) freeze(ctx context.Context, id string, pid int, ours bool) error {
	return e.retry(ctx, func() (bool, error) {
		err := e.call(ctx, id, e.o.Engine.ContainerPause)
		switch {
		case err == nil:
		case is(err, "already paused"):
			// Under load the engine says so of a container that runs; and
			// somebody may have been faster than we.
			if frozen, ferr := e.o.Freezer.Frozen(pid); ferr != nil || frozen {
				if !ours {
					return true, fmt.Errorf("somebody else paused it at the same time: %w", enforce.ErrForeign)
				}
				return true, nil
			}
			_ = e.call(ctx, id, e.o.Engine.ContainerUnpause) // puts the engine's mind right
			return false, fmt.Errorf("the engine says paused, the kernel says it runs")
		case forgotten(err):
			if err := e.override(id, pid, true); err != nil {
				return false, err
			}
		default:
			err = translate(err)
			ours = ours || errors.Is(err, enforce.ErrUnavailable) // it may have worked
			return errors.Is(err, enforce.ErrGone), err
		}
		ours = true
		return e.settled(ctx, id, pid, true)
	})
}

// Unpause implements enforce.Enforcer.
func (e *Enforcer) Unpause(ctx context.Context, id string) error {
	if _, ours, err := e.o.Journal.Get(id); err == nil && !ours {
		return fmt.Errorf("container %.12s is not on record: %w", id, enforce.ErrForeign)
	} // a record that cannot be read is a record
	pid, err := e.stopped(ctx, id)
	if err == nil && pid != 0 {
		err = e.thaw(ctx, id, pid)
	}
	if err != nil && !errors.Is(err, enforce.ErrGone) {
		return err
	}
	return e.o.Journal.Remove(id)
}

// stopped returns the first process of a container on record that is stopped, or 0
// for one that runs and was seen to for Late: whoever put it on record may have died,
// or given up, between its request and the engine's work on it, and a record that was
// removed in between would leave the container stopped for ever. How old the record
// is does not matter; an engine may be slow.
func (e *Enforcer) stopped(ctx context.Context, id string) (pid int, err error) {
	var first time.Time // when the engine first answered
	for {
		s, pid, err := e.inspect(ctx, id)
		if err != nil {
			return 0, err
		}
		if frozen, ferr := e.o.Freezer.Frozen(pid); s.Paused || (ferr == nil && frozen) {
			return pid, nil
		}
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) >= e.o.Late {
			return 0, nil
		}
		if err := enforce.Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func (e *Enforcer) thaw(ctx context.Context, id string, pid int) error {
	return e.retry(ctx, func() (bool, error) {
		err := e.call(ctx, id, e.o.Engine.ContainerUnpause)
		switch {
		case err == nil:
		case is(err, "not paused"):
			if frozen, ferr := e.o.Freezer.Frozen(pid); ferr != nil || !frozen {
				return true, nil //nolint:nilerr // it runs, as it should
			}
			// So that the next unpause is heard.
			if err := e.call(ctx, id, e.o.Engine.ContainerPause); err == nil || !forgotten(err) {
				return false, fmt.Errorf("the engine says not paused, the kernel says it is stopped")
			}
			if err := e.override(id, pid, false); err != nil {
				return false, err
			}
		default:
			err = translate(err)
			return errors.Is(err, enforce.ErrGone), err
		}
		return e.settled(ctx, id, pid, false)
	})
}

// forgotten tells of a container of which the engine has lost track: it was killed in
// the midst of a pause, between its containerd, which remembers that, and its own record.
// Until the container ends the engine can neither pause nor unpause it.
func forgotten(err error) bool { return is(err, "cannot pause a paused container") }

// override does what the engine cannot do any more.
func (e *Enforcer) override(id string, pid int, frozen bool) error {
	if err := e.o.Freezer.Set(id, pid, frozen); err != nil {
		return fmt.Errorf("the engine has lost track of a pause that it was killed in, and the kernel's freezer cannot be set "+
			"(run Laxity with write access to /sys/fs/cgroup, or restart the container): %w", err)
	}
	return nil
}

// settled waits until the kernel agrees with what we asked the engine for. Where the
// freezer cannot be read, the engine's word is taken; and where the engine says the
// opposite by then, somebody else has asked for that since, who is not overruled.
func (e *Enforcer) settled(ctx context.Context, id string, pid int, want bool) (bool, error) {
	deadline := time.Now().Add(e.o.FreezeTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		frozen, err := e.o.Freezer.Frozen(pid)
		if err != nil {
			_, _, err = e.inspect(ctx, id) // gone, perhaps
			return true, err
		}
		if frozen == want {
			return true, nil
		}
		if time.Now().After(deadline) {
			if s, _, err := e.inspect(ctx, id); err == nil && s.Paused != want {
				return true, nil
			}
			return false, fmt.Errorf("the kernel's freezer did not follow the engine within %v", e.o.FreezeTimeout)
		}
		if err := enforce.Sleep(ctx, wait); err != nil {
			return true, err
		}
	}
}

// retry calls try until it says done, Attempts times at most.
func (e *Enforcer) retry(ctx context.Context, try func() (done bool, err error)) error {
	wait := 10 * time.Millisecond
	for i := 1; ; i++ {
		done, err := try()
		switch {
		case done || err == nil:
			return err
		case i >= e.o.Attempts:
			return fmt.Errorf("after %d attempts: %w", i, err)
		}
		if serr := enforce.Sleep(ctx, wait); serr != nil {
			return errors.Join(err, serr)
		}
		wait *= 2
	}
}

// Calls implements enforce.Enforcer.
func (e *Enforcer) Calls() uint64 { return e.calls.Load() }

func (e *Enforcer) call(ctx context.Context, id string, f func(context.Context, string) error) error {
	e.calls.Add(1)
	ctx, cancel := context.WithTimeout(ctx, e.o.CallTimeout)
	defer cancel()
	return f(ctx, id)
}

func is(err error, text string) bool {
	return strings.Contains(strings.ToLower(err.Error()), text)
}

// translate gives the engine's errors the meaning that callers act on.
func translate(err error) error {
	switch {
	case errdefs.IsNotFound(err), is(err, "is not running"), is(err, "is restarting"):
		return fmt.Errorf("%w: %w", enforce.ErrGone, err)
	case client.IsErrConnectionFailed(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (is it running, and may this user reach it?): %w", enforce.ErrUnavailable, err)
	default:
		return err
	}
}
