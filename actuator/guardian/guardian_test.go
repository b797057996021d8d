package guardian_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/journal"
)

type post struct {
	*testing.T
	dir      string
	journal  *journal.Journal
	engine   *enforcetest.Engine
	enforcer *docker.Enforcer
}

func newPost(t *testing.T) *post {
	p := &post{T: t, dir: t.TempDir(), engine: enforcetest.NewEngine()}
	var err error
	if p.journal, err = journal.Open(p.dir); err != nil {
		t.Fatal(err)
	}
	p.enforcer, err = docker.New(docker.Options{Engine: p.engine, Journal: p.journal, Freezer: p.engine})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// hold pauses containers as an actuator does.
func (p *post) hold(expires time.Time, ids ...string) {
	p.Helper()
	for _, id := range ids {
		p.engine.Run(id)
		h := enforcetest.HoldOf(id)
		h.Expires = expires
		if err := p.enforcer.Pause(context.Background(), h); err != nil {
			p.Fatal(err)
		}
	}
}

// actuator takes the lock that a living actuator holds.
func (p *post) actuator() *journal.Lock {
	p.Helper()
	l, err := journal.LockWithin(context.Background(), journal.ActuatorLock(p.dir), 20*time.Second)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(l.Unlock)
	return l
}

// watch runs a guardian to the end of the test, or its own.
func (p *post) watch(once bool) (done <-chan error) {
	p.Helper()
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Once: once,
		Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Grace: 50 * time.Millisecond})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	p.Cleanup(cancel)
	p.await("the guardian watches", func() bool { return journal.Taken(journal.GuardianLock(p.dir)) || len(ended) > 0 })
	return ended
}

func (p *post) await(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("waited in vain until %s", what)
		}
	}
}

func (p *post) awaitAllGone(ids ...string) {
	p.Helper()
	p.await("nothing is on record", func() bool { h, err := p.journal.List(); return err == nil && len(h) == 0 })
	for _, id := range ids {
		if paused, _ := p.engine.Paused(id); paused {
			p.Errorf("%s is still paused", id)
		}
	}
}

func TestLetsGoWhenTheActuatorIsGone(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b", "c")
	p.engine.Run("persons")
	p.engine.SetPaused("persons", true)
	done := p.watch(true)
	for range 5 { // it does nothing while the actuator lives
		time.Sleep(10 * time.Millisecond)
		if calls := p.engine.Calls(); len(calls) != 3 {
			t.Fatalf("calls %v", calls)
		}
	}
	lock.Unlock()
	p.awaitAllGone("a", "b", "c")
	if paused, _ := p.engine.Paused("persons"); !paused {
		t.Error("touched what is not on record")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	p.await("the lock is free", func() bool { return !journal.Taken(journal.ActuatorLock(p.dir)) })
}

func TestWatchesTheNextActuatorToo(t *testing.T) {
	p := newPost(t)
	done := p.watch(false)
	for range 3 {
		lock := p.actuator()
		p.hold(time.Now().Add(time.Hour), "a")
		lock.Unlock()
		p.awaitAllGone("a")
	}
	if len(done) > 0 {
		t.Errorf("it ended: %v", <-done)
	}
}

func TestStaysWhileTheEngineIsDown(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	p.engine.FailWith(func(string, string) error { return context.DeadlineExceeded })
	done := p.watch(true)
	lock.Unlock()
	p.await("it acts", func() bool { return journal.Taken(journal.ActuatorLock(p.dir)) })
	if _, err := journal.LockWithin(context.Background(), journal.ActuatorLock(p.dir), 100*time.Millisecond); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("an actuator could begin while the guardian acts: %v", err)
	}
	if len(done) > 0 {
		t.Fatalf("it gave up: %v", <-done)
	}
	p.engine.FailWith(nil)
	p.awaitAllGone("a")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEndsLeasesOfAnActuatorThatHangs(t *testing.T) {
	p := newPost(t)
	p.actuator()
	p.hold(time.Now().Add(-time.Second), "late")
	p.hold(time.Now().Add(time.Hour), "good")
	p.watch(true)
	p.await("the late one goes", func() bool { paused, _ := p.engine.Paused("late"); return !paused })
	if paused, _ := p.engine.Paused("good"); !paused {
		t.Error("ended a lease that holds")
	}
}

func TestUnreadableRecordIsLetGo(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	if err := os.WriteFile(filepath.Join(p.dir, "holds", "a.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.watch(true)
	lock.Unlock()
	p.awaitAllGone("a")
}

func TestContainerGone(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b")
	p.engine.Remove("a")
	p.watch(true)
	lock.Unlock()
	p.awaitAllGone("b")
}

// The engine carries a pause out only after the actuator that asked for it died, and
// the guardian has looked.
func TestLatePause(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.engine.Run("a")
	h := enforcetest.HoldOf("a")
	h.Since = h.Since.Add(-10 * time.Second) // a slow engine
	if err := p.journal.Put(h); err != nil {
		t.Fatal(err)
	}
	looks := make(chan string, 100)
	p.engine.FailWith(func(call, _ string) error { looks <- call; return nil })
	p.watch(true)
	lock.Unlock()
	<-looks
	<-looks // the first one was answered
	p.engine.SetPaused("a", true)
	p.awaitAllGone("a")
}

func TestOnlyOneGuardian(t *testing.T) {
	p := newPost(t)
	p.actuator()
	p.watch(false)
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(context.Background()); !errors.Is(err, guardian.ErrTaken) {
		t.Errorf("error %v", err)
	}
}
