package tracker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
	"github.com/laxity/laxity/internal/bounded"
)

const (
	tickEvery     = 100 * time.Millisecond // how often stopped processes and timeouts are inspected
	calmEvery     = 500 * time.Millisecond // the same for tasks that have not changed for a while
	restEvery     = time.Second            // the same while there is nothing to inspect
	lostEvery     = 10 * time.Second       // between counts of the events that the sensor lost
	unwatchedRest = 30 * time.Second       // between log lines about processes that cannot be watched
	unknownRelist = 500 * time.Millisecond // between lists asked for because of an unknown container
	jobBacklog    = 4096                   // containers and processes that wait for the sensor
	// A new container may use CUDA from its own copy of the driver before any sensor watches
	// that copy. For so long the device is read often.
	newcomerFor = 3 * time.Second
	// trackLimit is how long the sensor may take to follow the launches of a process. It is long
	// because a process that is not followed in time is one task to its end.
	trackLimit = 5 * time.Second
	stopLimit  = 10 * time.Second // how long Run waits at its end for what may hang
)

// loop is the state that the tracker's goroutine owns, besides the core.
type loop struct {
	*Tracker
	m        *core.Core
	log      *slog.Logger
	resolver resolver

	requests  chan struct{}              // to the device's feed
	relist    chan struct{}              // to the engine's feed
	finds     chan func(context.Context) // Discover, Loaded and Release
	searches  sensor.Calls               // those of finds
	tracks    chan func(context.Context) // Track, Untrack and Know
	follows   sensor.Calls               // those of tracks
	starts    chan sensor.Event
	holds     chan holdNews
	cards     chan cardNews
	poll      *time.Timer
	tick      *time.Timer
	gap       *time.Timer // the gap after a busy interval is over
	gapSet    bool
	nextPoll  time.Time
	newcomer  time.Time     // when a container last started
	reading   bool          // a request is under way
	readAt    time.Time     // when the last one ended, whether it failed or not
	took      time.Duration // how long it took
	pace      time.Duration // between ticks
	relisted  time.Time
	published time.Time
	sensor    sensor.Starts
	// Lost events of all sensors, those of the sensors before the present one, and when they
	// were last counted.
	lost, lostBefore uint64
	counted          time.Time
	unwatchedAt      time.Time              // when unwatched last logged
	tracked          map[int]sensor.Process // by the busy tracker
	followed         chan following         // its answers
	done             <-chan struct{}        // the loop ends
	reported         task.Health            // what reportHealth last logged
	off              map[int]string         // who was off the GPU at the last reading

	swapsFailed bool
	answered    struct{ device, engine, sensor bool }
}

// Run tracks until ctx ends; then it stores what it knows and returns nil.
func (t *Tracker) Run(ctx context.Context) error {
	l := &loop{
		Tracker:  t,
		m:        t.core,
		log:      t.opt.Logger,
		resolver: resolver{exits: t.opt.Exits, processes: t.opt.Processes, doubts: map[string]doubt{}},
		requests: make(chan struct{}, 1),
		relist:   make(chan struct{}, 1),
		finds:    make(chan func(context.Context), jobBacklog),
		tracks:   make(chan func(context.Context), jobBacklog),
		follows:  sensor.Calls{Limit: trackLimit},
		starts:   make(chan sensor.Event, sensorBacklog),
		holds:    make(chan holdNews),
		cards:    make(chan cardNews),
		poll:     time.NewTimer(0),
		tick:     time.NewTimer(tickEvery),
		gap:      time.NewTimer(0),
		gapSet:   true,
		pace:     tickEvery,
		tracked:  map[int]sensor.Process{},
		followed: make(chan following),
		done:     ctx.Done(),
		reported: t.Snapshot().Health,
	}
	l.restore()

	readings, engine, sensors, stop := l.feed(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			l.settle(time.Now())
			return nil
		case r := <-readings:
			l.onReading(r)
		case n := <-engine:
			l.onEngine(n)
		case n := <-sensors:
			l.onSensor(n)
		case n := <-l.holds:
			l.m.Off(n.off, n.at)
		case n := <-l.cards:
			l.onCards(n)
		case ev := <-l.starts:
			l.onStart(ev)
		case f := <-l.followed:
			l.onFollowed(f)
		case x := <-t.opt.Exits.Exits():
			l.m.Exit(x)
			l.resolver.forget(x.Process)
			l.hurry()
		case ask := <-t.asks:
			ask()
		case <-l.poll.C:
			l.request()
		case <-l.gap.C:
			l.onGap(time.Now())
		case <-l.tick.C:
			l.onTick(time.Now())
		}
		l.settle(time.Now())
	}
}

