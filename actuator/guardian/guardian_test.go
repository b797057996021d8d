package guardian_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/guardian"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/journal/journaltest"
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

// guardian makes a guardian with these options, and those of the post.
func (p *post) guardian(o guardian.Options) *guardian.Guardian {
	p.Helper()
	o.StateDir, o.Journal, o.Enforcer, o.Logger = p.dir, p.journal, p.enforcer, slog.New(slog.DiscardHandler)
	g, err := guardian.New(o)
	if err != nil {
		p.Fatal(err)
	}
	return g
}

// run runs a guardian until stop, or its own end.
func (p *post) run(g *guardian.Guardian) (stop func(), done <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		ended <- g.Run(ctx)
	}()
	p.Cleanup(func() {
		cancel()
		<-gone // it makes files in a folder that the test removes next
	})
	return cancel, ended
}

// watch runs a guardian to the end of the test, or its own.
func (p *post) watch(once bool) (done <-chan error) {
	p.Helper()
	return p.watches(guardian.Options{Once: once, Poll: 5 * time.Millisecond, Grace: 50 * time.Millisecond})
}

// watches is watch with these options. It returns when the guardian watches, or has ended.
func (p *post) watches(o guardian.Options) (done <-chan error) {
	p.Helper()
	_, done = p.run(p.guardian(o))
	p.await("the guardian watches", func() bool { return journal.Taken(journal.GuardianLock(p.dir)) || len(done) > 0 })
	return done
}

func (p *post) await(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("waited in vain until %s", what)
		}
	}
}

