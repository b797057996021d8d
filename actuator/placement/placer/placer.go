// Package placer decides where containers go, one request after another, and
// promises them what they need, so that two of the same moment never share what
// only one can have. Options → New → Run.
//
// It imports placement, ledger and exporter/task, and no technology.
package placer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/ledger"
	"github.com/laxity/laxity/exporter/task"
)

// Tenant is what the facts show of a container.
type Tenant struct {
	// Memory is what it holds, bytes, by GPU.
	Memory map[string]uint64
	// Tasks counts its unfinished tasks.
	Tasks int
}

// Source is where the facts come from.
type Source interface {
	// Facts returns the nodes, in the order of their names, and those of these
	// containers (by id) that are known. Both MUST be of one moment: what a
	// container holds would else count twice, or never. It MUST return an error
	// rather than a part.
	Facts(ctx context.Context, ids []string) ([]placement.Node, map[string]Tenant, error)
	// Estimate returns how long a task of this image takes; 0 is not known.
	Estimate(ctx context.Context, image string) (task.Seconds, error)
}

// Defaults of Options.
const (
	DefaultTTL = 2 * time.Minute
	// grace is how long a confirmed container may be unknown on a node that
	// answers: it is started anew, or the exporter is.
	grace = 30 * time.Second
	// patience bounds the questions that one decision asks of the source.
	patience = 10 * time.Second
)

// Options of a Placer. Source and Ledger are required.
type Options struct {
	Source Source
	Ledger *ledger.Ledger
	// Method is Paper by default.
	Method placement.Method
	// TTL is how long a promise waits for the next step: the container's creation,
	// then its first task. DefaultTTL if 0.
	TTL    time.Duration
	Logger *slog.Logger
	Now    func() time.Time
	// NewID names promises; random by default.
	NewID func() string
}

// Placer is safe for concurrent use.
type Placer struct {
	o Options

	queue struct {
		sync.Mutex
		jobs []*job
	}
	// applying is held by whoever decides: all that wait meanwhile are decided
	// together, on the same facts and with one write to disk.
	applying sync.Mutex
	// seen is when a container was last known, by promise; guarded by applying.
	seen map[string]time.Time
}

// New makes a Placer.
func New(o Options) (*Placer, error) {
	if o.Source == nil || o.Ledger == nil {
		return nil, errors.New("placer: Source and Ledger are required")
	}
	var err error
	if o.Method, err = placement.ParseMethod(string(o.Method)); err != nil {
		return nil, err
	}
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = randomID
	}
	return &Placer{o: o, seen: map[string]time.Time{}}, nil
}

// Request is what Place is asked for.
type Request struct {
	placement.Request
	// Image stands in for a missing Estimate: its tasks' history is used.
	Image string
	// Count is how many containers are placed, all or none; 0 is 1.
	Count int
	// Method is the placer's by default; another one only explains (Explain).
	Method placement.Method
}

// MaxCount is the most that one request may place.
const MaxCount = 1000

// ErrNotFound means that there is no such promise: it has expired, or never was.
var ErrNotFound = errors.New("no such placement: it has expired, was released, or its container is gone")

// UnknownNodeError means that the request names a node that is not there.
type UnknownNodeError struct {
	Node  string
	Known []string
}

// Error implements error.
func (e *UnknownNodeError) Error() string {
	known := "no node is known"
	if len(e.Known) > 0 {
		known = "known are " + strings.Join(e.Known[:min(len(e.Known), 10)], ", ")
		if n := len(e.Known) - 10; n > 0 {
			known += fmt.Sprintf(" and %d more", n)
		}
	}
	return fmt.Sprintf("no node %q: %s", e.Node, known)
}

// TooLargeError means that no GPU will ever do.
type TooLargeError struct{ Need, Largest uint64 }

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("no GPU is that large: need %s, the largest has %s", placement.Bytes(e.Need), placement.Bytes(e.Largest))
}

// NoRoomError means that no node can take it now; later one may.
type NoRoomError struct {
	Ranking placement.Ranking
	// Placed of Count had found a place; they are given back.
	Placed, Count int
}

