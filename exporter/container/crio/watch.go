package crio

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/cri"
)

// every is how often the engine is looked at where it tells nothing; the kubelet does so, too.
const every = time.Second

// Watch implements container.Source. It looks before it returns, and what differs later is told. A
// container that was there for less than the time between two looks is told of as long as the engine
// still lists it.
func (e *Engine) Watch(ctx context.Context) (<-chan container.Event, error) {
	before, err := e.look(ctx)
	if err != nil {
		return nil, err
	}
	ticks, stop := e.clock()
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{}, 1)
	go e.follow(ctx, told)
	out := make(chan container.Event, 16)
	go func() {
		defer close(out)
		defer cancel()
		defer stop()
		if err := e.compare(ctx, before, ticks, told, out); err != nil && ctx.Err() == nil {
			e.log.Warn("the engine cannot be looked at any more", "err", err)
		}
	}()
	return out, nil
}

// follow sends to told when the engine tells of a change, for as long as it does. Where the stream
// breaks it looks, and opens it again.
func (e *Engine) follow(ctx context.Context, told chan<- struct{}) {
	look := func() {
		select {
		case told <- struct{}{}:
		default: // one look is for all
		}
	}
	for {
		err := e.client.Follow(ctx, look)
		if errdefs.IsNotImplemented(err) {
			e.once(about{what: "events"}, "the engine tells of no events (CRI-O does with enable_pod_events): starts and ends of containers are seen within a second")
			return
		}
		if ctx.Err() == nil {
			e.log.Info("the engine's stream of events broke, and is opened again", "err", err)
			look()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// clock says when a watch looks, until it is stopped.
func (e *Engine) clock() (ticks <-chan time.Time, stop func()) {
	if e.ticks != nil {
		return e.ticks(), func() {}
	}
	t := time.NewTicker(every)
	return t.C, t.Stop
}

// compare looks again and again, and sends what has changed. It returns when a look fails.
func (e *Engine) compare(ctx context.Context, before map[string]seen, ticks <-chan time.Time, told <-chan struct{}, out chan<- container.Event) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks:
		case <-told:
		}
		after, err := e.look(ctx)
		if err != nil {
			return err
		}
		for _, c := range differences(before, after) {
			event, err := e.event(ctx, c, after[c.id])
			if err != nil {
				return err
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		before = after
	}
}

// change is what happened to one container.
type change struct {
	id   string
	kind container.EventKind
}

// differences says what happened between two looks, in the order of each container's life.
func differences(before, after map[string]seen) (all []change) {
	for id, now := range after {
		was, known := before[id]
		switch {
		case now.state == cri.Running && (!known || was.state != cri.Running):
			all = append(all, change{id, container.Started})
		case now.state == cri.Running && now.paused != was.paused:
			all = append(all, change{id, map[bool]container.EventKind{true: container.Paused, false: container.Unpaused}[now.paused]})
		case now.state == cri.Exited && known && was.state == cri.Running:
			all = append(all, change{id, container.Died})
		case now.state == cri.Exited && (!known || was.state != cri.Exited):
			all = append(all, change{id, container.Started}, change{id, container.Died})
		}
	}
	for id, was := range before {
		if _, there := after[id]; there {
			continue
		}
		if was.state == cri.Running {
			all = append(all, change{id, container.Died})
		}
		all = append(all, change{id, container.Removed})
	}
	slices.SortStableFunc(all, func(a, b change) int { return strings.Compare(a.id, b.id) })
	return all
}

// event describes a change.
func (e *Engine) event(ctx context.Context, c change, now seen) (container.Event, error) {
	event := container.Event{Kind: c.kind, ID: c.id, Time: time.Now()}
	switch c.kind {
	case container.Started:
		if now.known == nil { // it has ended already
			var err error
			if now.known, err = e.describe(ctx, cri.Item{ID: c.id}, nil); errdefs.IsNotFound(err) {
				now.known = &known{Container: container.Container{ID: c.id, Name: c.id[:12], Partial: true}}
			} else if err != nil {
				return event, err
			}
		}
		described := now.container()
		event.Container = &described
		if !now.started.IsZero() {
			event.Time = now.started
		}
	case container.Died:
		bounded, cancel := context.WithTimeout(ctx, container.DescribeTimeout)
		defer cancel()
		_, finished, err := e.client.StateOf(bounded, c.id)
		switch {
		case err == nil && !finished.IsZero():
			event.Time = finished
		case err != nil && (ctx.Err() != nil || errdefs.IsUnavailable(err)):
			return event, explain(ctx, err)
		}
	}
	return event, nil
}
