package guardian_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/journal"
)

// gpu is what a guardian undoes on GPUs.
type gpu struct {
	mu      sync.Mutex
	pending int
	fails   int // times that a restore fails
	swept   chan struct{}
	hangs   chan struct{} // sweeps hang until it is closed; nil: they do not
	tries   int
}

func (g *gpu) Pending() (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending, nil
}

func (g *gpu) Sweep(context.Context, time.Duration) (int, error) {
	select {
	case g.swept <- struct{}{}:
	default:
	}
	if g.hangs != nil {
		<-g.hangs
	}
	return 0, nil
}

func (g *gpu) RestoreAll(context.Context) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tries++
	if g.fails > 0 {
		g.fails--
		return g.pending, errors.New("the driver refuses")
	}
	g.pending = 0
	return 0, nil
}

func (g *gpu) put(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending = n
}

func (p *post) guardian(g *gpu, once bool) (*guardian.Guardian, <-chan error) {
	p.Helper()
	w, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Channels: g, Once: once,
		Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	p.Cleanup(cancel)
	p.await("the guardian watches", func() bool { return journal.Taken(journal.GuardianLock(p.dir)) || len(ended) > 0 })
	return w, ended
}

func (p *post) awaitRestored(g *gpu) {
	p.Helper()
	p.await("all is undone", func() bool { n, _ := g.Pending(); return n == 0 })
}

func TestUndoesChannelsWhenTheActuatorIsGone(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 2, swept: make(chan struct{})}
	lock := p.actuator()
	_, done := p.guardian(g, true)
	<-g.swept
	<-g.swept // it looks after leases, and leaves the rest to the actuator
	if n, _ := g.Pending(); n != 2 {
		t.Error("undone though the actuator lives")
	}
	lock.Unlock()
	p.awaitRestored(g)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTriesChannelsAgain(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 2, fails: 3}
	_, done := p.guardian(g, true)
	if err := <-done; err != nil || g.pending != 0 || g.tries != 4 {
		t.Errorf("%v, %d left after %d tries", err, g.pending, g.tries)
	}
}

// An engine that does not answer keeps nobody off a GPU.
func TestUndoesChannelsWhileTheEngineIsDown(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 1, fails: 2}
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	p.engine.FailWith(func(string, string) error { return context.DeadlineExceeded })
	_, done := p.guardian(g, true)
	lock.Unlock()
	p.awaitRestored(g)
	p.engine.FailWith(nil)
	p.awaitAllGone("a")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestHungSweepKeepsNobody(t *testing.T) {
	p, g := newPost(t), &gpu{hangs: make(chan struct{}), swept: make(chan struct{}, 1)} // it sweeps but once
	defer close(g.hangs)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	_, _ = p.guardian(g, true)
	<-g.swept
	g.put(1)
	lock.Unlock()
	p.awaitAllGone("a")
	p.awaitRestored(g)
}

// An actuator came and died while the guardian was not looking.
func TestUndoesWhatIsFoundLater(t *testing.T) {
	p, g := newPost(t), &gpu{}
	p.guardian(g, false)
	for range 2 {
		g.put(1)
		p.awaitRestored(g)
	}
}

func TestUndoByHand(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 1, swept: make(chan struct{})}
	p.actuator() // Undo's caller holds its lock
	p.hold(time.Now().Add(time.Hour), "a")
	w, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Channels: g, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Undo(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.awaitAllGone("a")
	g.put(1)
	g.fails = 1
	if err := w.Undo(context.Background()); err == nil || g.pending != 1 {
		t.Errorf("%v, %d left: it tries once, and tells", err, g.pending)
	}
}