// feed starts the goroutines that wait for device, engine, sensors and disk. stop ends them,
// and returns when the journal has written what the loop left. It does not wait longer than
// stopLimit for the others.
func (l *loop) feed(ctx context.Context) (<-chan reading, <-chan engineNews, <-chan sensorNews, func()) {
	readings, engine, sensors := make(chan reading), make(chan engineNews), make(chan sensorNews)
	feeds, stop := context.WithCancel(ctx)
	// The journal outlives the loop: it writes what the loop leaves.
	writing, finish := context.WithCancel(context.WithoutCancel(ctx))
	var wg, journal sync.WaitGroup
	wg.Go(func() { readDevice(feeds, l.opt.Device, l.requests, readings) })
	wg.Go(func() { followEngine(feeds, l.opt.Containers, l.relist, engine) })
	wg.Go(func() { runStarts(feeds, l.opt.Starts, l.starts, sensors) })
	if l.opt.Holds != nil {
		wg.Go(func() { l.followHolds(feeds) })
	}
	if l.opt.Cards != nil {
		wg.Go(func() { readCards(feeds, l.opt.Cards, l.opt.CardEvery, l.cards) })
	}
	wg.Go(func() { work(feeds, l.finds) })
	wg.Go(func() { work(feeds, l.tracks) })
	journal.Go(func() { l.journal.run(writing) })
	return readings, engine, sensors, func() {
		stop()
		finish()
		journal.Wait()
		if !bounded.Wait(stopLimit, wg.Wait) {
			l.log.Warn("a sensor or the device does not end: the exporter ends without it", "waited", stopLimit)
		}
	}
}

// restore loads what was stored before a restart.
func (l *loop) restore() {
	if l.opt.Store == nil {
		return
	}
	s, err := l.opt.Store.Load()
	if err != nil {
		l.log.Warn("part of the stored state could not be read", "err", err)
	}
	l.m.Restore(s, func(pid int, identity string) (core.Subject, bool) {
		subject, err := l.resolver.subject(pid)
		if err != nil {
			return subject, false
		}
		if subject.Identity != identity {
			l.opt.Exits.Forget(subject.Process)
			return subject, false
		}
		return subject, true
	}, time.Now())
	if len(s.Open) > 0 {
		l.log.Info("tasks of the last run", "stored", len(s.Open), "still_running", l.m.Unfinished())
	}
}

func (l *loop) onEngine(n engineNews) {
	now := time.Now()
	l.answered.engine = true
	switch {
	case n.err != nil:
		l.m.EngineDown(n.err.Error())
	case n.event != nil:
		if n.event.Kind == container.Died {
			l.release(n.event.ID)
		}
		if n.event.Kind == container.Started {
			l.newcomer = now
		}
		l.m.Container(*n.event, now)
		l.hurry()
	default:
		l.m.Containers(n.list, now)
		l.relisted = now
	}
}

// onTick inspects what no event reports: whether a process is stopped, and what is due by
// time alone.
func (l *loop) onTick(now time.Time) {
	for _, p := range l.m.ToInspect(now, calmEvery) {
		if stat, err := l.opt.Processes.Stat(p.PID); err == nil {
			l.m.Stopped(p.Identity, stat.State == 'T', now)
		}
	}
	l.m.Tick(now)
	l.onGap(now)
	l.trackBusy()
	if now.Sub(l.counted) >= lostEvery {
		l.counted = now
		l.countLost()
	}
	activity := l.m.Activity()
	if activity.UnknownContainers > 0 && now.Sub(l.relisted) > unknownRelist {
		l.relisted = now
		select {
		case l.relist <- struct{}{}:
		default:
		}
	}
	l.journal.unfinished(activity.Unfinished > 0)
	l.pace = l.ticks(activity, now)
	l.tick.Reset(l.pace)
}

// settle passes on what the core made of the last input.
func (l *loop) settle(now time.Time) {
	for _, f := range l.m.TakeFacts() {
		l.report(f)
	}
	if c := l.m.TakeChanges(); !c.Empty() {
		l.journal.put(c, nil)
	}
	changed, measured := l.m.Changed()
	turned, due := l.m.Turned(), now.Sub(l.published) >= l.opt.MeasureEvery
	switch {
	case changed || measured && due:
		s := l.m.Snapshot()
		l.published = now
		l.board.publish(s)
		l.reportHealth(s.Health)
	case turned && due: // this wakes no reader
		l.published = now
		l.board.show(l.m.Snapshot())
	case !measured && !turned: // otherwise the last snapshot is not what the last reading showed
		l.board.confirm(l.m.Confirmed())
	}
	if l.answered.device && l.answered.engine && l.answered.sensor {
		select {
		case <-l.ready:
		default:
			close(l.ready)
		}
	}
}
