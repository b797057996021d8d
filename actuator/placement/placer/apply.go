package placer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/ledger"
)

// job is one question or change. Its do runs alone, and sees what the jobs before
// it did; if it fails it MUST have changed nothing.
type job struct {
	needsFacts bool
	do         func(*view) error
	err        error
	done       bool // guarded by Placer.applying
}

// apply carries the job out. Who finds others waiting carries theirs out too: so
// there is one order of decisions, and one write for many.
func (p *Placer) apply(ctx context.Context, j *job) error {
	p.queue.Lock()
	p.queue.jobs = append(p.queue.jobs, j)
	p.queue.Unlock()

	p.applying.Lock()
	defer p.applying.Unlock()
	if j.done {
		return j.err
	}
	p.queue.Lock()
	batch := p.queue.jobs
	p.queue.jobs = nil
	p.queue.Unlock()
	p.run(ctx, batch)
	return j.err
}

// run carries out a batch; the caller holds applying.
func (p *Placer) run(ctx context.Context, batch []*job) {
	// The facts serve others too: they must not fail because one client left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	v := &view{now: p.o.Now(), entries: map[string]ledger.Entry{}}
	for _, e := range p.o.Ledger.List() {
		v.entries[e.ID] = e
	}
	var factsErr error
	if slices.ContainsFunc(batch, func(j *job) bool { return j.needsFacts }) {
		if err := v.read(ctx, p); err != nil {
			factsErr = &SourceError{err}
		}
	}
	p.expire(v)
	for _, j := range batch {
		j.done = true
		if j.needsFacts && factsErr != nil {
			j.err = factsErr
			continue
		}
		j.err = j.do(v)
	}
	if err := p.o.Ledger.Apply(v.change()); err != nil {
		for _, j := range batch {
			if j.err == nil {
				j.err = err // nothing that is not on disk was promised
			}
		}
	}
}

// view is what the jobs of a batch see and change.
type view struct {
	now     time.Time
	entries map[string]ledger.Entry
	// nodes has the promises taken off; nil without facts.
	nodes   []placement.Node
	tenants map[string]Tenant
	changed map[string]bool // by id: kept, or forgotten when no longer in entries
}

// read gets the facts and takes the promises off.
func (v *view) read(ctx context.Context, p *Placer) error {
	var ids []string
	for _, e := range v.entries {
		if e.Container != "" {
			ids = append(ids, e.Container)
		}
	}
	slices.Sort(ids)
	nodes, tenants, err := p.o.Source.Facts(ctx, ids)
	if err != nil {
		return err
	}
	v.tenants = tenants
	v.nodes = slices.Clone(nodes) // they are changed here, and may be shared
	for i := range v.nodes {
		v.nodes[i].GPUs = slices.Clone(v.nodes[i].GPUs)
	}
	p.confirm(v)
	for _, e := range v.entries {
		placement.Reserve(v.nodes, v.claim(e))
	}
	return nil
}

func (v *view) claim(e ledger.Entry) placement.Claim {
	return e.Claim(v.tenants[e.Container].Memory[e.GPU])
}

// confirm looks which containers were seen, and which are gone.
func (p *Placer) confirm(v *view) {
	for id, e := range v.entries {
		if e.Container == "" {
			continue
		}
		t, known := v.tenants[e.Container]
		switch {
		case known && t.Tasks > 0 && e.State == ledger.Created:
			e.State, e.Expires = ledger.Confirmed, time.Time{}
			v.keep(e)
			p.seen[id] = v.now
		case known:
			p.seen[id] = v.now
		case p.seen[id].IsZero() && e.State == ledger.Created: // it has just been made
		case p.lost(v, e):
			p.o.Logger.Info("Placement ended with its container", "placement", id, "node", e.Node)
			v.forget(id)
		}
	}
}

// lost reports whether a confirmed container is gone for good.
func (p *Placer) lost(v *view, e ledger.Entry) bool {
	i := slices.IndexFunc(v.nodes, func(n placement.Node) bool { return n.Name == e.Node })
	last, ok := p.seen[e.ID]
	if !ok || i < 0 || !v.nodes[i].Fresh { // not known now, or not at all
		p.seen[e.ID] = v.now
		return false
	}
	return v.now.Sub(last) >= grace
}

// expire ends the promises whose time is over. A created container that is known
// keeps what it was promised: it may take its time until its first task.
func (p *Placer) expire(v *view) {
	for id, e := range v.entries {
		if e.Expires.IsZero() || v.now.Before(e.Expires) {
			continue
		}
		if e.State == ledger.Created {
			// Without facts nobody knows whether it is there.
			if last, ok := p.seen[id]; v.nodes == nil || ok && v.now.Sub(last) < grace {
				continue
			}
		}
		p.o.Logger.Warn("Placement expired", "placement", id, "node", e.Node, "state", e.State)
		v.forget(id)
	}
	for id := range p.seen {
		if _, ok := v.entries[id]; !ok {
			delete(p.seen, id)
		}
	}
}

