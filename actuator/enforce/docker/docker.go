// Package docker pauses and unpauses containers by the Docker API, as enforce/pause asks.
//
// The Docker calls it makes, for an allow-list on a socket proxy:
// GET /_ping, GET /info (at the start, for its id), GET /containers/ID/json, POST /containers/ID/pause and /unpause.
//
// It is an adapter: it imports the Docker client, actuator/enforce, actuator/enforce/pause,
// actuator/journal, internal/enginekind and the standard library.
package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/pause"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/enginekind"
)

// Engine is the part of the Docker client that we use.
type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerPause(ctx context.Context, id string) error
	ContainerUnpause(ctx context.Context, id string) error
}

// Options of an Enforcer. Engine and Journal are required; the others are those of pause.Options.
type Options struct {
	Engine        Engine
	Journal       *journal.Journal
	Freezer       pause.Freezer
	CallTimeout   time.Duration
	FreezeTimeout time.Duration
	Attempts      int
}

// Enforcer implements enforce.Enforcer and arbiter.Named.
type Enforcer struct {
	*pause.Enforcer
	engine Engine
}

// New checks the options and fills in the defaults.
func New(o Options) (*Enforcer, error) {
	if o.Engine == nil {
		return nil, errors.New("enforce/docker: Engine is required")
	}
	e, err := pause.New(pause.Options{
		Engine: calls{o.Engine}, Journal: o.Journal, Freezer: o.Freezer, CallTimeout: o.CallTimeout,
		FreezeTimeout: o.FreezeTimeout, Attempts: o.Attempts,
	})
	if err != nil {
		return nil, err
	}
	return &Enforcer{Enforcer: e, engine: o.Engine}, nil
}

// Engine returns a name of the engine, which lives as long as the engine's data folder: its id.
// Podman makes up an id for each answer, so it is named by the folder. It returns an error if the
// engine in use has no name or does not answer.
func (e *Enforcer) Engine(ctx context.Context) (string, error) {
	asked, ok := e.engine.(interface {
		Info(ctx context.Context) (system.Info, error)
	})
	if !ok {
		return "", errors.New("this engine has no name")
	}
	info, err := asked.Info(ctx)
	if err != nil {
		return "", translate(err)
	}
	name := info.ID
	if c, ok := e.engine.(*client.Client); ok {
		podman, err := enginekind.Podman(ctx, c)
		if err != nil {
			return "", translate(err)
		}
		if podman != "" {
			name = info.DockerRootDir
		}
	}
	if name == "" {
		return "", errors.New("the engine has no id")
	}
	return name, nil
}

// calls implements pause.Engine.
type calls struct{ engine Engine }

// Inspect implements pause.Engine.
func (c calls) Inspect(ctx context.Context, id string) (pause.State, error) {
	raw, err := c.engine.ContainerInspect(ctx, id)
	switch {
	case err != nil:
		return pause.State{}, translate(err)
	case raw.ContainerJSONBase == nil || raw.State == nil || !raw.State.Running || raw.State.Pid == 0:
		return pause.State{}, fmt.Errorf("container %.12s does not run: %w", id, enforce.ErrGone)
	}
	s := pause.State{PID: raw.State.Pid, Paused: raw.State.Paused}
	if began, err := time.Parse(time.RFC3339Nano, raw.State.StartedAt); err == nil {
		s.Started = began
	}
	if raw.Config != nil {
		s.Labels = raw.Config.Labels
	}
	return s, nil
}

// Pause implements pause.Engine.
func (c calls) Pause(ctx context.Context, id string) error {
	return translate(c.engine.ContainerPause(ctx, id))
}

// Unpause implements pause.Engine.
func (c calls) Unpause(ctx context.Context, id string) error {
	return translate(c.engine.ContainerUnpause(ctx, id))
}

// translate wraps the engine's errors in those that callers act on.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case enginekind.Says(err, "cannot pause a paused container"):
		// The engine was killed during a pause, after containerd had recorded the pause and before the
		// engine had. Until the container ends the engine can neither pause nor unpause it.
		return fmt.Errorf("%w: %w", pause.ErrLostTrack, err)
	case enginekind.Says(err, "container not running"):
		// runc says this of a container that the kernel has frozen while the engine takes it to run, as
		// after a pause that took too long. It says it of one that ended too: the next call tells.
		return fmt.Errorf("%w: %w", pause.ErrLostTrack, err)
	case enginekind.Says(err, "already paused"), enginekind.Says(err, "not paused"):
		return fmt.Errorf("%w: %w", pause.ErrAlready, err)
	case enginekind.Gone(err), enginekind.Says(err, "is not running"), enginekind.Says(err, "is restarting"):
		return fmt.Errorf("%w: %w", enforce.ErrGone, err)
	case client.IsErrConnectionFailed(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (is it running, and may this user reach it?): %w", enforce.ErrUnavailable, err)
	default:
		return err
	}
}