// Error implements error.
func (e *NoRoomError) Error() string {
	text := "no node can take it: "
	if e.Count > 1 {
		text = fmt.Sprintf("only %d of %d find a place: ", e.Placed, e.Count)
	}
	return text + e.Ranking.Summary()
}

// SourceError means that the facts cannot be had, so nothing is decided.
type SourceError struct{ Err error }

// Error implements error.
func (e *SourceError) Error() string { return "nothing can be placed now: " + e.Err.Error() }

// Unwrap implements errors.
func (e *SourceError) Unwrap() error { return e.Err }

// Place promises a GPU to each of the containers and returns the promises with
// the ranking that led to the first. The errors are NoRoomError, UnknownNodeError,
// TooLargeError and SourceError.
func (p *Placer) Place(ctx context.Context, req Request) ([]ledger.Entry, placement.Ranking, error) {
	if err := p.estimate(ctx, &req); err != nil {
		return nil, nil, err
	}
	j := &job{needsFacts: true}
	var placed []ledger.Entry
	var ranking placement.Ranking
	j.do = func(v *view) (err error) {
		placed, ranking, err = v.place(p, req)
		return err
	}
	if err := p.apply(ctx, j); err != nil {
		return nil, ranking, err
	}
	return placed, ranking, nil
}

// Explain ranks the nodes for the request, promises included, and promises
// nothing. With a Method in the request, it ranks by that.
func (p *Placer) Explain(ctx context.Context, req Request) (placement.Ranking, error) {
	if err := p.estimate(ctx, &req); err != nil {
		return nil, err
	}
	j := &job{needsFacts: true}
	var ranking placement.Ranking
	j.do = func(v *view) error {
		m := p.o.Method
		if req.Method != "" {
			m = req.Method
		}
		ranking = m.Rank(v.nodes, req.Request, v.now)
		if req.Node != "" && len(ranking) == 0 {
			return v.unknown(req.Node)
		}
		return nil
	}
	err := p.apply(ctx, j)
	return ranking, err
}

// Method is how the placer ranks.
func (p *Placer) Method() placement.Method { return p.o.Method }

// Check asks again, right before the container is created, whether the promise
// can be kept, and renews it. A NoRoomError means that it cannot: it is released.
func (p *Placer) Check(ctx context.Context, id string) (ledger.Entry, error) {
	j := &job{needsFacts: true}
	var e ledger.Entry
	j.do = func(v *view) (err error) {
		e, err = v.check(p, id)
		return err
	}
	return e, p.apply(ctx, j)
}

// Bind says that the container of the promise is created.
func (p *Placer) Bind(ctx context.Context, id, container string) (ledger.Entry, error) {
	j := &job{}
	var e ledger.Entry
	j.do = func(v *view) error {
		known, ok := v.entries[id]
		if !ok {
			return ErrNotFound
		}
		known.State, known.Container, known.Expires = ledger.Created, container, v.now.Add(p.o.TTL)
		e = known
		v.keep(known)
		return nil
	}
	return e, p.apply(ctx, j)
}

// Release takes the promise back.
func (p *Placer) Release(ctx context.Context, id string) error {
	return p.apply(ctx, &job{do: func(v *view) error {
		if _, ok := v.entries[id]; !ok {
			return ErrNotFound
		}
		v.forget(id)
		return nil
	}})
}

// List returns the promises, oldest first.
func (p *Placer) List() []ledger.Entry { return p.o.Ledger.List() }

// Run confirms and ends promises as time goes on, until ctx ends. Decisions do
// the same, so that they never wait for it.
func (p *Placer) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	troubled := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if len(p.o.Ledger.List()) == 0 {
			continue
		}
		err := p.apply(ctx, &job{needsFacts: true, do: func(*view) error { return nil }})
		if err != nil && !troubled && ctx.Err() == nil {
			p.o.Logger.Warn("Placements cannot be confirmed", "err", err)
		}
		troubled = err != nil
	}
}

func (p *Placer) estimate(ctx context.Context, req *Request) error {
	m := req.Method
	if m == "" {
		m = p.o.Method
	}
	if m != placement.Predictive || req.Estimate > 0 || req.Image == "" || req.Deadline <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := p.o.Source.Estimate(ctx, req.Image)
	if err != nil {
		return &SourceError{err}
	}
	req.Estimate = e
	return nil
}
