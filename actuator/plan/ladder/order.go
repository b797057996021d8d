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
	held        []Tenant // off because somebody asked
	foreign     int      // processes that compute and that we must not act on
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

// asked reports whether a person or an alert wants it off now.
func (p *planner) asked(t Tenant) bool {
	if t.Asked == "" || t.KeepOn != "" || p.in.Limits.NoOff {
		delete(p.state.asked, t.ID)
		return false
	}
	if _, ok := p.state.asked[t.ID]; !ok {
		p.state.asked[t.ID] = p.in.Now
	}
	return p.in.Now.Before(p.heldUntil(t))
}

// heldUntil is the end of a requested hold.
func (p *planner) heldUntil(t Tenant) time.Time {
	until := p.state.asked[t.ID].Add(cmp.Or(p.in.Limits.MaxHold, DefaultMaxHold))
	if !t.AskedUntil.IsZero() && t.AskedUntil.Before(until) {
		until = t.AskedUntil
	}
	return until
}

// sort divides the processes into those to leave alone, held ones, servers and the queue.
func (p *planner) sort() {
	gone := func(id string) bool {
		return !slices.ContainsFunc(p.in.Tenants, func(t Tenant) bool { return t.ID == id })
	}
	forget(p.state.asked, gone)
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
				p.foreign++
			}
		case p.asked(t):
			p.held = append(p.held, t)
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

// behind is what is known of a process that waits for others of its place.
type behind struct {
	since  time.Time
	needs  time.Duration // what it had left when it began to wait, or when that was known first; 0: unknown
	equals int           // the most others of its place at a time: those that have ended would have shared, too
	over   bool          // it has waited for long enough
}

// wait notes which processes are behind others of their place, and for how long they have to wait.
func (p *planner) wait() {
	now := p.in.Now
	all := map[string]behind{}
	equals := map[policy.Place]int{}
	for _, m := range p.queue {
		equals[m.place]++
	}
	var ahead queued
	for i, m := range p.queue {
		if i == 0 || p.queue[i-1].place != m.place { // the first of its place
			ahead = queued{}
			ahead.add(m.Job.Remaining, m.Job.Known)
			continue
		}
		w, ok := p.state.behind[m.ID]
		if !ok {
			w.since = now
		}
		if m.Job.Known {
			w.needs = max(w.needs, m.Job.Remaining) // it hardly computes now: what is left by the clock is too little
		}
		w.equals = max(w.equals, equals[m.place]-1)
		if m.place >= policy.Behind && !w.over {
			until := w.since.Add(p.patience(w, ahead))
			if w.over = !now.Before(until); !w.over {
				p.wake(until)
			}
		}
		p.queue[i].beside = m.place >= policy.Behind && w.over
		ahead.add(w.needs, w.needs > 0)
		all[m.ID] = w
	}
	p.state.behind = all
}

// queued are the processes before another one of their place.
type queued struct {
	left    time.Duration
	unknown bool // of one of them nobody knows how long it still computes
}

func (q *queued) add(left time.Duration, known bool) {
	q.left, q.unknown = q.left+left, q.unknown || !known
}

// shortest is the least time that a process waits before it computes beside others.
const shortest = 2 * time.Second

// patience is how long a process waits for others of its place: as long as sharing with them would have
// cost it. Where those before it are not expected to end within Limits.MaxHold, or nobody knows,
// policy.DefaultPatience at most.
func (p *planner) patience(w behind, ahead queued) time.Duration {
	most := policy.DefaultPatience
	if longest := cmp.Or(p.in.Limits.MaxHold, DefaultMaxHold); !ahead.unknown && ahead.left <= longest {
		most = longest
	}
	switch _, places := p.in.Order.(policy.Placer); {
	case !places: // users of fifo and p3 get the order of starts
		return most
	case w.needs == 0:
		return policy.DefaultPatience
	default:
		return min(max(time.Duration(w.equals)*w.needs, shortest), most)
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
	s.behind = maps.Clone(s.behind)
	s.asked = copied(s.asked)
	s.turn, s.load = s.turn.clone(), s.load.clone()
	return s
}
