package ladder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// member is a process that takes part in the order.
type member struct {
	Tenant
	place policy.Place
	part  float64 // assured part of the GPU's time
	why   string  // why it has this part
	// beside: it has waited so long that it shares the rest equally with the first in the queue.
	beside bool
}

// dwell is how long an order of the same processes stands before another replaces it: the laxities
// of waiting tasks pass each other again and again.
const dwell = 250 * time.Millisecond

// planner is the working state of one call of Make.
type planner struct {
	in    Input
	state State // for the next plan
	// tops are the servers, whose requests come first, the shortest deadline first. queue are the
	// other processes with tasks, in order.
	tops, queue []member
	idle        []Tenant // labelled, without work
	asked       []Tenant // off because somebody asked for that
	foreign     []string // containers of processes that compute and that we must not act on, by name
	out         map[string]Standing
	again       time.Time
	report      string
	// half: a server is late by more than the policy allows, and its use is not measured: the others
	// are then sure of half of the GPU.
	half bool
	// unbroken: a server computes without a break, and leaves gaps that one process at a time fills.
	unbroken bool
	// byOrder: turns are taken only because slices would make no order.
	byOrder bool
}

// sort divides the processes into those to leave alone, servers and the queue.
func (p *planner) sort() {
	gone := func(id string) bool {
		return !slices.ContainsFunc(p.in.Tenants, func(t Tenant) bool { return t.ID == id })
	}
	p.state.load.forget(gone)
	for _, t := range p.in.Tenants {
		if t.Bound != "" {
			if t.KeepOn = t.Bound; t.Stands.Off { // it takes no turn
				t.Wants = No
			}
		}
		switch {
		case !t.Labelled || t.Never:
			if t.Wants != No {
				p.foreign = append(p.foreign, t.Name)
			}
		case t.Asked != "" && t.KeepOn == "":
			p.asked = append(p.asked, t)
		case t.Server && !p.late(t):
			p.tops = append(p.tops, member{Tenant: t, place: policy.OnTime})
		case t.HasTask:
			p.queue = append(p.queue, member{Tenant: t, place: p.place(t.Job)})
		default:
			p.idle = append(p.idle, t)
		}
	}
	// Ordered by the relative deadline of all requests, not by the present request's deadline: so
	// the order stays, and we need not know when a request came.
	slices.SortFunc(p.tops, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(p.queue, func(a, b member) int {
		return cmp.Or(p.in.Order.Compare(a.Job, b.Job), strings.Compare(a.ID, b.ID))
	})
	p.settle()
	p.wait()
}

// place is the place of a job. A server with a deadline comes first in every order. In an order
// without places all others share one.
func (p *planner) place(j policy.Job) policy.Place {
	if o, ok := p.in.Order.(policy.Placer); ok {
		return o.Place(j)
	}
	if j.Request && j.Urgent() {
		return policy.OnTime
	}
	return policy.Last
}

// settle keeps the former order for a while if only the policy's key within a place has changed.
func (p *planner) settle() {
	now := p.in.Now
	ids := make([]string, len(p.queue))
	was := map[string]int{}
	for i, id := range p.state.queue {
		was[id] = i + 1
	}
	same := len(p.queue) == len(p.state.queue)
	for i, m := range p.queue {
		ids[i] = m.ID
		same = same && was[m.ID] > 0
	}
	switch {
	case same && slices.Equal(ids, p.state.queue):
	case same && now.Sub(p.state.queueAt) < dwell:
		slices.SortStableFunc(p.queue, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(was[a.ID], was[b.ID]))
		})
		for i, m := range p.queue {
			ids[i] = m.ID
		}
		p.wake(p.state.queueAt.Add(dwell))
		p.state.queue = ids
	default:
		p.state.queue, p.state.queueAt = ids, now
	}
}

// wake asks for another plan at t at the latest.
func (p *planner) wake(t time.Time) {
	if p.again.IsZero() || t.Before(p.again) {
		p.again = t
	}
}

// copied returns a copy that may be written to.
func copied[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// forget removes entries of processes that are gone.
func forget[V any](m map[string]V, gone func(id string) bool) {
	maps.DeleteFunc(m, func(id string, _ V) bool { return gone(id) })
}

// clone copies what a plan changes in place.
func (s State) clone() State {
	s.waits = maps.Clone(s.waits)
	s.turn, s.load = s.turn.clone(), s.load.clone()
	return s
}
