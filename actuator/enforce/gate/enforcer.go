package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// EnforcerOptions of an Enforcer. Gate's required ones, Pauser and Journal are
// required.
type EnforcerOptions struct {
	Gate Options
	// Pauser pauses whole containers: whom the gate cannot stop, and who waits for
	// more than a moment.
	Pauser  enforce.Enforcer
	Journal *journal.Journal
	// Required makes Open fail where this machine cannot gate; else it works
	// without a gate there.
	Required bool
	// Moment is how long a container waits before it is paused; 30 ms by default.
	Moment time.Duration
	// Ahead is how many of those that wait for a GPU are kept unpaused at least, so
	// that letting go never waits for the engine; 2 by default. Where turns are
	// short, as many are as come in turn within Soon; 500 ms by default.
	Ahead int
	Soon  time.Duration
	// Lease is how long the gate stays shut after Cover was last called; 5 s by
	// default. Longest is the longest pause; 10 min by default.
	Lease, Longest time.Duration
	Logger         *slog.Logger
}

// Enforcer keeps containers from computing: by the gate where it can, else by the
// pauser. It implements enforce.Enforcer, and tells the planner what it sees.
type Enforcer struct {
	enforce.Enforcer // the pauser
	o                EnforcerOptions
	why              error // why there is no gate

	mu       sync.Mutex
	gate     *Gate
	admitted map[string]bool // by container id: may compute
	next     map[string]bool // waits, and is soon in turn
	known    map[string]bool // by the planner: has its place in a line
	lined    time.Time       // when the planner last said so
	held     map[string]bool // by the planner's Pause, which has it on record with its reason
	parked   map[string]*parking
	changed  chan struct{} // closed by the next change
	woken    chan struct{} // a container is being parked or unparked
	stop     context.CancelFunc
	ended    chan error
}

// NewEnforcer fills in the defaults. The gate begins with Open.
func NewEnforcer(o EnforcerOptions) *Enforcer {
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&o.Moment, 30*time.Millisecond)
	def(&o.Soon, 500*time.Millisecond)
	def(&o.Lease, 5*time.Second)
	def(&o.Longest, 10*time.Minute)
	if o.Ahead <= 0 {
		o.Ahead = 2
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Enforcer{Enforcer: o.Pauser, o: o, held: map[string]bool{}, parked: map[string]*parking{}, changed: make(chan struct{}), woken: make(chan struct{}, 1)}
}

// Open begins to gate. It is called while nobody else uses the same name.
func (e *Enforcer) Open(ctx context.Context) error {
	g, err := New(e.o.Gate)
	if err != nil {
		e.why = err
		if e.o.Required || !errors.Is(err, cudaprobe.ErrUnsupported) {
			return fmt.Errorf("launch gate (--hold=pause works without): %w", err)
		}
		e.o.Logger.Warn("no launch gate on this machine; containers are paused at first sight instead", "why", err)
		return nil
	}
	ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.mu.Lock()
	e.gate = g
	e.mu.Unlock()
	e.ended = make(chan error, 1)
	go func() {
		err := g.Run(ctx)
		e.stop()
		e.ended <- err
	}()
	go e.follow(ctx, g)
	e.o.Logger.Info("containers are held at their first launch", "record", e.o.Gate.Name)
	return nil
}

// Close lets everybody go who is stopped at the gate; paused containers are the
// caller's.
func (e *Enforcer) Close() error {
	if e.stop == nil {
		return nil
	}
	e.stop()
	return errors.Join(<-e.ended, cudaprobe.RemoveRecord(cudaprobe.PinFolder(e.o.Gate.Name)))
}

// Engine says which engine the pauser acts on, if it does.
func (e *Enforcer) Engine(ctx context.Context) (string, error) {
	if id, ok := e.Enforcer.(interface {
		Engine(context.Context) (string, error)
	}); ok {
		return id.Engine(ctx)
	}
	return "", errors.New("the engine has no name")
}

// Gate returns the gate; nil: there is none, and the error says why.
func (e *Enforcer) Gate() (*Gate, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gate, e.why
}

// gated returns the gate if it stops the container.
func (e *Enforcer) gated(id string) (*Gate, View, bool) {
	g, _ := e.Gate()
	if g == nil {
		return nil, View{}, false
	}
	v, ok := g.View()[id]
	return g, v, ok && v.Phase != "" && v.Obstacle == ""
}

// Status implements enforce.Enforcer: who is kept from launching counts as
// paused, unless it was paused as a whole and somebody else has undone that. It waits
// for our own parking and unparking: in the middle of that the engine says one thing
// and our books another, and our unpause would pass for a person's.
func (e *Enforcer) Status(ctx context.Context, id string) (enforce.Status, error) {
	whole := e.recorded(id) // asked first: whoever parks has its place before its record
	e.mu.Lock()
	p := e.parked[id]
	e.mu.Unlock()
	if p != nil {
		p.Lock()
		defer p.Unlock()
	}
	s, err := e.Enforcer.Status(ctx, id)
	_, v, ok := e.gated(id)
	switch {
	case err != nil || !ok || s.Paused:
	case whole && e.recorded(id) && (p == nil || !p.unsure.Load()): // a person has unpaused it
	case v.Admitted:
		s.LetGo = true
	case p != nil && p.paused.Load(): // the guardian has unpaused it
	default:
		s.Paused = true
	}
	return s, err
}

// recorded reports whether the container is on record as paused as a whole.
func (e *Enforcer) recorded(id string) bool {
	_, ours, err := e.o.Journal.Get(id)
	return ours && err == nil
}