func arrives[T any](p *post, what string, events <-chan T) {
	p.Helper()
	select {
	case <-events:
	case <-time.After(20 * time.Second):
		p.Fatalf("waited in vain until %s", what)
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

// A folder that somebody removed, as one for a trial, keeps no guardian for ever.
func TestEndsWithItsStateFolder(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	done := p.watch(true)
	// In one step: the guardian opens its locks, which makes the files anew, until the folder is gone.
	if err := os.Rename(p.dir, p.dir+".gone"); err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it watches a folder that is gone")
	}
}

// A lock that cannot be opened for a while does not end the guardian: nobody else releases what is on record.
func TestLockThatCannotBeOpened(t *testing.T) {
	symlink := func(to string) func(p *post, lock string) (mend func() error) {
		return func(p *post, lock string) func() error {
			if err := os.Symlink(to, lock); err != nil {
				p.Error(err)
			}
			return func() error { return os.Remove(lock) }
		}
	}
	for name, tt := range map[string]struct {
		spoil func(p *post, lock string) (mend func() error)
		want  error
	}{
		"no descriptors": {func(p *post, _ string) func() error {
			var before syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
				p.Error(err)
			}
			mend := func() error { return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }
			p.Cleanup(func() { _ = mend() })
			none := before
			none.Cur = 0
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
				p.Error(err)
			}
			return mend
		}, syscall.EMFILE},
		"a loop of links":                 {symlink(filepath.Base(journal.ActuatorLock("."))), syscall.ELOOP},
		"a missing folder, not the state": {symlink("missing/file"), syscall.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPost(t)
			p.hold(time.Now().Add(time.Hour), "a")
			var mend func() error
			failed, swept := make(chan string, 1000), make(chan struct{}, 10000)
			g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Poll: time.Millisecond, Once: true,
				Sweep: func() ([]int, error) { swept <- struct{}{}; return nil, nil },
				Logger: slog.New(slog.NewTextHandler(writer(func(b []byte) {
					switch text := string(b); {
					case strings.Contains(text, "guardian watches"): // its own lock is open
						mend = tt.spoil(p, journal.ActuatorLock(p.dir))
					case strings.Contains(text, "cannot take the lock"):
						failed <- text
					}
				}), nil))})
			if err != nil {
				t.Fatal(err)
			}
			_, done := p.run(g)
			select {
			case text := <-failed:
				if !strings.Contains(text, tt.want.Error()) {
					t.Errorf("it fails for another reason: %s", text)
				}
			case err := <-done:
				t.Fatalf("it gave up: %v", err)
			case <-time.After(20 * time.Second):
				t.Fatal("it reports nothing")
			}
			for range 10 { // some tries later; it sweeps meanwhile
				arrives(p, "it sweeps", swept)
			}
			if err := mend(); err != nil {
				t.Fatal(err)
			}
			p.awaitAllGone("a")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLetsGoWhenTheActuatorIsGone(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b", "c")
	p.engine.Run("persons")
	p.engine.SetPaused("persons", true)
	swept := make(chan struct{})
	done := p.watches(guardian.Options{Once: true, Poll: 5 * time.Millisecond, Grace: 50 * time.Millisecond, Sweep: func() ([]int, error) {
		select {
		case swept <- struct{}{}:
		default:
		}
		return nil, nil
	}})
	for range 5 { // it does nothing while the actuator lives
		arrives(p, "it sweeps, as it does at every poll", swept)
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

// While the engine does not answer the guardian stays, and keeps the lock only as long as it tries:
// the next actuator may use another engine.
func TestStaysWhileTheEngineIsDown(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	tries, answer := make(chan struct{}, 1000), make(chan struct{})
	p.engine.FailWith(func(string, string) error {
		tries <- struct{}{}
		<-answer
		return context.DeadlineExceeded
	})
	done := p.watch(true)
	lock.Unlock()
	arrives(p, "it tries", tries)
	if _, err := journal.LockWithin(context.Background(), journal.ActuatorLock(p.dir), 100*time.Millisecond); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("an actuator could begin while the guardian acts: %v", err)
	}
	close(answer)
	next := p.actuator() // between two tries it may
	for range len(tries) {
		<-tries
	}
	next.Unlock()
	arrives(p, "it tries again", tries)
	if len(done) > 0 {
		t.Fatalf("it gave up: %v", <-done)
	}
	p.engine.FailWith(nil)
	p.awaitAllGone("a")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The engine fails for one container. Everybody else is released and swapped in, an actuator may
// begin, and laxity off says what is left.
func TestStuckContainerStopsNobodyElse(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b")
	p.engine.FailWith(func(_, id string) error {
		if id == "a" {
			return errors.New("Error response from daemon: internal error")
		}
		return nil
	})
	swaps := make(chan struct{}, 1000)
	o := guardian.Options{Poll: 5 * time.Millisecond, Swaps: func(context.Context) (int, error) { swaps <- struct{}{}; return 0, nil }}
	stop, done := p.run(p.guardian(o))
	lock.Unlock()
	arrives(p, "the others are swapped in", swaps)
	p.await("b runs", func() bool { paused, _ := p.engine.Paused("b"); return !paused })
	lock = p.actuator() // it may begin
	stop()
	<-done
	var late atomic.Int64 // seconds
	o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Add(1)) * time.Second) }
	g := p.guardian(o)
	if err := g.Undo(t.Context()); err == nil || !strings.Contains(err.Error(), "1 containers") {
		t.Errorf("laxity off: %v", err)
	}
	p.engine.FailWith(nil)
	if err := g.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	p.awaitAllGone("a", "b")
	lock.Unlock()
}

// Each try to swap in thaws a container that has no room: it comes at its own, longer intervals, also
// while a container is tried to be released more often.
func TestSwapsKeepTheirIntervals(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	var tries, swaps atomic.Int64
	p.engine.FailWith(func(call, _ string) error {
		if call == "inspect" {
			tries.Add(1)
		}
		return errors.New("Error response from daemon: internal error")
	})
	stop, done := p.run(p.guardian(guardian.Options{Poll: time.Millisecond, Swaps: func(context.Context) (int, error) { swaps.Add(1); return 1, nil }}))
	lock.Unlock()
	p.await("it tried for the sixth time", func() bool { return tries.Load() >= 6 })
	if n := swaps.Load(); n < 1 || n >= 6 { // about three: at once, after 0.5 s, and 1 s later
		t.Errorf("%d tries to swap in", n)
	}
	stop()
	if err := <-done; !errors.Is(err, guardian.ErrLeft) {
		t.Errorf("it ended with %v", err)
	}
}

