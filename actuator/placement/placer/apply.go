package placer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

// job is one question or change. Its do runs alone, and sees what the jobs before
// it did; if it fails it MUST have changed nothing.
type job struct {
	// What facts it needs: those of these nodes, a short list for this request, or
	// all; none of these is none.
	nodes []string
	wants *Request
	all   bool
	do    func(*draft) error
	err   error
	done  bool // guarded by Placer.applying
}

func (j *job) needsFacts() bool { return j.all || j.wants != nil || len(j.nodes) > 0 }

// apply carries the job out, and those of others that wait: so there is one order of decisions, and one
// write for many.
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
	v := p.newDraft()
	v.ctx = ctx
	p.expire(v)
	var factsErr error
	if ask, any := p.askFor(batch); any {
		v.named = ask.Nodes
		if err := v.read(ask); err != nil {
			factsErr = err
		}
	}
	for _, j := range batch {
		j.done = true
		if j.needsFacts() && factsErr != nil {
			j.err = factsErr
			continue
		}
		j.err = j.do(v)
	}
	if err := p.o.Reservations.Apply(v.change()); err != nil {
		for _, j := range batch {
			if j.err == nil {
				j.err = err // nothing is reserved that is not on disk
			}
		}
	}
}

// shortest is how many nodes a short list has beside one for each container.
const shortest = 8

// longest is how many nodes are looked at for the best one; beyond, any will do.
const longest = 512

// askFor is what the jobs need to know, as one question; any is whether there is
// one. Its short list is for the least memory of the requests, and does not compare
// deadlines: that would cost Prometheus a join over all nodes, and of the first few
// one nearly always has the time. Where none has, lists has others.
func (p *Placer) askFor(batch []*job) (ask Ask, any bool) {
	limit := shortest
	for _, j := range batch {
		any = any || j.needsFacts()
		ask.All = ask.All || j.all
		ask.Nodes = append(ask.Nodes, j.nodes...)
		switch {
		case j.wants == nil:
		case j.wants.Node != "":
			ask.Nodes = append(ask.Nodes, j.wants.Node)
		case ask.List == nil:
			ask.List = &List{Method: p.o.Method, For: placement.Request{GPUMemory: j.wants.GPUMemory}}
			limit += max(j.wants.Count, 1)
		default:
			ask.List.For.GPUMemory = min(ask.List.For.GPUMemory, j.wants.GPUMemory)
			limit += max(j.wants.Count, 1)
		}
	}
	if ask.List != nil {
		ask.List.Limit = min(limit, longest)
	}
	return ask, any
}

// lists are the longer lists that one request is decided on when the first one
// does not settle it, in their order.
func (p *Placer) lists(req placement.Request) []List {
	list := func(limit int, busy bool) List {
		return List{Method: p.o.Method, For: req, Limit: limit, Busy: busy}
	}
	if p.o.Method == placement.Predictive {
		return []List{list(longest/8, false), list(longest/8, true), list(longest, true)}
	}
	return []List{list(longest/8, false), list(longest, false)}
}

// survey reads facts for a question that changes nothing, beside the decisions. It waits for one of the places.
func (p *Placer) survey(ctx context.Context, ask Ask, places chan struct{}) (*draft, error) {
	ctx, cancel := context.WithTimeout(ctx, thorough)
	defer cancel()
	leave, err := enter(ctx, places)
	if err != nil {
		return nil, err
	}
	defer leave()
	v := p.newDraft()
	v.ctx = ctx
	return v, v.read(ask)
}

// enter waits for one of the places, and returns what gives it back.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("other questions about nodes are being answered; ask again: %w", ctx.Err())
	}
}

// newDraft returns a draft without facts.
func (p *Placer) newDraft() *draft {
	v := &draft{p: p, now: p.o.Now(), entries: map[string]reservation.Entry{}}
	for _, e := range p.o.Reservations.List() {
		v.entries[e.ID] = e
	}
	return v
}

func randomID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
