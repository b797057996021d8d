package docker

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// Watch streams events from now on, by the engine's own clock: the engine sends
// the header of its answer before it begins to listen, so that without a start
// time an event could fall between the two.
func (e *Engine) Watch(ctx context.Context) (<-chan container.Event, error) {
	info, err := e.client.Info(ctx)
	if err != nil {
		return nil, e.explain("watch containers", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	messages, errs := e.client.Events(ctx, events.ListOptions{
		Since:   info.SystemTime,
		Filters: eventFilter(),
	})
	select {
	case err := <-errs:
		cancel()
		return nil, e.explain("watch containers", err)
	default:
	}
	out := make(chan container.Event, 16)
	go func() {
		defer cancel()
		defer close(out)
		e.forward(ctx, messages, errs, out)
	}()
	return out, nil
}

func eventFilter() filters.Args {
	f := filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)))
	for action := range kinds {
		f.Add("event", string(action))
	}
	return f
}

// kinds are the events by their names. Podman says "remove", and some of its versions know "die"
// by its own name only when they filter.
var kinds = map[events.Action]container.EventKind{
	events.ActionStart:   container.Started,
	events.ActionDie:     container.Died,
	"died":               container.Died,
	events.ActionPause:   container.Paused,
	events.ActionUnPause: container.Unpaused,
	events.ActionRename:  container.Renamed,
	events.ActionDestroy: container.Removed,
	events.ActionRemove:  container.Removed,
}

func (e *Engine) forward(ctx context.Context, in <-chan events.Message, errs <-chan error, out chan<- container.Event) {
	for {
		select {
		case m := <-in:
			select {
			case out <- e.event(ctx, m):
			case <-ctx.Done():
				return
			}
		case err := <-errs:
			if ctx.Err() == nil {
				if errors.Is(err, io.EOF) {
					err = errors.New("the engine closed it")
				}
				e.log.Warn("the engine's event stream ended", "err", err)
			}
			return
		}
	}
}

func (e *Engine) event(ctx context.Context, m events.Message) container.Event {
	event := container.Event{Kind: kinds[m.Action], ID: m.Actor.ID, Time: time.Unix(0, m.TimeNano)}
	if event.Kind != container.Started && event.Kind != container.Renamed {
		return event
	}
	c, err := e.inspect(ctx, m.Actor.ID)
	if err != nil && !errors.Is(err, errUndescribed) {
		e.log.Warn("a container's event came, but not its description", "container", m.Actor.Attributes["name"], "err", err)
	}
	if c == nil {
		known := fromEvent(m)
		c = &known
	}
	event.Container = c
	return event
}

// fromEvent is what an event alone says of a container. Labels stand among the
// attributes, beside the engine's own; those few are taken out.
func fromEvent(m events.Message) container.Container {
	labels := maps.Clone(m.Actor.Attributes)
	for _, own := range []string{"name", "image", "oldName", "exitCode", "signal", "execDuration", "containerExitCode", "podId"} {
		delete(labels, own)
	}
	return container.Container{
		ID: m.Actor.ID, Partial: true,
		Name:   strings.TrimPrefix(m.Actor.Attributes["name"], "/"),
		Image:  task.ImageName(m.Actor.Attributes["image"]),
		Labels: labels,
	}
}