// An engine that is down keeps laxity off trying until it answers.
func TestUndoWaitsForTheEngine(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	defer lock.Unlock()
	p.hold(time.Now().Add(time.Hour), "a")
	tries := 0
	p.engine.FailWith(func(string, string) error {
		if tries++; tries < 3 {
			return context.DeadlineExceeded
		}
		return nil
	})
	g := p.guardian(guardian.Options{})
	if err := g.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	p.awaitAllGone("a")
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

// hung is an engine that does not answer until it is closed.
type hung struct {
	*docker.Enforcer
	called chan string
	closed chan struct{}

	mu    sync.Mutex
	calls map[string]int
	twice bool // at once for a container
}

func (h *hung) Unpause(ctx context.Context, id string) error {
	h.count(id, 1)
	defer h.count(id, -1)
	select {
	case h.called <- id:
	default:
	}
	<-h.closed
	return h.Enforcer.Unpause(ctx, id)
}

func (h *hung) count(id string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[id] += by
	h.twice = h.twice || h.calls[id] > 1
}

// An engine that hangs over expired leases delays neither each other's release nor what is to be
// done when the actuator dies.
func TestHungEngineDelaysNothingElse(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(-time.Hour), "a", "b", "c")
	engine := &hung{Enforcer: p.enforcer, called: make(chan string, 3), closed: make(chan struct{}), calls: map[string]int{}}
	continued := make(chan struct{}, 1)
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: engine, Once: true,
		Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Grace: 50 * time.Millisecond,
		Release: func(_ context.Context, expired bool) (int, error) {
			if !expired {
				continued <- struct{}{}
			}
			return 0, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Run(context.Background()) }()
	for range 3 {
		arrives(p, "a release of each", engine.called)
	}
	lock.Unlock()
	arrives(p, "what was stopped is continued", continued)
	close(engine.closed)
	p.awaitAllGone("a", "b", "c")
	if err := <-done; err != nil {
		t.Error(err)
	}
	engine.mu.Lock()
	defer engine.mu.Unlock()
	if engine.twice {
		t.Error("a container was released twice at once")
	}
}

// The actuator hangs, and the wall clock was set back: the end of its leases seems far away.
func TestEndsLeasesThoughTheClockWasSetBack(t *testing.T) {
	p := newPost(t)
	p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer,
		Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Grace: 50 * time.Millisecond, Lease: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- g.Run(ctx) }()
	p.awaitAllGone("a")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
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

// A record that cannot be written keeps nobody paused and no actuator from starting; it is
// cleared once that is possible again.
func TestReadOnlyRecordWedgesNobody(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b")
	writable := journaltest.ReadOnly(t, filepath.Join(p.dir, "holds"))
	done := p.watch(true)
	lock.Unlock()
	p.await("both run", func() bool {
		a, _ := p.engine.Paused("a")
		b, _ := p.engine.Paused("b")
		return !a && !b
	})
	next := p.actuator() // it may begin
	p.engine.SetPaused("a", true)
	next.Unlock() // a person's pause is not undone, though the record is still there
	if len(done) > 0 {
		t.Fatalf("it ended as if all were well: %v", <-done)
	}
	writable()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if paused, _ := p.engine.Paused("a"); !paused {
		t.Error("a person's pause was undone")
	}
	if holds, err := p.journal.List(); err != nil || len(holds) > 0 {
		t.Errorf("%v %v", holds, err)
	}
}

