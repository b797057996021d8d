// Package docker is container.Source for the Docker engine. It only reads: it
// lists, inspects and listens, and calls nothing that changes a container.
//
// It imports exporter/container, exporter/task, internal/enginekind, the Docker client, containerd/errdefs and
// the standard library.
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	api "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/enginekind"
)

// maxInspects bounds how many containers are inspected at once. The engine
// answers one in 1–3 ms; more at once only wait for each other there.
const maxInspects = 8

// Options say which engine to use.
type Options struct {
	// Host is the engine's address, such as unix:///var/run/docker.sock. Empty:
	// DOCKER_HOST and its kin, else the usual socket.
	Host string
	// Log gets a line when the event stream breaks. Nil: nothing.
	Log *slog.Logger
}

// Engine reads one Docker engine.
type Engine struct {
	client *client.Client
	log    *slog.Logger
}

var _ container.Source = (*Engine)(nil)

// New prepares to talk to an engine; it does not call it yet. The API version is
// negotiated with the first call, because engines refuse newer clients.
func New(o Options) (*Engine, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if o.Host != "" {
		opts = append(opts, client.WithHost(o.Host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker client: %w (check DOCKER_HOST and its kin)", err)
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Engine{client: c, log: log}, nil
}

// Close closes the connections to the engine.
func (e *Engine) Close() error { return e.client.Close() }

// List returns every running or paused container. The engine's list has neither
// PID nor start time, so each container is inspected, several at once. One that the engine
// cannot describe hides no other: it is Partial, as the list says.
func (e *Engine) List(ctx context.Context) ([]container.Container, error) {
	listed, err := e.client.ContainerList(ctx, api.ListOptions{
		Filters: filters.NewArgs(filters.Arg("status", "running"), filters.Arg("status", "paused")),
	})
	if err != nil {
		return nil, e.explain("list containers", err)
	}
	found := make([]*container.Container, len(listed))
	errs := make([]error, len(listed))
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxInspects)
	for i, summary := range listed {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			found[i], errs[i] = e.inspect(ctx, summary.ID)
			if errors.Is(errs[i], errUndescribed) {
				known := fromSummary(summary)
				found[i], errs[i] = &known, nil
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	containers := make([]container.Container, 0, len(found))
	for _, c := range found {
		if c != nil { // otherwise it ended or was removed since it was listed
			containers = append(containers, *c)
		}
	}
	return containers, nil
}

// errUndescribed means that the engine answers, but does not describe one container: it fails for it
// (500), or not in time.
var errUndescribed = errors.New("the engine does not describe this container")

// inspect returns nil for a container that no longer runs. It logs an errUndescribed itself.
func (e *Engine) inspect(ctx context.Context, id string) (*container.Container, error) {
	bounded, cancel := context.WithTimeout(ctx, container.DescribeTimeout)
	defer cancel()
	raw, err := e.client.ContainerInspect(bounded, id)
	switch {
	case enginekind.Gone(err):
		return nil, nil
	case cerrdefs.IsInternal(err), err != nil && bounded.Err() != nil && ctx.Err() == nil:
		e.log.Warn("the engine does not describe a container; what was known of it before counts", "id", id, "err", err)
		return nil, fmt.Errorf("%w: %w", errUndescribed, err)
	case err != nil:
		return nil, e.explain("inspect container "+id, err)
	}
	c := fromInspect(raw)
	if c.PID == 0 {
		return nil, nil
	}
	return &c, nil
}

func (e *Engine) explain(what string, err error) error {
	switch {
	case client.IsErrConnectionFailed(err):
		return fmt.Errorf("%w: %s: %w", container.ErrUnavailable, what, err)
	case cerrdefs.IsPermissionDenied(err) || errors.Is(err, errPermission):
		return fmt.Errorf("%w: %s: %w (run as root, or as a member of the group of the socket %s)",
			container.ErrUnavailable, what, err, e.client.DaemonHost())
	default:
		return fmt.Errorf("docker: %s: %w", what, err)
	}
}
