// Package guardian releases what an actuator left stopped. It runs in a process of its own and
// does nothing while a healthy actuator lives. Within a second of the actuator's death, however
// it died, the guardian unpauses every container on record, continues every process that Laxity
// stopped, switches channels on and restores time slices. It swaps containers in when their GPU
// has room.
//
// It imports the standard library, actuator/journal, actuator/record and actuator/enforce: what
// must work when everything else has failed stays small.
//
// # Who acts when
//
// The actuator holds actuator.lock while it lives. The guardian blocks in the kernel on that
// lock; once it has the lock, no actuator lives. It keeps the lock while it releases, so that a
// new actuator waits for it (package journal has the order of the locks). What it cannot release it
// tries again, and gives the lock up between two tries: the next actuator may use another engine, or be
// the one to release. While an actuator lives, the guardian acts only on holds
// whose lease ended at least Options.Grace ago: a healthy actuator renews or ends them before.
// Releasing is idempotent.
package guardian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
)

// Options of a guardian. StateDir, Journal, Enforcer and Logger are required.
type Options struct {
	StateDir string
	Journal  *journal.Journal
	Enforcer Enforcer
	Logger   *slog.Logger
	// Release continues the processes that are stopped at their allocations, with expired
	// only those whose lease ran out, and returns how many; nil: nothing stops any.
	Release func(ctx context.Context, expired bool) (int, error)
	// Sweep continues every process that Laxity stopped and nothing wants stopped any more,
	// and returns their PIDs; nil: nothing stops any. The guardian calls it at every Poll,
	// also while an actuator lives.
	Sweep func() (strays []int, err error)
	// Swaps swaps containers in, as far as there is room, and returns how many are left; nil:
	// there are none. The guardian retries while no actuator lives.
	Swaps func(ctx context.Context) (left int, err error)
	// Channels are undone as soon as no actuator lives; nil: nothing changes any.
	Channels Channels
	// Once ends the guardian when no actuator lives and nothing is on record;
	// else it waits for the next actuator.
	Once bool
	// Poll is how often the guardian checks for expired leases, and for an actuator when none
	// lives; 100 ms by default.
	Poll time.Duration
	// Grace is how long a living actuator has, after the end of a lease, to end it itself; 1 s
	// by default.
	Grace time.Duration
	// Lease is the longest that a lease lasts from when it is renewed; 1 min by default.
	// A longer one was written before the wall clock was set back.
	Lease time.Duration
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Enforcer releases containers, as an enforce.Enforcer does. It is not called twice at a time for
// one container.
type Enforcer interface {
	Unpause(ctx context.Context, id string) error
}

// ErrLeft means that the guardian ended while no actuator lived and something was still on
// record. The next guardian or actuator undoes it, or `laxity off`.
var ErrLeft = errors.New("something is still on record and could not be released")

// ErrTaken means that another guardian watches this state folder.
var ErrTaken = errors.New("another guardian is watching")

// Guardian is made by New.
type Guardian struct {
	o Options
	// swaps is when to retry containers that could not be swapped in; swapped is how many are left.
	swaps   backoff
	swapped int
	// channels is when to retry channels that could not be restored, stopped when to retry
	// processes that could not be continued.
	channels, stopped backoff
	left              int // what the last undo left
	// records is when to retry containers that could not be released, and records that could not be
	// removed though their containers run.
	records backoff
	// kept counts the containers that the last undo could not release. answered: the engine has
	// answered for one since the actuator's death.
	kept     int
	answered bool

	mu         sync.Mutex // of what follows
	lastLogged map[matter]logged
	// runs are the containers that run though their records cannot be removed, each with the Since of
	// the hold that was released: a later hold of the container is another one.
	runs map[string]time.Time
	// leases are those on record at the last call of expire, by container.
	leases map[string]lease
	retry  map[string]backoff // containers whose lease ended and that could not be released
	// releasing are the containers that are being released; a channel is closed at the end.
	releasing map[string]chan struct{}
}

// matter is what an error is about: something that failed, and of which container, if of one.
type matter struct{ what, container string }

// logged is the last error that was logged about a matter, and when.
type logged struct {
	what string
	at   time.Time
}

// logAgain is how often an error that lasts is logged.
const logAgain = time.Minute

// trouble logs an error, once a minute while it lasts; nil ends it.
func (g *Guardian) trouble(what string, err error, args ...any) {
	g.log(matter{what: what}, err, args...)
}

// troubleOf is trouble about one container: the success of one does not end the trouble of another.
func (g *Guardian) troubleOf(h record.Hold, what string, err error) {
	g.log(matter{what, h.ContainerID}, err, "container", h.Container)
}

func (g *Guardian) log(m matter, err error, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		delete(g.lastLogged, m)
		return
	}
	now, last := g.o.Now(), g.lastLogged[m]
	if last.what == err.Error() && now.Sub(last.at) < logAgain {
		return
	}
	g.lastLogged[m] = logged{err.Error(), now}
	g.o.Logger.Error(m.what, append(args, "err", err)...)
}

