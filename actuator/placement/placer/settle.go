package placer

import (
	"context"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/placement/reservation"
)

// inTurn is of how many containers Settle asks at once.
const inTurn = 500

// Settle confirms the reservations whose containers' tasks are seen, and ends those
// whose containers are gone or whose time is over. Run calls it every second; with
// many reservations it takes the next ones each time. Decisions do not wait for what
// it asks.
func (p *Placer) Settle(ctx context.Context) error {
	entries := p.o.Reservations.List()
	if len(entries) == 0 {
		return nil
	}
	pods := awaited(entries)
	asked := slices.DeleteFunc(entries, func(e reservation.Entry) bool { return e.Container == "" })
	if len(asked) > inTurn {
		p.turn %= len(asked)
		asked = append(slices.Clone(asked[p.turn:]), asked[:p.turn]...)[:inTurn]
		p.turn += inTurn
	}
	containers := map[string][]string{}
	for _, e := range asked {
		containers[e.Node] = append(containers[e.Node], e.Container)
	}
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tenants, fresh, err := p.o.Source.Tenants(ask, containers)
	if err != nil {
		asked = nil // nobody knows of them
	}
	var appeared map[PodOn]Use
	if len(pods) > 0 && err == nil {
		appeared, err = p.o.Source.Pods(ask, pods)
	}
	// An expired reservation ends all the same.
	failed := p.apply(ctx, &job{do: func(v *draft) error {
		for _, e := range v.entries {
			if e.Container == "" && len(appeared) > 0 {
				p.claim(v, e, appeared)
			}
		}
		for _, e := range asked {
			// It may have changed since.
			if now, ok := v.entries[e.ID]; ok && now.Container == e.Container {
				t, known := tenants[e.Container]
				current, there := fresh[e.Node]
				p.settle(v, now, t, sight{known, current, there})
			}
		}
		return nil
	}})
	if err != nil {
		return &SourceError{err}
	}
	return failed
}

// sight is what is known of a reservation's container and node: whether the container is known, whether
// the facts about the node are fresh, and whether the node is known.
type sight struct{ container, fresh, node bool }

// settle looks what has become of a reservation whose container was created.
func (p *Placer) settle(v *draft, e reservation.Entry, t Tenant, is sight) {
	last, seen := p.seen[e.ID]
	switch {
	case is.container:
		p.seen[e.ID] = v.now
		if t.Tasks > 0 && e.State == reservation.Created {
			e.State, e.Expires = reservation.Confirmed, time.Time{}
			v.keep(e)
		}
	case !seen && is.node && !is.fresh && e.State == reservation.Created:
		// Its node says nothing: it may run. Its time goes on when the node answers again.
	case !seen && e.State == reservation.Created && v.now.Before(e.Expires): // it has just been made
	case !seen, is.node && !is.fresh: // nobody knows what has become of it
		p.seen[e.ID] = v.now
	case !is.node:
		if v.now.Sub(last) >= gone {
			p.o.Logger.Info("Placement ended with its node, which nobody has seen for long", "placement", e.ID, "node", e.Node)
			v.forget(e.ID)
		}
	case v.now.Sub(last) >= grace:
		p.o.Logger.Info("Placement ended with its container", "placement", e.ID, "node", e.Node)
		v.forget(e.ID)
	}
}

// expire ends the reservations that nobody took up in time.
func (p *Placer) expire(v *draft) {
	for id, e := range v.entries {
		if over(e, v.now) {
			p.o.Logger.Warn("Placement expired", "placement", id, "node", e.Node, "state", e.State)
			v.forget(id)
		}
	}
	for id := range p.seen {
		if _, ok := v.entries[id]; !ok {
			delete(p.seen, id)
		}
	}
}
