package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// requestOf is the fingerprint of a person's lease for a container.
func requestOf(id string) string { return "person/" + id }

var errNoSnapshot = errors.New("there is no snapshot yet")

// AskPause opens the lease of the person named who: the container is held until it is released, or
// for Config.MaxHold. The caller writes the leases to disk, and passes the result to kept.
func (k *Core) AskPause(now time.Time, who, ref string) (kept func(error) error, err error) {
	k.now = now
	if why := k.handsOff(); why != "" {
		return nil, errors.New(why)
	}
	id, err := k.targetContainer(lease.Pause, ref)
	if err != nil {
		return nil, err
	}
	c, _ := k.facts.snap.FindContainer(id)
	switch {
	case !k.managed(c):
		return nil, fmt.Errorf("it is not known yet whether container %s may be acted on; try again", c.Name)
	case k.standing(c) == plan.Somebody:
		return nil, fmt.Errorf("container %s is paused already, and not by Laxity", c.Name)
	}
	l := lease.Lease{
		Wish: lease.Pause, Target: id, By: who, Fingerprint: requestOf(id),
		StartsAt: now, Opened: now, Expires: now.Add(k.config.MaxHold),
	}
	if full := k.leases.Room(l); full != "" {
		return nil, errors.New(full)
	}
	released, exempt := k.leases.Exemption(id)
	k.leases.Forgive(id) // this request takes back the person's earlier release
	former, renewed := k.leases.Get(l.Wish, l.Fingerprint)
	k.leases.Fire(l)
	d := decision.Decision{Kind: decision.Request, Result: decision.Opened, By: who, Container: c.Name, ContainerID: c.ID, Cause: string(lease.Pause),
		Reason: fmt.Sprintf("to be paused until it is released, or for %v", k.config.MaxHold)}
	if renewed {
		d.Result = decision.Renewed
	}
	return func(err error) error {
		if err != nil {
			if exempt {
				k.leases.Exempt(released)
			}
			if renewed {
				k.leases.PutBack(former)
				return fmt.Errorf("the request is not on disk, so the container is paused for as long as before: %w", err)
			}
			k.leases.Close(l)
			return fmt.Errorf("the request is not on disk, so the container is not paused: %w", err)
		}
		k.decide(d)
		return nil
	}, nil
}

// AskRelease releases, for the person named who, a container that we hold, whatever the cause, and
// exempts its present tasks. The caller writes the leases to disk, and passes the result to kept.
func (k *Core) AskRelease(now time.Time, who, ref string) (kept func(error), err error) {
	k.now = now
	if k.facts.snap == nil {
		return nil, errNoSnapshot
	}
	c, ok := k.facts.snap.FindContainer(ref)
	if !ok {
		return nil, fmt.Errorf("the exporter knows no running container %q", ref)
	}
	_, waits := k.turns.waits[c.ID]
	switch standing := k.standing(c); {
	case standing == plan.Somebody:
		return nil, fmt.Errorf("container %s was paused by somebody else: docker unpause %s", c.Name, c.Name)
	case standing == plan.Runs && !k.wished(lease.Pause, c.ID) && !waits && !k.division.acts(c.ID):
		return nil, fmt.Errorf("container %s is not kept from computing", c.Name)
	}
	for _, l := range k.leases.Leases() {
		if l.By != "" && l.Target == c.ID && l.Wish == lease.Pause {
			k.leases.Close(l)
		}
	}
	k.exempt(c.ID, nil, who+" released it")
	return func(err error) {
		d := decision.Decision{Kind: decision.Request, Result: decision.Done, By: who, Container: c.Name, ContainerID: c.ID,
			Reason: "released, and not held again for its present tasks"}
		if err != nil {
			d.Error = "a restart forgets this: " + err.Error()
		}
		k.decide(d)
	}, nil
}

// Find returns the container of which a person wants to change something, if it may be acted on.
func (k *Core) Find(ref string) (task.Container, error) {
	if k.facts.snap == nil {
		return task.Container{}, errNoSnapshot
	}
	c, known := k.facts.snap.FindContainer(ref)
	if !known {
		return c, fmt.Errorf("the exporter knows no running container %q", ref)
	}
	if !k.managed(c) {
		return c, fmt.Errorf("container %s is only observed: it has none of Laxity's labels, or is not on the allow-list", c.Name)
	}
	return c, nil
}