// lease is when a hold's lease ends: recorded by the wall clock, ends by our monotonic clock.
type lease struct{ recorded, ends time.Time }

type backoff struct {
	next time.Time
	wait time.Duration
}

// later waits before the next try, each time for longer.
func (b *backoff) later(now time.Time, first, most time.Duration) {
	b.wait = min(max(2*b.wait, first), most)
	b.next = now.Add(b.wait)
}

// due reports whether there is something to try again, and now.
func (b *backoff) due(now time.Time) bool { return b.wait > 0 && !now.Before(b.next) }

// New checks the options and fills in the defaults.
func New(o Options) (*Guardian, error) {
	if o.StateDir == "" || o.Journal == nil || o.Enforcer == nil || o.Logger == nil {
		return nil, errors.New("guardian: StateDir, Journal, Enforcer and Logger are required")
	}
	if o.Poll <= 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.Grace <= 0 {
		o.Grace = time.Second
	}
	if o.Lease <= 0 {
		o.Lease = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Guardian{o: o, retry: map[string]backoff{}, leases: map[string]lease{}, lastLogged: map[matter]logged{}, runs: map[string]time.Time{},
		releasing: map[string]chan struct{}{}}, nil
}

// Run watches until ctx ends, or with Once until there is nothing to watch. If ctx ends while an
// actuator lives, Run releases nothing: that actuator notices that it is no longer watched. If
// none lives, the error wraps ErrLeft while something is on record.
func (g *Guardian) Run(ctx context.Context) error {
	own, err := journal.LockWithin(ctx, journal.GuardianLock(g.o.StateDir), time.Second)
	if errors.Is(err, journal.ErrLocked) {
		return fmt.Errorf("%w %s", ErrTaken, g.o.StateDir)
	}
	if err != nil {
		return err
	}
	defer own.Unlock()
	g.o.Logger.Info("guardian watches", "state_dir", g.o.StateDir)
	for {
		lock, err := g.wait(ctx)
		if errors.Is(err, errFolderGone) {
			return nil
		}
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		g.left, err = g.undo(ctx)
		if err != nil {
			lock.Unlock()
			return g.end(ctx, err)
		}
		if g.o.Once && g.left == 0 {
			own.Unlock() // before the actuator's: see package journal
			lock.Unlock()
			return nil
		}
		lock.Unlock()
		if err := g.idle(ctx); err != nil {
			return g.end(ctx, err)
		}
	}
}

// end is what Run returns when it ends while no actuator lives.
func (g *Guardian) end(ctx context.Context, err error) error {
	if g.left > 0 {
		return errors.Join(fmt.Errorf("%w: %d containers or processes; start laxity-actuator guardian, or run laxity off", ErrLeft, g.left), ignoreEnd(ctx, err))
	}
	return ignoreEnd(ctx, err)
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // asked to end, it ended
	}
	return err
}

// errFolderGone means that there is nothing left to watch.
var errFolderGone = errors.New("the state folder is gone")