// A container that was released, and whose record could not be removed then, is released again when
// it was held again.
func TestReleasesALaterHold(t *testing.T) {
	for name, again := range map[string]func(p *post){
		"after the actuator removed the record": func(p *post) {
			if err := p.journal.Remove("a"); err != nil {
				p.Fatal(err)
			}
			p.hold(time.Now().Add(time.Hour), "a")
		},
		"in place of the record": func(p *post) { p.hold(time.Now().Add(time.Hour), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPost(t)
			lock := p.actuator()
			p.hold(time.Now().Add(-time.Hour), "a")
			writable := journaltest.ReadOnly(t, filepath.Join(p.dir, "holds"))
			start, kept := time.Now(), make(chan struct{}, 100)
			var moves atomic.Bool // the clock
			g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Once: true, Poll: 5 * time.Millisecond,
				Now: func() time.Time {
					if moves.Load() {
						return time.Now()
					}
					return start // it does not retry before the actuator does
				},
				Logger: slog.New(slog.NewTextHandler(writer(func(b []byte) {
					if strings.Contains(string(b), "cannot take a container off the record") {
						kept <- struct{}{}
					}
				}), nil))})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- g.Run(context.Background()) }()
			arrives(p, "its record stays", kept)
			if paused, _ := p.engine.Paused("a"); paused {
				t.Error("its lease ended, and it is paused")
			}
			writable()
			again(p)
			moves.Store(true)
			lock.Unlock()
			p.awaitAllGone("a")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
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
	var looks atomic.Int64
	p.engine.FailWith(func(call, _ string) error {
		if call == "inspect" && looks.Add(1) == 2 { // the first one was answered
			p.engine.SetPaused("a", true)
		}
		return nil
	})
	p.watch(true)
	lock.Unlock()
	p.awaitAllGone("a")
	if calls := p.engine.Calls(); !slices.Equal(calls, []string{"unpause a"}) {
		t.Errorf("after %d looks its calls are %v", looks.Load(), calls)
	}
}

// stopped are processes that are stopped at their allocations, and a kernel that does not give
// them back at once.
type stopped struct {
	left, fails, tries int
	tried              chan struct{}
}

func (s *stopped) release(_ context.Context, expired bool) (int, error) {
	if expired {
		return 0, nil
	}
	defer func() { s.tried <- struct{}{} }()
	if s.tries++; s.tries <= s.fails {
		return 0, errors.New("the record cannot be read")
	}
	n := s.left
	s.left = 0
	return n, nil
}

func (p *post) release(s *stopped) (end context.CancelFunc, done <-chan error) {
	p.Helper()
	s.tried = make(chan struct{}, 1000)
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Once: true, Release: s.release,
		Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond})
	if err != nil {
		p.Fatal(err)
	}
	return p.run(g)
}

