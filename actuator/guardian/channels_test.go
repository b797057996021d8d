package guardian_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/guardian"
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

// watchGPU is watch with channels.
func (p *post) watchGPU(g *gpu, once bool) (done <-chan error) {
	p.Helper()
	return p.watches(guardian.Options{Channels: g, Once: once, Poll: 5 * time.Millisecond})
}

func (p *post) awaitRestored(g *gpu) {
	p.Helper()
	p.await("all is undone", func() bool { n, _ := g.Pending(); return n == 0 })
}

func TestUndoesChannelsWhenTheActuatorIsGone(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 2, swept: make(chan struct{})}
	lock := p.actuator()
	done := p.watchGPU(g, true)
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
	done := p.watchGPU(g, true)
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
	done := p.watchGPU(g, true)
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
	p.watchGPU(g, true)
	<-g.swept
	g.put(1)
	lock.Unlock()
	p.awaitAllGone("a")
	p.awaitRestored(g)
}

// An actuator came and died while the guardian was not looking.
func TestUndoesWhatIsFoundLater(t *testing.T) {
	p, g := newPost(t), &gpu{}
	p.watchGPU(g, false)
	for range 2 {
		g.put(1)
		p.awaitRestored(g)
	}
}

func TestUndoByHand(t *testing.T) {
	p, g := newPost(t), &gpu{pending: 1, swept: make(chan struct{})}
	p.actuator() // Undo's caller holds its lock
	p.hold(time.Now().Add(time.Hour), "a")
	w := p.guardian(guardian.Options{Channels: g})
	if err := w.Undo(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.awaitAllGone("a")
	g.put(1)
	g.fails = 1000
	if err := w.Undo(context.Background()); err == nil || g.pending != 1 {
		t.Errorf("%v, %d left: it gives up, and tells", err, g.pending)
	}
}
