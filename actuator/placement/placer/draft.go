package placer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

// draft is what the jobs of a batch see and change.
type draft struct {
	ctx     context.Context //nolint:containedctx // of the batch, for facts that are read late
	p       *Placer
	now     time.Time
	entries map[string]reservation.Entry
	changed map[string]bool // by id: kept, or forgotten when no longer in entries

	// named are the nodes that the jobs ask for by name.
	named []string
	// nodes has the reservations taken off; rest speaks of the others, nil if there
	// are none.
	nodes   []placement.Node
	taken   map[string]placement.Claim // off nodes, by reservation
	tenants map[string]Tenant
	rest    *placement.Rest
	// partial is what the present job has placed so far.
	partial []reservation.Entry
}

// read gets the facts and takes the reservations off.
func (v *draft) read(ask Ask) error {
	ask.Containers = map[string][]string{}
	for _, e := range v.entries {
		if e.Container != "" {
			ask.Containers[e.Node] = append(ask.Containers[e.Node], e.Container)
		}
	}
	facts, err := v.p.o.Source.Facts(v.ctx, ask)
	if err != nil {
		return &SourceError{err}
	}
	v.tenants, v.rest = facts.Tenants, facts.Rest
	v.nodes = slices.Clone(facts.Nodes) // they are changed here, and may be shared
	for i := range v.nodes {
		v.nodes[i].GPUs = slices.Clone(v.nodes[i].GPUs)
	}
	v.taken = map[string]placement.Claim{}
	for _, e := range v.entries {
		if !over(e, v.now) {
			v.take(e.ID, v.claim(e))
		}
	}
	for _, e := range v.partial {
		v.take(e.ID, e.Claim(0))
	}
	return nil
}

// take takes what a reservation claims off the nodes.
func (v *draft) take(id string, c placement.Claim) {
	placement.Reserve(v.nodes, c)
	v.taken[id] = c
}

// giveBack gives back what take took, whatever has become of the reservation since.
func (v *draft) giveBack(id string) {
	if c, ok := v.taken[id]; ok {
		placement.Unreserve(v.nodes, c)
		delete(v.taken, id)
	}
}

// over reports whether a reservation has expired that nobody took up.
func over(e reservation.Entry, now time.Time) bool {
	return e.State == reservation.Assumed && !now.Before(e.Expires)
}

func (v *draft) claim(e reservation.Entry) placement.Claim {
	t := v.tenants[e.Container]
	c := e.Claim(t.Memory[e.GPU])
	switch {
	case t.Tasks > 0:
		c.Work = nil // the facts show it
	case e.State == reservation.Created && !v.now.Before(e.Expires):
		c.Work = nil // a server without requests: nobody knows when the first one comes
	}
	return c
}

func (v *draft) keep(e reservation.Entry) {
	v.entries[e.ID] = e
	v.mark(e.ID)
}

// forget ends a reservation; what it took is free for the jobs of the next batch,
// which is soon enough.
func (v *draft) forget(id string) {
	delete(v.entries, id)
	v.mark(id)
}

func (v *draft) mark(id string) {
	if v.changed == nil {
		v.changed = map[string]bool{}
	}
	v.changed[id] = true
}

func (v *draft) change() reservation.Change {
	var c reservation.Change
	for id := range v.changed {
		if e, ok := v.entries[id]; ok {
			c.Keep = append(c.Keep, e)
		} else {
			c.Forget = append(c.Forget, id)
		}
	}
	return c
}

func (v *draft) unknown(node string) error {
	e := &UnknownNodeError{Node: node}
	for _, n := range v.nodes {
		e.Known = append(e.Known, n.Name)
	}
	return e
}

// noRoom is the refusal of a request by all facts.
func (v *draft) noRoom(req Request, r placement.Ranking, placed int) error {
	if largest, _ := placement.Largest(v.nodes); req.Node == "" && largest > 0 && req.GPUMemory > largest {
		return &TooLargeError{Need: req.GPUMemory, Largest: largest}
	}
	return &NoRoomError{Ranking: r, Placed: placed, Count: max(req.Count, 1)}
}

// errUnexplained means that no node can take it, and that not all facts were read
// that say why.
var errUnexplained = errors.New("no node can take it")

