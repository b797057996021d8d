package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

// persons are the containers of which a person wanted something, and how often that
// was undone.
type persons struct {
	docker *client.Client
	theirs *tenant.Tenant // paused by a person
	freed  *tenant.Tenant // unpaused by a person

	mu                 sync.Mutex
	unpaused, repaused int   // since the last time that somebody asked
	blind              error // why that is not known any more
	watching           chan struct{}
}

// people start the actuator, pause one container, and unpause another that was held.
func (m *machine) people(ctx context.Context, lease time.Duration) (err error) {
	p := &persons{docker: m.docker}
	if p.theirs, err = m.tenant(ctx, "theirs", false); err != nil {
		return err
	}
	if err := m.docker.ContainerPause(ctx, p.theirs.ID); err != nil {
		return err
	}
	if p.freed, err = m.tenant(ctx, "freed", false); err != nil {
		return err
	}
	if err := m.start(ctx, lease); err != nil {
		return err
	}
	if _, err := m.post(ctx, m.contention()); err != nil {
		return err
	}
	if err := m.until(ctx, "one is held", func() bool { return m.paused(ctx, p.freed) && m.held() == 3 }); err != nil {
		return err
	}
	if err := m.docker.ContainerUnpause(ctx, p.freed.ID); err != nil {
		return err
	}
	if err := m.until(ctx, "a person's unpause is noticed", func() bool { return m.held() == 2 && !m.paused(ctx, p.freed) }); err != nil {
		return err
	}
	p.watch(ctx, time.Now())
	m.persons = p
	return nil
}

// watch counts, by the engine's events, how often what a person wanted is undone after
// since. It ends with the engine, and may then be called again.
func (p *persons) watch(ctx context.Context, since time.Time) {
	messages, failed := p.docker.Events(ctx, events.ListOptions{
		Since: fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()),
		Filters: filters.NewArgs(filters.Arg("type", "container"), filters.Arg("event", "pause"), filters.Arg("event", "unpause"),
			filters.Arg("container", p.theirs.ID), filters.Arg("container", p.freed.ID)),
	})
	p.blind, p.watching = nil, make(chan struct{})
	go func() {
		defer close(p.watching)
		for {
			select {
			case e := <-messages:
				p.count(e)
			case err := <-failed:
				p.mu.Lock()
				defer p.mu.Unlock()
				p.blind = fmt.Errorf("the engine's events: %w", err)
				return
			}
		}
	}()
}

func (p *persons) count(e events.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Actor.ID == p.theirs.ID && e.Action == events.ActionUnPause:
		p.unpaused++
	case e.Actor.ID == p.freed.ID && e.Action == events.ActionPause:
		p.repaused++
	}
}

// again watches the engine that began at since, in place of the one that ended.
func (p *persons) again(ctx context.Context, since time.Time) {
	<-p.watching
	p.watch(ctx, since)
}

// wronged sets in the row what was undone since the last call, by the engine's events
// and by what is so now; it is put right, so that it counts once.
func (m *machine) wronged(ctx context.Context, r bench.Row) error {
	p := m.persons
	if p == nil {
		return nil
	}
	p.mu.Lock()
	unpaused, repaused, err := p.unpaused, p.repaused, p.blind
	p.unpaused, p.repaused = 0, 0
	p.mu.Unlock()
	if !m.paused(ctx, p.theirs) {
		unpaused = max(1, unpaused)
		err = errors.Join(err, m.docker.ContainerPause(ctx, p.theirs.ID))
	}
	if m.paused(ctx, p.freed) {
		repaused = max(1, repaused)
		err = errors.Join(err, m.docker.ContainerUnpause(ctx, p.freed.ID))
	}
	r["unpaused"], r["repaused"] = unpaused, repaused
	return err
}
