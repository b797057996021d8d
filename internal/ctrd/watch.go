package ctrd

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
)

// Kind is what happened to a container.
type Kind string

// The kinds of events, by containerd's topics.
const (
	Started Kind = "/tasks/start"
	Exited  Kind = "/tasks/exit"
	Paused  Kind = "/tasks/paused"
	Resumed Kind = "/tasks/resumed"
	Updated Kind = "/containers/update"
	Deleted Kind = "/containers/delete"
)

// Event is one change of one container of a namespace in use.
type Event struct {
	Kind          Kind
	Namespace, ID string
	PID           int // of Started
	Time          time.Time
}

// Watch sends events until ctx ends or the stream breaks, and then closes the channel; broken says
// why it broke. What happens after Watch returned is not missed.
//
// containerd does not tell when it has begun to listen. So an event of our own is published, under
// a topic that nobody else uses, until it arrives.
func (c *Client) Watch(ctx context.Context, broken func(error)) (<-chan Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	mark := "/laxity/watch/" + strings.ToLower(rand.Text())
	filters := []string{`topic=="` + mark + `"`}
	for _, k := range []Kind{Started, Exited, Paused, Resumed, Updated, Deleted} {
		filters = append(filters, `topic=="`+string(k)+`"`)
	}
	envelopes, errs := c.client.Subscribe(ctx, filters...)
	early, err := c.await(ctx, mark, envelopes, errs)
	if err != nil {
		cancel()
		return nil, err
	}
	out := make(chan Event, 16)
	go func() {
		defer close(out)
		defer cancel()
		if err := c.forward(ctx, early, envelopes, errs, out); err != nil && ctx.Err() == nil {
			broken(err)
		}
	}()
	return out, nil
}

// again is how long the mark may take before it is sent once more.
const again = 50 * time.Millisecond

// await returns once the mark has arrived, with the events that came before it.
func (c *Client) await(ctx context.Context, mark string, envelopes <-chan *events.Envelope, errs <-chan error) (early []*events.Envelope, err error) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		if err := c.client.EventService().Publish(in(ctx, "default"), mark, &api.NamespaceUpdate{Name: "default"}); err != nil {
			return nil, fmt.Errorf("watch events: %w", err)
		}
		for waits := true; waits; {
			select {
			case e := <-envelopes:
				if e != nil && e.Topic == mark {
					return early, nil
				}
				early = append(early, e)
			case err := <-errs:
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				return nil, fmt.Errorf("watch events: %w", err)
			case <-tick.C:
				waits = false
			}
		}
	}
}

func (c *Client) forward(ctx context.Context, early []*events.Envelope, envelopes <-chan *events.Envelope, errs <-chan error, out chan<- Event) error {
	for {
		var next *events.Envelope
		if len(early) > 0 {
			next, early = early[0], early[1:]
		} else {
			select {
			case next = <-envelopes:
			case err := <-errs:
				return err
			}
		}
		e, ok := eventOf(next)
		if !ok || !c.Uses(e.Namespace) {
			continue
		}
		select {
		case out <- e:
		case <-ctx.Done():
			return nil
		}
	}
}

// eventOf reads an event; false for one of a further process of a container, and for what cannot be
// read.
func eventOf(e *events.Envelope) (Event, bool) {
	if e == nil {
		return Event{}, false
	}
	raw, err := typeurl.UnmarshalAny(e.Event)
	if err != nil {
		return Event{}, false
	}
	out := Event{Kind: Kind(e.Topic), Namespace: e.Namespace, Time: e.Timestamp}
	switch raw := raw.(type) {
	case *api.TaskStart:
		out.ID, out.PID = raw.GetContainerID(), int(raw.GetPid())
	case *api.TaskExit:
		out.ID = raw.GetContainerID()
		if raw.GetID() != out.ID {
			return Event{}, false
		}
	case *api.TaskPaused:
		out.ID = raw.GetContainerID()
	case *api.TaskResumed:
		out.ID = raw.GetContainerID()
	case *api.ContainerUpdate:
		out.ID = raw.GetID()
	case *api.ContainerDelete:
		out.ID = raw.GetID()
	}
	return out, out.ID != ""
}
