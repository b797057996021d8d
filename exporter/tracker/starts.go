package tracker

import (
	"cmp"
	"errors"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// onStart takes an event of the start sensor.
func (l *loop) onStart(ev sensor.Event) {
	s, ok := l.owner(ev)
	if !ok {
		return
	}
	l.m.Sensor(s.Process, ev)
	if ev.Kind == sensor.WorkDone && !l.gapSet {
		l.onGap(time.Now())
	}
	activity := l.m.Activity()
	l.attend(activity, time.Now())
	l.trackBusy()
	// Of a launch a reading shows no more than where it is, once for a process.
	if request := ev.Kind == sensor.Launched || ev.Kind == sensor.WorkDone; !request || activity.Placeless > 0 {
		l.hurry()
	}
}

// A launch within a gap continues the busy interval. Its event is read up to eventLag after it,
// or up to crowdedLag while other events wait to be read.
const eventLag, crowdedLag = 5 * time.Millisecond, 100 * time.Millisecond

// EndLag is how long after its end that of a busy interval is known, as a rule.
func (o Options) EndLag() time.Duration { return cmp.Or(o.BusyGap, core.DefaultBusyGap) + eventLag }

// onGap ends the busy intervals whose gap is over, and looks again when the next one is. A
// request is told as ended so soon after its end that it does not seem late.
func (l *loop) onGap(now time.Time) {
	lag := eventLag
	if len(l.starts) > 0 {
		lag = crowdedLag
	}
	next := l.m.CloseBusy(now.Add(-lag))
	if l.gapSet = !next.IsZero(); l.gapSet {
		l.gap.Reset(max(next.Add(eventLag).Sub(now), time.Millisecond))
	}
}

// owner returns the process that an event belongs to, and introduces it to the core. Since
// the process was met, or since the event, the PID may have gone to another process. The
// start of the process in the event decides. If the event has none, its time decides.
func (l *loop) owner(ev sensor.Event) (core.Subject, bool) {
	met, known := l.m.Known(ev.PID)
	marked := known && ev.Started > 0 && met.Started > 0
	switch alive := known && l.opt.Exits.Alive(met.Process); {
	case marked && began(met, ev), alive && !marked:
		if met.Container == "" && ev.Container != "" {
			met.Container = ev.Container
			l.m.Meet(met)
		}
		return met, true
	case alive:
		return l.late(ev)
	}
	now, err := l.resolver.subject(ev.PID)
	switch {
	case err == nil && began(now, ev):
		if now.Container == "" { // it may have left its cgroup, because it is about to end
			now.Container = ev.Container
		}
		l.m.Meet(now)
		return now, true
	case err == nil:
		l.opt.Exits.Forget(now.Process)
	case !errors.Is(err, sensor.ErrGone):
		l.unwatched(ev.PID, err)
		return met, known && !marked
	}
	if known && !marked {
		return met, true
	}
	return l.late(ev)
}

// began reports whether the event can belong to this process, which has the same PID.
func began(s core.Subject, ev sensor.Event) bool {
	if ev.Started > 0 && s.Started > 0 {
		return ev.Started.Truncate(StartStep) == s.Started
	}
	return !ev.Time.Before(s.Born)
}

// late returns the process of an event that was read after the process had ended. It knows
// only what the event says. It returns false for a process of the host and for one whose
// container the event does not name.
func (l *loop) late(ev sensor.Event) (core.Subject, bool) {
	if ev.Started == 0 {
		return core.Subject{}, false
	}
	s := core.Subject{
		Process:   l.opt.Exits.Gone(ev.PID, ev.Started),
		Container: ev.Container,
		Started:   ev.Started.Truncate(StartStep),
	}
	if ev.Container != "" {
		l.m.MeetGone(s, time.Now())
	}
	return s, l.m.Met(s.Process)
}
