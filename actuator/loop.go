package actuator

import (
	"context"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// loop is the one goroutine that decides. Everything in it belongs to that
// goroutine; calls to engine and exporter happen in others and come back as
// messages.
type loop struct {
	*Actuator

	snap    *task.Snapshot
	former  formerRun
	arrived time.Time
	planned time.Time // arrival of the snapshot that a plan is being made of, for the first time
	began   time.Time // when the loop began
	trouble string    // why there is no fresh snapshot; said once
	away    bool      // the trouble is that the exporter does not answer

	fetched  chan fetched
	fetching bool
	fetchAt  time.Time // not before
	asked    time.Time // when the fetch under way, or the last, began

	results chan result
	flying  map[string]flight // by container id: what is being done to it
	retry   map[string]backoff

	holds    map[string]*hold
	freed    map[string]time.Time // unpaused by us; until the snapshot says so
	lastAct  map[string]time.Time // by GPU
	admitted map[string][]string  // by GPU
	since    map[string]time.Time // by container id: when it was last let run
	beside   map[string][]string  // by GPU: who runs and takes nobody's turn
	line     map[string][]string  // by GPU: who waits, in order
	floor    plan.Floor
	besideBy map[string]string // by container id: why it runs beside those in turn
	waits    map[string]plan.Wait
	allowed  map[string]bool   // by container id: on the allow-list
	said     map[string]string // what was last decided about something, so that it is said once

	history   *estimate.Book
	historyAt time.Time
	breaker   breaker
	tenure    *tenure
	mem       *memoryKeeper
	channels  *channelKeeper // nil: nothing is divided

	saveFailed bool
	putAside   []string // as last looked for
	asideAt    time.Time
}

type hold struct {
	journal.Hold
	// doubtful: the pause failed and could not be taken back, so whether the
	// container is stopped is not known.
	doubtful bool
	looked   time.Time
}

type fetched struct {
	snap  *task.Snapshot
	inbox uint64 // the last message that had come in when it was asked for
	err   error
}

type backoff struct {
	next time.Time
	wait time.Duration
}

// later waits before the next try, each time for longer.
func (b *backoff) later(now time.Time, first, most time.Duration) {
	b.wait = min(max(2*b.wait, first), most)
	b.next = now.Add(b.wait)
}

func newLoop(a *Actuator) *loop {
	return &loop{
		Actuator: a,
		fetched:  make(chan fetched, 1),
		results:  make(chan result, 64),
		flying:   map[string]flight{},
		retry:    map[string]backoff{},
		holds:    map[string]*hold{},
		freed:    map[string]time.Time{},
		lastAct:  map[string]time.Time{},
		admitted: map[string][]string{},
		waits:    map[string]plan.Wait{},
		since:    map[string]time.Time{},
		allowed:  map[string]bool{},
		said:     map[string]string{},
		began:    a.o.Now(),
		history:  a.openHistory(),
		tenure:   newTenure(a.o.LockDir, a.enforcer),
		mem:      a.newMemoryKeeper(),
		channels: newChannelKeeper(a.channels),
	}
}

func (l *loop) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(l.o.Tick)
	defer tick.Stop()
	stream := l.watch(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-stream:
			l.take(s)
		case f := <-l.fetched:
			l.takeFetched(f)
		case r := <-l.results:
			l.finish(r)
		case <-l.inbox.Ready():
			// The snapshot must be younger than the alert.
			l.fetchAt = time.Time{}
		case r := <-l.reloads:
			l.config.Store(&r.config)
			l.decide(decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "configuration reloaded"})
			clear(l.said)
			close(r.done)
		case r := <-l.asks:
			r.done <- r.do(l)
		case <-l.mem.changed():
		case <-l.channels.awake():
		case r := <-l.channels.done():
			l.finishDivide(r)
		case <-tick.C:
		}
		l.step(ctx)
	}
}

// step does whatever is to be done now. It is cheap when that is nothing.
func (l *loop) step(ctx context.Context) {
	now := l.o.Now()
	l.guard.look(now)
	l.standBy(ctx, now)
	l.refresh(ctx, now)
	l.overdue(now)
	l.overdueSwaps(now)
	if l.usable(now) {
		l.lapse(now)
		l.pardon()
		l.learnLabels(ctx, now)
		l.guardBounds(now)
		l.watchLimits(now)
		l.makePlan(ctx, now)
		l.askSwappable(ctx, now)
	} else {
		l.blindMemory()
		l.blind(ctx, now)
	}
	l.expire(ctx, now)
	l.inspectHolds(ctx, now)
	l.save()
	l.publish(now)
}

func (l *loop) save() {
	err := l.book.Save()
	if err != nil && !l.saveFailed {
		l.log.Error("leases are not on disk; alerts stay in the inbox until they are", "err", err)
	}
	l.saveFailed = err != nil
	l.keepHistory(l.o.Now(), false)
}

// decideOnce puts a decision on record unless it is what was decided last about
// this matter: what repeats itself is said once.
func (l *loop) decideOnce(matter string, d decision.Decision) {
	what := string(d.Result) + d.Reason + d.Error
	if l.said[matter] == what {
		return
	}
	if len(l.said) > maxSaid {
		clear(l.said)
	}
	l.said[matter] = what
	l.decide(d)
}

// maxSaid bounds the memory of decideOnce.
const maxSaid = 4096

// decide puts a decision on record.
func (l *loop) decide(d decision.Decision) {
	d.Time = l.o.Now()
	if d.Node == "" {
		d.Node = l.node()
	}
	if l.snap != nil {
		d.Snapshot = l.snap.Sequence
	}
	d = l.decisions.Add(d)
	l.page.Changed()
	level := l.log.Info
	if d.Result == decision.Failed {
		level = l.log.Warn
	}
	args := []any{"result", string(d.Result), "reason", d.Reason}
	for _, kv := range [][2]string{{"container", d.Container}, {"alert", d.Alert}, {"err", d.Error}} {
		if kv[1] != "" {
			args = append(args, kv[0], kv[1])
		}
	}
	level(string(d.Kind), args...)
}

func (l *loop) node() string {
	if l.o.Node != "" || l.snap == nil {
		return l.o.Node
	}
	return l.snap.Node
}
