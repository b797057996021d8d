package tracker

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
)

func (l *loop) onSensor(n sensorNews) {
	_, busy := n.sensor.(sensor.BusyTracker)
	l.countLost() // of the sensor before
	l.sensor, l.lostBefore = n.sensor, l.lost
	l.answered.sensor = true
	clear(l.tracked)
	l.m.SensorInUse(n.source, n.reason, busy)
	for _, c := range l.Snapshot().Containers {
		l.discover(c.PID)
	}
	processes := l.m.Processes()
	l.know(processes...)
	l.loaded(processes...)
	l.hurry()
}

// know has the sensor tell exactly when processes end whose start it may not have
// seen: those of before a restart, and those that the device listed first.
func (l *loop) know(processes ...sensor.Process) {
	knower, ok := l.sensor.(sensor.Knower)
	if !ok || len(processes) == 0 {
		return
	}
	l.later(l.tracks, func(ctx context.Context) {
		l.each(ctx, &l.follows, processes, knower.Know, "the end of a process will be reported late")
	})
}

// each calls do for the processes that still live, and logs meaning where do fails. It runs
// on the workers.
func (l *loop) each(ctx context.Context, calls *sensor.Calls, processes []sensor.Process, do func(pid int) error, meaning string) {
	for _, p := range processes {
		if ctx.Err() != nil {
			return
		}
		err := calls.Do(ctx, p.PID, func() error {
			if !l.opt.Exits.Alive(p) {
				return nil // the PID may be another process's
			}
			return do(p.PID)
		})
		if err != nil {
			l.log.Debug(meaning, "pid", p.PID, "err", err)
		}
	}
}

// countLost counts the events that the sensors have lost.
func (l *loop) countLost() {
	if s, ok := l.sensor.(sensor.Lossy); ok {
		l.lost = max(l.lost, l.lostBefore+s.Lost())
		l.m.SensorLost(l.lost)
	}
}

// discover has the sensor search for a copy of libcuda that only this container has. The
// search runs outside the loop. When too many searches wait, the container is followed by the
// device's list alone.
func (l *loop) discover(pid int) {
	f, ok := l.sensor.(sensor.Finder)
	if !ok || pid <= 0 {
		return
	}
	l.later(l.finds, func(ctx context.Context) {
		switch err := l.searches.Do(ctx, pid, func() error { return f.Discover(pid) }); {
		case errors.Is(err, sensor.ErrHanging):
			l.log.Warn("the search for libcuda in a container takes long, or hangs: until it returns the container is followed by the device's list alone", "pid", pid, "err", err)
		case err != nil:
			l.log.Debug("libcuda of a container was not searched for", "pid", pid, "err", err)
		}
	})
}

// loaded has the sensor search for the libcuda of processes that use a GPU and whose calls it
// may have missed, so that it sees the calls of later processes.
func (l *loop) loaded(processes ...sensor.Process) {
	f, ok := l.sensor.(sensor.Finder)
	if !ok {
		return
	}
	var contained []sensor.Process
	for _, p := range processes {
		if s, met := l.m.Known(p.PID); met && s.Container != "" {
			contained = append(contained, p)
		}
	}
	if len(contained) == 0 {
		return
	}
	l.later(l.finds, func(ctx context.Context) {
		l.each(ctx, &l.searches, contained, f.Loaded, "libcuda of a process was not searched for")
	})
}

func (l *loop) release(id string) {
	f, ok := l.sensor.(sensor.Finder)
	c, known := l.Snapshot().FindContainer(id)
	if ok && known && c.PID > 0 {
		l.later(l.finds, func(context.Context) { l.searches.Then(c.PID, func() { f.Release(c.PID) }) })
	}
}

// later queues a job for a worker. It reports whether there was room.
func (l *loop) later(queue chan<- func(context.Context), job func(context.Context)) bool {
	select {
	case queue <- job:
		return true
	default:
		l.log.Warn("too many containers and processes start at once: some of them are followed by the device's list alone")
		return false
	}
}

// following is the result of a call to follow the launches of a process.
type following struct {
	process sensor.Process
	err     error
}

// trackBusy has the sensor follow the launches of exactly those processes whose container
// asks for it, because following costs the tenant time.
func (l *loop) trackBusy() {
	tracker, ok := l.sensor.(sensor.BusyTracker)
	if !ok {
		return
	}
	want := map[int]sensor.Process{}
	for _, p := range l.m.BusyProcesses() {
		want[p.PID] = p
		if l.tracked[p.PID] != p {
			l.tracked[p.PID] = p
			if !l.later(l.tracks, func(ctx context.Context) { l.track(ctx, tracker, p) }) {
				l.m.Followed(p, false, time.Now())
			}
		}
	}
	for pid := range l.tracked {
		if _, ok := want[pid]; !ok {
			delete(l.tracked, pid)
			l.later(l.tracks, func(context.Context) { l.follows.Then(pid, func() { tracker.Untrack(pid) }) })
		}
	}
}

// track runs on the worker.
func (l *loop) track(ctx context.Context, tracker sensor.BusyTracker, p sensor.Process) {
	if !l.opt.Exits.Alive(p) {
		return // the PID may be another's
	}
	err := l.follows.Do(ctx, p.PID, func() error { return tracker.Track(p.PID) })
	if errors.Is(err, sensor.ErrHanging) { // it may still succeed, but then the core counts it as not followed
		l.follows.Then(p.PID, func() { tracker.Untrack(p.PID) })
	}
	select {
	case l.followed <- following{p, err}:
	case <-l.done:
	}
}

func (l *loop) onFollowed(f following) {
	if f.err != nil && l.opt.Exits.Alive(f.process) {
		l.log.Warn("busy intervals of a process cannot be followed: the whole process is one task", "pid", f.process.PID, "err", f.err)
	}
	l.m.Followed(f.process, f.err == nil, time.Now())
}
