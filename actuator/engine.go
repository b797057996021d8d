package actuator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/journal"
)

// identifier is an Enforcer whose engine has a name of its own. Of several
// actuators on one engine, whatever their state folders, one acts.
type identifier interface {
	// Engine returns what tells the engine from all others.
	Engine(ctx context.Context) (string, error)
}

// tenure is the right to act on the engine: a lock that the kernel drops when its
// holder dies. The others stand by and take over then.
type tenure struct {
	dir  string // of the locks; empty: nobody else is expected
	id   identifier
	lock *journal.Lock
	why  string // why it is not ours, for people
	next time.Time
	busy bool
	got  chan tenureResult
}

type tenureResult struct {
	lock *journal.Lock
	err  error
}

const (
	tenureEvery   = time.Second
	tenureTimeout = 3 * time.Second
)

func newTenure(dir string, enforcer any) *tenure {
	id, ok := enforcer.(identifier)
	if !ok {
		dir = ""
	}
	return &tenure{dir: dir, id: id, got: make(chan tenureResult, 1), why: "it is not known yet whether another actuator acts on this engine"}
}

// ours reports whether we may act.
func (t *tenure) ours() bool { return t.dir == "" || t.lock != nil }

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// try asks the engine for its name and takes its lock. It blocks for a moment.
func (t *tenure) try(ctx context.Context) (*journal.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, tenureTimeout)
	defer cancel()
	name, err := t.id.Engine(ctx)
	if err != nil {
		return nil, fmt.Errorf("the engine does not say who it is: %w", err)
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the locks (choose another with --lock-dir, the same for every actuator): %w", err)
	}
	path := filepath.Join(t.dir, "engine-"+unsafeInName.ReplaceAllString(name, "_")+".lock")
	lock, err := journal.TryLock(path)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("another actuator acts on this engine; this one stands by: %w", err)
	}
	return lock, err
}

// begin is the first try, before anything is taken over.
func (t *tenure) begin(ctx context.Context) {
	if t.ours() {
		return
	}
	lock, err := t.try(ctx)
	t.take(tenureResult{lock, err})
}

func (t *tenure) take(r tenureResult) {
	t.lock, t.why = r.lock, ""
	if r.err != nil {
		t.why = r.err.Error()
	}
}

// release gives the right up, once everything is let go.
func (t *tenure) release() {
	if t.busy { // a try under way may have got it
		t.take(<-t.got)
	}
	t.lock.Unlock()
}

// tellTenure says, once, who acts on the engine.
func (l *loop) tellTenure() {
	if l.tenure.dir == "" {
		return
	}
	d := decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "this actuator acts on the engine"}
	if !l.tenure.ours() {
		d.Result, d.Reason, d.Error = decision.Failed, "nothing is held", l.tenure.why
	}
	l.decideOnce("tenure", d)
}

// standBy tries again as long as somebody else acts.
func (l *loop) standBy(ctx context.Context, now time.Time) {
	t := l.tenure
	select {
	case r := <-t.got:
		t.busy = false
		t.take(r)
		l.tellTenure()
	default:
	}
	if t.ours() || t.busy || now.Before(t.next) {
		return
	}
	t.busy, t.next = true, now.Add(tenureEvery)
	go func() {
		lock, err := t.try(ctx)
		t.got <- tenureResult{lock, err}
	}()
}