// place finds a GPU for each of the containers, or changes nothing.
func (v *draft) place(req Request) ([]reservation.Entry, Judged, error) {
	var first Judged
	v.partial = nil
	fail := func(err error) ([]reservation.Entry, Judged, error) {
		for _, e := range v.partial {
			v.giveBack(e.ID)
		}
		v.partial = nil
		return nil, first, err
	}
	for range max(req.Count, 1) {
		r, err := v.rank(req)
		if err != nil {
			return fail(err)
		}
		if first.Ranking == nil {
			first = Judged{r, v.rest != nil && req.Node == ""}
		}
		best, ok := r.Best()
		switch {
		case ok:
		case len(r) == 0 && req.Node != "":
			return fail(v.unknown(req.Node))
		case v.rest != nil && req.Node == "":
			return fail(errUnexplained)
		default:
			return fail(v.noRoom(req, r, len(v.partial)))
		}
		v.partial = append(v.partial, v.reserve(best, req))
	}
	placed := v.partial
	v.partial = nil
	for _, e := range placed {
		v.keep(e)
	}
	return placed, first, nil
}

// reserve takes what the request needs off the node; keep makes it last.
func (v *draft) reserve(best placement.Verdict, req Request) reservation.Entry {
	e := reservation.Entry{
		ID: v.p.o.NewID(), Node: best.Node.Name, GPU: best.GPU, Memory: req.GPUMemory,
		Deadline: req.Deadline, Estimate: req.Estimate, Image: req.Image,
		State: reservation.Assumed, Made: v.now, Expires: v.now.Add(v.p.o.TTL),
	}
	v.take(e.ID, e.Claim(0))
	return e
}

// rank ranks nodes of which the first is the first of all, or one of the first
// `longest`, and reads more facts if need be. Without a candidate there is none.
func (v *draft) rank(req Request) (placement.Ranking, error) {
	m := v.p.o.Method
	lists := v.p.lists(req.Request)
	for {
		r := m.Rank(v.nodes, req.Request, v.now)
		best, ok := r.Best()
		switch {
		case v.rest == nil, req.Node != "" && len(r) > 0:
			return r, nil
		case ok && m.Settles(best, req.Request, v.rest), ok && len(lists) == 0:
			return r, nil
		case !ok && v.rest.None && v.rest.Covers(req.Request) && len(v.partial) == 0:
			return r, nil
		}
		ask := Ask{All: true, Nodes: v.named}
		if len(lists) > 0 && req.Node == "" && (ok || !v.rest.None || !v.rest.Covers(req.Request)) {
			ask.All, ask.List = false, &lists[0]
			lists = lists[1:]
		}
		if err := v.read(ask); err != nil {
			return nil, err
		}
	}
}

// check judges a reservation as if it were asked for now.
func (v *draft) check(id string) (reservation.Entry, error) {
	e, ok := v.entries[id]
	if !ok {
		return reservation.Entry{}, ErrNotFound
	}
	if e.State != reservation.Assumed {
		return e, nil
	}
	v.giveBack(id)
	req := placement.Request{Deadline: e.Deadline, GPUMemory: e.Memory, Estimate: e.Estimate, Node: e.Node}
	r := v.p.o.Method.Rank(onlyGPU(v.nodes, e), req, v.now)
	if _, ok := r.Best(); !ok {
		if known := len(r) > 0 && r[0].Node.Fresh; known || !v.renewed(e) {
			v.forget(id)
		} else {
			v.take(id, e.Claim(0))
		}
		return reservation.Entry{}, &NoRoomError{Ranking: r, Count: 1}
	}
	v.take(id, e.Claim(0))
	e.Expires = v.now.Add(v.p.o.TTL)
	v.keep(e)
	return e, nil
}

// renewed reports whether the reservation was checked before: then its container is being created, and will
// hold the GPU whatever is answered now. Before that its client chooses anew.
func (v *draft) renewed(e reservation.Entry) bool { return e.Expires.After(e.Made.Add(v.p.o.TTL)) }

// onlyGPU is the node of the reservation, with the GPU of the reservation alone.
func onlyGPU(nodes []placement.Node, e reservation.Entry) []placement.Node {
	i := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.Name == e.Node })
	if i < 0 {
		return nil
	}
	n := nodes[i]
	n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool { return g.UUID != e.GPU })
	return []placement.Node{n}
}