// Pause implements enforce.Enforcer. A container that the policy keeps waiting
// goes on up to its next launch.
func (e *Enforcer) Pause(ctx context.Context, h journal.Hold) error {
	err := e.pause(ctx, h)
	if err == nil {
		e.hold(h.ContainerID, true)
	}
	return err
}

// hold notes whether the planner holds a container.
func (e *Enforcer) hold(id string, held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if held {
		e.held[id] = true
	} else {
		delete(e.held, id)
	}
}

// Drop ends a hold that the planner has taken off its books: somebody else has
// unpaused the container, or it has ended.
func (e *Enforcer) Drop(id string) { e.hold(id, false) }

func (e *Enforcer) isHeld(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[id]
}

func (e *Enforcer) pause(ctx context.Context, h journal.Hold) error {
	switch plan.Cause(h.Cause) {
	case plan.Arbitrate:
		if g := e.found(ctx, h.ContainerID); g != nil && g.Shut(h.ContainerID) == nil {
			return nil
		}
	case plan.Start:
		if g := e.found(ctx, h.ContainerID); g != nil && g.Back(h.ContainerID) == nil {
			return nil
		}
		return e.stall(ctx, h)
	}
	p := e.place(h.ContainerID)
	p.Lock()
	defer p.Unlock()
	return e.Enforcer.Pause(ctx, h)
}

// find is how long a pause waits until the gate has found the processes of a
// container that has just come. Its first launch takes far longer.
const find = 250 * time.Millisecond

// found returns the gate if it stops the container, now or in a moment.
func (e *Enforcer) found(ctx context.Context, id string) *Gate {
	ctx, cancel := context.WithTimeout(ctx, find)
	defer cancel()
	for {
		_, changed := e.Phases()
		g, v, ok := e.gated(id)
		if ok {
			return g
		}
		if g == nil || v.Obstacle != "" || !v.Looking {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Unpause implements enforce.Enforcer.
func (e *Enforcer) Unpause(ctx context.Context, id string) error {
	e.hold(id, false) // first: whoever is about to park it looks again
	g, _, ok := e.gated(id)
	if !ok {
		p := e.place(id)
		p.Lock()
		defer p.Unlock()
		p.reset()
		return e.Enforcer.Unpause(ctx, id)
	}
	if err := g.Admit(id); err != nil && !errors.Is(err, ErrNotGated) {
		return err
	}
	return e.unpark(ctx, id)
}

// ToLaunch undoes our pause of a container, which goes on up to its next launch.
func (e *Enforcer) ToLaunch(ctx context.Context, id string) error {
	g, _, ok := e.gated(id)
	if !ok {
		return e.Unpause(ctx, id) // nothing would stop it: the next plan decides anew
	}
	e.hold(id, false)
	g.Forth(id)
	return e.unpark(ctx, id)
}

// Phases says what the containers that the gate sees do, and gives a channel that
// is closed by the next change.
func (e *Enforcer) Phases() (map[string]plan.Phase, <-chan struct{}) {
	e.mu.Lock()
	g, changed := e.gate, e.changed
	e.mu.Unlock()
	if g == nil {
		return nil, nil
	}
	all := map[string]plan.Phase{}
	for id, v := range g.View() {
		if v.Phase != "" && v.Obstacle == "" {
			all[id] = v.Phase
		}
	}
	return all, changed
}

// Cover says which containers may be held while the policy decides; the others
// pass. It must be called again and again: without it the gate opens.
func (e *Enforcer) Cover(targets []Target) {
	g, _ := e.Gate()
	if g == nil {
		return
	}
	g.Arbitrate(targets)
	if err := g.Renew(e.o.Lease); err != nil {
		e.o.Logger.Error("the launch gate opens", "err", err)
	}
}

// Line is told after each plan who may compute on each GPU, who waits, the next one
// first, and who must not create a context yet. Who may, and waits at the gate, goes
// on at once.
func (e *Enforcer) Line(admitted, waiting map[string][]string, back map[string]string) {
	g, _ := e.Gate()
	if g == nil {
		return
	}
	view := g.View()
	ahead := e.ahead(max(g.Turn(), underWay(view, time.Now())))
	may, next, known := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, ids := range admitted {
		for _, id := range ids {
			may[id], known[id] = true, true
		}
	}
	for _, ids := range waiting {
		for i, id := range ids {
			delete(may, id) // on several GPUs: on all of them at once, or not at all
			next[id], known[id] = next[id] || i < ahead, true
		}
	}
	for id := range back {
		known[id] = true
	}
	e.mu.Lock()
	e.admitted, e.next, e.known, e.lined = may, next, known, time.Now()
	e.mu.Unlock()
	for id := range back {
		if _, ok := view[id]; ok {
			_ = g.Back(id) // who cannot be stopped there is paused by the plan's action
		}
	}
	for id, v := range view {
		switch {
		case may[id] && !v.Admitted:
			e.note(id, g.Admit(id))
		case known[id] && !may[id] && v.Admitted:
			e.note(id, g.Shut(id))
		}
		if v.Back && back[id] == "" {
			g.Forth(id)
		}
	}
}

// ahead is how many of a line are kept unpaused when turns last so long.
func (e *Enforcer) ahead(turn time.Duration) int {
	if turn <= 0 {
		return e.o.Ahead // nothing is known yet
	}
	return max(e.o.Ahead, int(e.o.Soon/turn))
}

// underWay is how long the longest turn under way has lasted.
func underWay(view map[string]View, now time.Time) (longest time.Duration) {
	for _, v := range view {
		if v.Phase == plan.Computing {
			longest = max(longest, now.Sub(v.Since))
		}
	}
	return longest
}

func (e *Enforcer) note(id string, err error) {
	if err != nil && !errors.Is(err, ErrNotGated) {
		e.o.Logger.Error("launch gate", "container", id, "err", err)
	}
}
