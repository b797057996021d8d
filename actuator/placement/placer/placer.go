// Package placer decides where containers go, one request after another, and
// reserves what they need, so that two of the same moment never share what
// only one can have. Options → New → Run.
//
// It imports the standard library, actuator/placement, actuator/placement/reservation and exporter/task.
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
	"github.com/laxity/laxity/actuator/placement/reservation"
)

// Defaults of Options.
const (
	DefaultTTL = 2 * time.Minute
	// grace is how long a confirmed container may be unknown on a node that
	// answers: it is started anew, or the exporter is.
	grace = 30 * time.Second
	// gone is how long a node must be unknown, while others are known, until what is reserved on it ends.
	// The rules remember a node for an hour before.
	gone = time.Hour
	// patience bounds the questions that one decision asks of the source;
	// thorough those of an explanation, which is about all nodes.
	patience = 10 * time.Second
	thorough = 20 * time.Second
)

// Options of a Placer. Source and Reservations are required.
type Options struct {
	Source       Source
	Reservations *reservation.Store
	// Method is placement.DefaultMethod by default.
	Method placement.Method
	// TTL is how long a reservation waits for the next step: the container's creation,
	// then its first task. DefaultTTL if 0.
	TTL    time.Duration
	Logger *slog.Logger
	Now    func() time.Time
	// NewID names reservations; random by default.
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
	// seen is when a container was last known, by reservation; guarded by applying.
	seen map[string]time.Time
	turn int // of Settle
	// surveys has a place for each question about all nodes that may read facts now. Those of 10,000 nodes are half a
	// million series, and anybody who may read may ask.
	surveys chan struct{}
	// refusals has as many places, for explaining refused placements: clients that only read do not delay them.
	refusals chan struct{}
	// questions has a place for each other question that may read facts now: about one node, or an image.
	questions chan struct{}
}

// maxSurveys is how many questions about all nodes, and how many refusals, read facts at once, maxQuestions how many
// other questions do; further ones wait.
const maxSurveys, maxQuestions = 2, 8

// New makes a Placer.
func New(o Options) (*Placer, error) {
	if o.Source == nil || o.Reservations == nil {
		return nil, errors.New("placer: Source and Reservations are required")
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
	return &Placer{
		o: o, seen: map[string]time.Time{},
		surveys: make(chan struct{}, maxSurveys), refusals: make(chan struct{}, maxSurveys), questions: make(chan struct{}, maxQuestions),
	}, nil
}

// Request is what Place is asked for.
type Request struct {
	placement.Request
	// Image stands in for a missing Estimate: its tasks' history is used, as far as the deadline leaves room for it.
	Image string
	// Count is how many containers are placed, all or none; 0 is 1.
	Count int
	// Method is the placer's by default; another one only explains (Explain).
	Method placement.Method
}

// MaxCount is the most that one request may place.
const MaxCount = 1000

// ErrNotFound means that there is no such reservation: it has expired, or never was.
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
	return text + e.Ranking.Summary() + "; " + e.Ranking.Expected()
}

// SourceError means that the facts cannot be had, so nothing is decided.
type SourceError struct{ Err error }

// Error implements error.
func (e *SourceError) Error() string { return "nothing can be placed now: " + e.Err.Error() }

// Unwrap implements errors.
func (e *SourceError) Unwrap() error { return e.Err }

// Judged is the ranking of the nodes that a decision was made on.
type Judged struct {
	placement.Ranking
	// Partial: the fleet is large, and no other node comes before the first of
	// these. Explain ranks all nodes.
	Partial bool
}

// Place reserves a GPU for each of the containers and returns the reservations with
// the ranking that led to the first. The errors are NoRoomError, UnknownNodeError,
// TooLargeError and SourceError; a refusal is explained for every node. Where ctx ends first, the error is
// that of ctx and nothing is reserved: nobody waits for the answer.
func (p *Placer) Place(ctx context.Context, req Request) (placed []reservation.Entry, judged Judged, err error) {
	if err := p.estimate(ctx, &req, nil); err != nil {
		return nil, judged, err
	}
	decide := func(v *draft) (err error) {
		if err := ctx.Err(); err != nil {
			return err
		}
		placed, judged, err = v.place(req)
		return err
	}
	err = p.apply(ctx, &job{wants: &req, do: decide})
	if errors.Is(err, errUnexplained) {
		// The reasons take all facts, for which no other decision has to wait.
		if judged.Ranking, err = p.refusal(ctx, req); err == nil {
			// There is room after all. With all facts the decision is the last word.
			err = p.apply(ctx, &job{all: true, do: decide})
		}
	}
	if err == nil && p.unwanted(ctx, placed) {
		return nil, Judged{}, ctx.Err()
	}
	return placed, judged, err
}