// lock blocks until no actuator lives. It retries each error that may pass, such as a lack of
// descriptors or memory: if the guardian ended, nobody would release what is on record.
func (g *Guardian) lock(ctx context.Context) (*journal.Lock, error) {
	for {
		l, err := journal.Wait(ctx, journal.ActuatorLock(g.o.StateDir))
		if errors.Is(err, fs.ErrNotExist) && g.folderGone() {
			return nil, errFolderGone
		}
		if ctx.Err() != nil {
			return l, err
		}
		g.trouble("cannot take the lock of the actuator, so nothing on record is released; will try again", err)
		if err == nil {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(g.o.Poll):
		}
	}
}

// wait blocks until no actuator lives, and ends expired leases meanwhile.
func (g *Guardian) wait(ctx context.Context) (*journal.Lock, error) {
	if l, err := journal.TryLock(journal.ActuatorLock(g.o.StateDir)); err == nil {
		return l, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		lock *journal.Lock
		err  error
	}
	got := make(chan result, 1)
	go func() {
		l, err := g.lock(ctx)
		got <- result{l, err}
	}()
	go g.sweepChannels(ctx)
	go g.expireLeases(ctx)
	tick := time.NewTicker(g.o.Poll)
	defer tick.Stop()
	for {
		select {
		case r := <-got:
			if r.err == nil {
				g.o.Logger.Warn("the actuator is gone")
				g.swaps, g.answered = backoff{}, false
			}
			return r.lock, r.err
		case <-tick.C:
			g.continueStopped(ctx, true)
			g.sweep()
		}
	}
}

// sweep continues every process that Laxity stopped and nothing wants stopped.
func (g *Guardian) sweep() {
	if g.o.Sweep == nil {
		return
	}
	strays, err := g.o.Sweep()
	if len(strays) > 0 {
		g.o.Logger.Error("continued processes that Laxity had stopped and nothing wanted stopped", "pids", strays)
	}
	g.trouble("cannot sweep for stopped processes", err)
}

// continueStopped continues the processes that are stopped at their allocations, with expired only
// those whose lease a living actuator did not renew. It reports success.
func (g *Guardian) continueStopped(ctx context.Context, expired bool) bool {
	if g.o.Release == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := g.o.Release(ctx, expired)
	if n > 0 {
		g.o.Logger.Warn("continued processes that were stopped at their allocations", "processes", n, "lease_ran_out", expired)
	}
	g.trouble("cannot continue the processes that are stopped at their allocations; will try again", err)
	return err == nil
}

// continueStoppedUntil retries continueStopped, after an actuator's death, until it succeeds or
// done is closed. It returns 1 if something is left.
func (g *Guardian) continueStoppedUntil(ctx context.Context, done <-chan struct{}) (left int) {
	for {
		if g.continueStopped(ctx, false) {
			g.stopped = backoff{}
			return 0
		}
		g.stopped.later(g.o.Now(), 50*time.Millisecond, 5*time.Second)
		again := time.NewTimer(g.stopped.wait)
		select {
		case <-again.C:
		case <-done:
			again.Stop()
			return 1
		}
	}
}

// away reports whether the engine did not answer for those that could not be released, nor for anybody
// since the actuator's death.
func (g *Guardian) away() bool { return g.kept > 0 && !g.answered }

// unseen reports whether more is on record than the last undo left.
func (g *Guardian) unseen() bool {
	holds, err := g.o.Journal.List()
	if err != nil {
		return g.records.wait == 0
	}
	return len(holds) > g.running(holds)+g.kept
}

// idle waits while no actuator lives. It returns when there is one, or something
// on record: an actuator may have come and died in between.
func (g *Guardian) idle(ctx context.Context) error {
	tick := time.NewTicker(g.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		g.sweep()
		if g.unseen() || g.records.due(g.o.Now()) {
			return nil
		}
		if !g.away() && g.swaps.due(g.o.Now()) || g.stopped.due(g.o.Now()) || g.channelsDue() {
			return nil
		}
		if journal.Taken(journal.ActuatorLock(g.o.StateDir)) {
			return nil
		}
	}
}
