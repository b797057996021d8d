package arbiter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/laxity/laxity/actuator/journal"
)

// Named is an engine with an identity. Of several actuators on one engine only one acts, even if
// their state folders differ.
type Named interface {
	// Engine returns a name that no other engine has.
	Engine(ctx context.Context) (string, error)
}

// Leader is the right to act on the engine: a lock that the kernel releases when its holder dies.
// The others stand by, and one takes over then. It belongs to the arbiter's goroutine.
type Leader struct {
	dir    string // of the locks; empty: no other actuator is expected
	engine Named
	lock   *journal.Lock
	why    string // why we do not lead, for people
	next   time.Time
	busy   bool
	won    chan attempt
}

// attempt is the result of one try for the leadership.
type attempt struct {
	lock *journal.Lock
	err  error
}

const (
	leadEvery   = time.Second
	leadTimeout = 3 * time.Second
)

// NewLeader uses the locks in dir. If dir is empty, or the engine has no name (Named), it leads
// without asking.
func NewLeader(dir string, engine any) *Leader {
	named, ok := engine.(Named)
	if !ok {
		dir = ""
	}
	return &Leader{dir: dir, engine: named, won: make(chan attempt, 1), why: "it is not known yet whether another actuator acts on this engine"}
}

// alone reports whether no other actuator is expected.
func (l *Leader) alone() bool { return l.dir == "" }

// leads reports whether we may act.
func (l *Leader) leads() bool { return l.alone() || l.lock != nil }

var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// try asks the engine for its name and takes its lock. It blocks for the time of one call.
func (l *Leader) try(ctx context.Context) (*journal.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, leadTimeout)
	defer cancel()
	name, err := l.engine.Engine(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the engine for its id: %w", err)
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the locks (choose another with --lock-dir, the same for every actuator): %w", err)
	}
	path := filepath.Join(l.dir, "engine-"+unsafeInName.ReplaceAllString(name, "_")+".lock")
	lock, err := journal.TryLock(path)
	if errors.Is(err, journal.ErrLocked) {
		return nil, fmt.Errorf("another actuator acts on this engine; this one stands by: %w", err)
	}
	return lock, err
}

// begin is the first try, before the arbiter takes anything over.
func (l *Leader) begin(ctx context.Context) {
	if l.leads() {
		return
	}
	lock, err := l.try(ctx)
	l.take(attempt{lock, err})
}

func (l *Leader) take(t attempt) {
	l.busy, l.lock, l.why = false, t.lock, ""
	if t.err != nil {
		l.why = t.err.Error()
	}
}

// tryAgain tries in a goroutine while another actuator acts, and sends the result on won.
func (l *Leader) tryAgain(ctx context.Context, now time.Time) {
	if l.leads() || l.busy || now.Before(l.next) {
		return
	}
	l.busy, l.next = true, now.Add(leadEvery)
	go func() {
		lock, err := l.try(ctx)
		l.won <- attempt{lock, err}
	}()
}

// release ends our leadership. Call it after everything is released.
func (l *Leader) release() {
	if l.busy { // an attempt under way may have got the lock
		l.take(<-l.won)
	}
	l.lock.Unlock()
}