// unwanted reports whether nobody waits for what was just reserved, and then releases it: it would stay until it expires.
func (p *Placer) unwanted(ctx context.Context, placed []reservation.Entry) bool {
	if ctx.Err() == nil {
		return false
	}
	_ = p.apply(context.WithoutCancel(ctx), &job{do: func(v *draft) error {
		for _, e := range placed {
			v.forget(e.ID)
		}
		return nil
	}})
	return true
}

// refusal says why the request is refused; nil if, by all that is known now, it is
// not.
func (p *Placer) refusal(ctx context.Context, req Request) (placement.Ranking, error) {
	v, err := p.survey(ctx, Ask{All: true}, p.refusals)
	if err != nil {
		return nil, err
	}
	ranking := p.o.Method.Rank(v.nodes, req.Request, v.now)
	if _, ok := ranking.Best(); ok {
		return ranking, nil
	}
	return ranking, v.noRoom(req, ranking, 0)
}

// Explain ranks the nodes for the request, all or the one that it names, reservations
// included, and reserves nothing. With a Method in the request, it ranks by that.
func (p *Placer) Explain(ctx context.Context, req Request) (placement.Ranking, error) {
	if err := p.estimate(ctx, &req, p.questions); err != nil {
		return nil, err
	}
	m := p.o.Method
	if req.Method != "" {
		m = req.Method
	}
	ask := Ask{All: req.Node == "", Nodes: []string{req.Node}}
	for {
		places := p.questions
		if ask.All {
			places = p.surveys
		}
		v, err := p.survey(ctx, ask, places)
		if err != nil {
			return nil, err
		}
		ranking := m.Rank(v.nodes, req.Request, v.now)
		switch {
		case len(ranking) > 0 || ask.All && req.Node == "":
			return ranking, nil
		case ask.All:
			return nil, v.unknown(req.Node)
		}
		ask = Ask{All: true} // for the names that are known
	}
}

// Method is how the placer ranks.
func (p *Placer) Method() placement.Method { return p.o.Method }

// Check asks again, right before the container is created, whether the reservation
// can be kept, and renews it. A NoRoomError means that it cannot: it is released. While the container is being
// created, Check renews it once more; then, where the facts are not fresh, the NoRoomError leaves it until it expires.
func (p *Placer) Check(ctx context.Context, id string) (reservation.Entry, error) {
	e, ok := p.o.Reservations.Get(id)
	if !ok {
		return e, ErrNotFound
	}
	j := &job{nodes: []string{e.Node}}
	j.do = func(v *draft) (err error) {
		e, err = v.check(id)
		return err
	}
	err := p.apply(ctx, j)
	return e, err
}

// Bind says that the container of the reservation is created.
func (p *Placer) Bind(ctx context.Context, id, container string) (reservation.Entry, error) {
	j := &job{}
	var e reservation.Entry
	j.do = func(v *draft) error {
		known, ok := v.entries[id]
		if !ok {
			return ErrNotFound
		}
		known.State, known.Container, known.Expires = reservation.Created, container, v.now.Add(p.o.TTL)
		e = known
		v.keep(known)
		return nil
	}
	err := p.apply(ctx, j)
	return e, err
}

// Release takes the reservation back.
func (p *Placer) Release(ctx context.Context, id string) error {
	return p.apply(ctx, &job{do: func(v *draft) error {
		if _, ok := v.entries[id]; !ok {
			return ErrNotFound
		}
		v.forget(id)
		return nil
	}})
}

// List returns the reservations, oldest first.
func (p *Placer) List() []reservation.Entry { return p.o.Reservations.List() }

// Run confirms and ends reservations as time goes on, until ctx ends.
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
		err := p.Settle(ctx)
		if err != nil && !troubled && ctx.Err() == nil {
			p.o.Logger.Warn("Placements cannot be confirmed", "err", err)
		}
		troubled = err != nil
	}
}

// estimate fills in what is known of the image's tasks where nobody says how long this one takes. Its question
// waits for one of the places, if any are given.
func (p *Placer) estimate(ctx context.Context, req *Request, places chan struct{}) error {
	m := req.Method
	if m == "" {
		m = p.o.Method
	}
	if m != placement.Predictive || req.Estimate > 0 || req.Image == "" || req.Deadline <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if places != nil {
		leave, err := enter(ctx, places)
		if err != nil {
			return err
		}
		defer leave()
	}
	e, err := p.o.Source.Estimate(ctx, req.Image)
	if err != nil {
		return &SourceError{err}
	}
	// The image's other tasks may have taken longer, beside others or at other work: a node does not see what a task
	// waits for its GPU. On an idle GPU nothing is gained by waiting.
	req.Estimate = min(e, req.Deadline)
	return nil
}