func (v *view) keep(e ledger.Entry) {
	v.entries[e.ID] = e
	v.mark(e.ID)
}

// forget ends a promise; what it took is free for the jobs of the next batch,
// which is soon enough.
func (v *view) forget(id string) {
	delete(v.entries, id)
	v.mark(id)
}

func (v *view) mark(id string) {
	if v.changed == nil {
		v.changed = map[string]bool{}
	}
	v.changed[id] = true
}

func (v *view) change() ledger.Change {
	var c ledger.Change
	for id := range v.changed {
		if e, ok := v.entries[id]; ok {
			c.Keep = append(c.Keep, e)
		} else {
			c.Forget = append(c.Forget, id)
		}
	}
	return c
}

func (v *view) unknown(node string) error {
	e := &UnknownNodeError{Node: node}
	for _, n := range v.nodes {
		e.Known = append(e.Known, n.Name)
	}
	return e
}

// place finds a GPU for each of the containers, or changes nothing.
func (v *view) place(p *Placer, req Request) ([]ledger.Entry, placement.Ranking, error) {
	count := max(req.Count, 1)
	var placed []ledger.Entry
	var first placement.Ranking
	fail := func(err error) ([]ledger.Entry, placement.Ranking, error) {
		for _, e := range placed {
			unreserve(v.nodes, e)
		}
		return nil, first, err
	}
	for range count {
		r := p.o.Method.Rank(v.nodes, req.Request, v.now)
		if first == nil {
			first = r
			if req.Node != "" && len(r) == 0 {
				return fail(v.unknown(req.Node))
			}
		}
		best, ok := r.Best()
		if !ok {
			if largest, _ := placement.Largest(v.nodes); largest > 0 && req.GPUMemory > largest {
				return fail(&TooLargeError{Need: req.GPUMemory, Largest: largest})
			}
			return fail(&NoRoomError{Ranking: r, Placed: len(placed), Count: count})
		}
		e := ledger.Entry{
			ID: p.o.NewID(), Node: best.Node.Name, GPU: best.GPU, Memory: req.GPUMemory,
			Deadline: req.Deadline, Estimate: req.Estimate, Image: req.Image,
			State: ledger.Assumed, Made: v.now, Expires: v.now.Add(p.o.TTL),
		}
		placed = append(placed, e)
		placement.Reserve(v.nodes, e.Claim(0))
	}
	for _, e := range placed {
		v.keep(e)
	}
	return placed, first, nil
}

// check judges a promise as if it were asked for now.
func (v *view) check(p *Placer, id string) (ledger.Entry, error) {
	e, ok := v.entries[id]
	if !ok {
		return ledger.Entry{}, ErrNotFound
	}
	if e.State != ledger.Assumed {
		return e, nil
	}
	unreserve(v.nodes, e)
	req := placement.Request{Deadline: e.Deadline, GPUMemory: e.Memory, Estimate: e.Estimate, Node: e.Node}
	r := p.o.Method.Rank(onlyGPU(v.nodes, e), req, v.now)
	if _, ok := r.Best(); !ok {
		v.forget(id)
		return ledger.Entry{}, &NoRoomError{Ranking: r, Count: 1}
	}
	placement.Reserve(v.nodes, e.Claim(0))
	e.Expires = v.now.Add(p.o.TTL)
	v.keep(e)
	return e, nil
}

// onlyGPU is the node of the promise, with the GPU of the promise alone.
func onlyGPU(nodes []placement.Node, e ledger.Entry) []placement.Node {
	i := slices.IndexFunc(nodes, func(n placement.Node) bool { return n.Name == e.Node })
	if i < 0 {
		return nil
	}
	n := nodes[i]
	n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool { return g.UUID != e.GPU })
	return []placement.Node{n}
}

// unreserve gives back what Reserve took for an entry without a container.
func unreserve(nodes []placement.Node, e ledger.Entry) {
	c := e.Claim(0)
	for i := range nodes {
		if nodes[i].Name != c.Node {
			continue
		}
		for j := range nodes[i].GPUs {
			g := &nodes[i].GPUs[j]
			if g.UUID != c.GPU {
				continue
			}
			g.Reserved -= c.Memory
			g.Promised--
			if c.Work != nil {
				if k := slices.Index(g.Work, *c.Work); k >= 0 {
					g.Work = slices.Delete(slices.Clone(g.Work), k, k+1)
				}
			}
		}
	}
}

func randomID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