// While an actuator lives, the guardian continues at every poll, but only whose lease ran out.
func TestContinuesOnlyExpiredWhileTheActuatorLives(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	calls := make(chan bool)
	done := p.watches(guardian.Options{Once: true, Poll: time.Millisecond, Release: func(ctx context.Context, expired bool) (int, error) {
		select {
		case calls <- expired:
		case <-ctx.Done():
		}
		return 0, nil
	}})
	next := func() (expired bool) {
		t.Helper()
		select {
		case expired = <-calls:
		case <-time.After(20 * time.Second):
			t.Fatal("it does not release")
		}
		return expired
	}
	for range 5 {
		if !next() {
			t.Fatal("it released those of a living actuator")
		}
	}
	lock.Unlock()
	for end := time.Now().Add(20 * time.Second); next(); { // it polls until it has the lock
		if time.Now().After(end) {
			t.Fatal("it does not release those of an actuator that is gone")
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTriesStoppedProcessesAgain(t *testing.T) {
	p, s := newPost(t), &stopped{left: 2, fails: 3}
	_, done := p.release(s)
	if err := <-done; err != nil || s.left != 0 || s.tries != 4 {
		t.Errorf("%v, %d left after %d tries", err, s.left, s.tries)
	}
}

func TestSaysWhatIsLeft(t *testing.T) {
	p, s := newPost(t), &stopped{left: 2, fails: 1 << 30}
	end, done := p.release(s)
	<-s.tried
	<-s.tried // it does not give up
	end()
	if err := <-done; !errors.Is(err, guardian.ErrLeft) {
		t.Errorf("it ended as if all were well: %v", err)
	}
}

func TestSaysThatContainersAreLeft(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a")
	calls := make(chan string, 1000)
	p.engine.FailWith(func(call, _ string) error { calls <- call; return context.DeadlineExceeded })
	g := p.guardian(guardian.Options{})
	lock.Unlock()
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	<-calls
	end()
	if err := <-done; !errors.Is(err, guardian.ErrLeft) {
		t.Errorf("it ended as if all were well: %v", err)
	}
}

// Of two containers that cannot be released each is told once a minute, and the success of a third ends neither.
func TestTroubleIsToldOfEachContainer(t *testing.T) {
	p := newPost(t)
	lock := p.actuator()
	p.hold(time.Now().Add(time.Hour), "a", "b", "c")
	tries := make(chan string)
	p.engine.FailWith(func(_, id string) error {
		if id == "c" {
			return nil
		}
		select {
		case tries <- id:
		case <-t.Context().Done():
		}
		return errors.New("the engine says no to " + id)
	})
	var told sync.Map // how often, by container
	var now atomic.Int64
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Poll: time.Millisecond,
		Now: func() time.Time { return time.Unix(0, now.Load()) },
		Logger: slog.New(slog.NewTextHandler(writer(func(b []byte) {
			for _, id := range []string{"a", "b"} {
				if strings.Contains(string(b), "no to "+id) {
					n, _ := told.LoadOrStore(id, new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
				}
			}
		}), nil))})
	if err != nil {
		t.Fatal(err)
	}
	lock.Unlock()
	p.run(g)
	tried := map[string]int{}
	for tried["a"] < 5 || tried["b"] < 5 { // those before the last one have been told of
		select {
		case id := <-tries:
			tried[id]++
		case <-time.After(2 * time.Millisecond): // until it is time for the next try, within the minute
			if now.Add(int64(10*time.Millisecond)) >= int64(time.Minute) {
				t.Fatalf("tried %v", tried)
			}
		}
	}
	for _, id := range []string{"a", "b"} {
		if n, ok := told.Load(id); !ok || n.(*atomic.Int64).Load() != 1 {
			t.Errorf("%s is not told of once", id)
		}
	}
}

func TestTroubleIsToldOnceAMinute(t *testing.T) {
	p := newPost(t)
	p.actuator()
	var lines atomic.Int64
	swept := make(chan struct{}) // each sweep waits for the test
	now := atomic.Int64{}
	g, err := guardian.New(guardian.Options{StateDir: p.dir, Journal: p.journal, Enforcer: p.enforcer, Poll: time.Millisecond,
		Now: func() time.Time { return time.Unix(now.Load(), 0) },
		Sweep: func() ([]int, error) {
			select {
			case swept <- struct{}{}:
			case <-t.Context().Done():
			}
			return nil, errors.New("no record")
		},
		Logger: slog.New(slog.NewTextHandler(writer(func(b []byte) {
			if strings.Contains(string(b), "no record") {
				lines.Add(1)
			}
		}), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = g.Run(ctx) }()
	for range 10 {
		<-swept
	}
	if n := lines.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	now.Store(61)
	for range 10 {
		<-swept
	}
	if n := lines.Load(); n != 2 {
		t.Errorf("told %d times after a minute", n)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestOnlyOneGuardian(t *testing.T) {
	p := newPost(t)
	p.actuator()
	p.watch(false)
	g := p.guardian(guardian.Options{})
	if err := g.Run(context.Background()); !errors.Is(err, guardian.ErrTaken) {
		t.Errorf("error %v", err)
	}
}
